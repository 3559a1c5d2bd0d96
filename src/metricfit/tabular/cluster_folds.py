"""Families and folds on a cluster: all folds of all families at a time, with the numbers of one process.

It is used inside ``joblib.parallel_config(backend="dask")`` or ``"ray"``, and by ``metricfit fit --backend``.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from metricfit.runs.backends import run_unordered, without_nested_jobs
from metricfit.tabular.families.family import (
    Candidates,
    Deadline,
    Family,
    Features,
    FittedModel,
    Floats,
    Integers,
    OutOfTime,
    Splits,
    TrainingRows,
)
from metricfit.tabular.fit_progress import FitTracker, FitWatcher
from metricfit.tabular.out_of_fold import (
    BUDGET_USED_UP,
    STOPPED,
    FamilyResult,
    LeftOut,
    check_some_are_fitted,
    combine_folds,
    estimate_folds,
    reason_of_slowness,
    splits_of_training,
)

log = logging.getLogger("metricfit.tabular")


@dataclass
class _FamilyOnCluster:
    """A family whose folds are fitted on the cluster.

    Attributes:
        family: The family.
        reason: Why it is left out; None if it is not.
        is_skipped: Whether it is not for such tables.
        models: The models of the folds that are fitted, by the number of the fold.
        seconds: The seconds of these folds together.
    """

    family: Family
    reason: str | None
    is_skipped: bool
    models: dict[int, FittedModel | Candidates] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class _FoldResult:
    """What a worker returns: the number of a family and of its first fold, models and seconds."""

    family: int
    first: int
    models: Sequence[FittedModel | Candidates] | None
    seconds: float


def cluster_jobs(n_jobs: int | None) -> int:
    """Return how many folds are fitted at a time on the active cluster; -1 is one per core of all its machines."""
    return int(joblib.effective_n_jobs(n_jobs))


def fit_families_on_cluster(
    families: Sequence[Family],
    rows: TrainingRows,
    splits: Splits,
    *,
    seed: int,
    jobs: int,
    deadline: Deadline,
    last_fold_only: bool = False,
    tracker: FitTracker | None = None,
) -> tuple[list[FamilyResult], list[LeftOut]]:
    """Fit every family on the same folds, as ``fit_families`` does, with joblib's active backend.

    All folds of all families are given to the cluster at once, cheap families first. Workers stop at the deadline by
    their own clocks, and a family is left out if one of its folds was stopped.

    Args:
        families: The families, cheap ones first.
        rows: The rows of the table.
        splits: For each fold, the rows to train on and the rows that are held out.
        seed: Seed of every model.
        jobs: Number of folds that are fitted at a time.
        deadline: When training has to end.
        last_fold_only: Whether the model of the last fold predicts new rows.
        tracker: Is told when a family begins, after every fold, and when it ends.

    Returns:
        The families that were fitted, each with the seconds of all its folds together, and those that were not.

    Raises:
        InvalidValueError: No family is for this table, or one of them cannot be fitted on such rows.
        KeyboardInterrupt: The deadline was stopped before a family was complete.
    """
    for family in families:
        family.check(rows)
    if tracker is None:
        tracker = FitTracker(FitWatcher(), [family.name for family in families], len(splits), deadline)
    started = [_start(family, rows) for family in families]
    tasks = list(_tasks(started, rows, splits_of_training(rows, splits), seed=seed, jobs=jobs, deadline=deadline))
    tracker.workers = jobs
    reports = _Reports(started, rows, splits, tracker, last_fold_only)
    reports.tell()
    finished = run_unordered(tasks, jobs)
    try:
        for result in finished:
            reports.add(result)
            if deadline.stopped.is_set():
                break
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*tasks which were still being processed")  # as the user asked
            finished.close()
    return reports.end(stopped=deadline.stopped.is_set())


def _start(family: Family, rows: TrainingRows) -> _FamilyOnCluster:
    reason = family.reason_to_skip(rows)
    return _FamilyOnCluster(family if reason is not None else family.prepare(rows), reason, reason is not None)


def _tasks(
    started: Sequence[_FamilyOnCluster],
    rows: TrainingRows,
    splits: Splits,
    *,
    seed: int,
    jobs: int,
    deadline: Deadline,
) -> Iterator[Any]:
    """Yield the folds to fit, family by family; arrays are arguments of their own, which Dask sends only once."""
    limited = False
    for number, state in enumerate(started):
        family = state.family
        if state.reason is not None:
            continue
        ends_at = None
        if limited and deadline.at is not None:
            if deadline.seconds_left < 0:
                state.reason = BUDGET_USED_UP
                continue
            try:
                estimate = estimate_folds(family, rows, splits, seed=seed, jobs=jobs, deadline=deadline)
            except OutOfTime:
                state.reason = BUDGET_USED_UP
                continue
            if estimate > deadline.seconds_left:
                state.reason = reason_of_slowness(estimate, deadline)
                continue
            ends_at = time.time() + deadline.seconds_left
        limited = True
        first = 0
        for part in family.batches(splits, 1):
            yield joblib.delayed(_fit_part)(
                (number, first),
                family,
                rows.features.encoded,
                rows.features.table,
                rows.y,
                rows.weight,
                rows.classes,
                part,
                seed + first,
                ends_at,
                torch.get_num_threads(),
            )
            first += len(part)


def _fit_part(
    place: tuple[int, int],
    family: Family,
    encoded: NDArray[np.float32],
    table: Any,
    y: Integers,
    weight: Floats | None,
    classes: int,
    part: Splits,
    seed: int,
    ends_at: float | None,
    threads: int,
) -> _FoldResult:
    """Fit one fold, or the folds that a family fits together, in a worker."""
    start = time.monotonic()
    deadline = Deadline.after(None if ends_at is None else ends_at - time.time())
    rows = TrainingRows(Features(encoded, table), y, weight, classes)
    torch.set_num_threads(threads)  # sums over several threads are rounded in another order
    try:
        deadline.check()
        with threadpool_limits(limits=1), without_nested_jobs():
            models = family.fit_folds(rows, part, seed=seed, jobs=1, deadline=deadline)
    except OutOfTime:
        return _FoldResult(*place, None, time.monotonic() - start)
    return _FoldResult(*place, models, time.monotonic() - start)


class _Reports:
    """Collects the folds as they are ready, and reports the families in their order."""

    def __init__(
        self,
        started: Sequence[_FamilyOnCluster],
        rows: TrainingRows,
        splits: Splits,
        tracker: FitTracker,
        last_fold_only: bool,
    ) -> None:
        self.started, self.rows, self.splits = started, rows, splits
        self.tracker, self.last_fold_only = tracker, last_fold_only
        self.results: list[FamilyResult] = []
        self.left_out: list[LeftOut] = []
        self.number = 0
        self.begun = False

    def add(self, result: _FoldResult) -> None:
        """Keep a part of a family."""
        state = self.started[result.family]
        state.seconds += result.seconds
        if result.models is None:
            state.reason = f"the time budget ended before its {len(self.splits)} folds were ready"
        else:
            state.models |= dict(enumerate(result.models, result.first))
        self.tell()

    def tell(self) -> None:
        """Report the families that are complete, up to the first one that is not."""
        while self.number < len(self.started):
            state = self.started[self.number]
            if not self.begun:
                self.tracker.begin()
                self.begun = True
            complete = len(state.models) == len(self.splits)
            if state.reason is None and not complete:
                self.tracker.fold(len(state.models), state.seconds)
                return
            self._end(state)

    def end(self, *, stopped: bool) -> tuple[list[FamilyResult], list[LeftOut]]:
        """Leave out what is not complete, and return both lists."""
        for state in self.started[self.number :]:
            if state.reason is None and len(state.models) < len(self.splits):
                state.reason = STOPPED if not state.models else "it was interrupted before its folds were ready"
        if stopped and not any(state.reason is None for state in self.started):
            raise KeyboardInterrupt
        self.tell()
        check_some_are_fitted(self.results, self.left_out)
        return self.results, self.left_out

    def _end(self, state: _FamilyOnCluster) -> None:
        name = state.family.name
        if state.reason is None:
            models = [state.models[fold] for fold in range(len(self.splits))]
            result = combine_folds(
                state.family, models, self.rows, self.splits, state.seconds, last_only=self.last_fold_only
            )
            self.results.append(result)
            log.info("%s", self.tracker.end(result.logits, state.seconds))
        else:
            self.left_out.append(LeftOut(name, state.reason))
            level = logging.INFO if state.is_skipped else logging.WARNING
            log.log(level, "%s", self.tracker.leave_out(state.reason))
        self.number, self.begun = self.number + 1, False
