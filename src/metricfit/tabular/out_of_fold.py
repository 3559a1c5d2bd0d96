"""Families on the folds of a table: out-of-fold logits of each, within a time budget.

The folds of a family are fitted in threads of this process, or by the workers of a cluster of Ray or Dask inside
``joblib.parallel_config(backend="dask")``, with the same numbers.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from metricfit.core.threads import set_threads, thread_count
from metricfit.errors import InvalidValueError
from metricfit.runs.executor import run_unordered, runs_on_cluster, without_nested_jobs
from metricfit.tabular.families.family import (
    Candidates,
    Deadline,
    Family,
    Features,
    FittedModel,
    Floats,
    Integers,
    ModelOfFolds,
    OutOfTime,
    Splits,
    TrainingRows,
    choose_candidates,
    set_apart,
)
from metricfit.tabular.fit_progress import FitTracker, FitWatcher

log = logging.getLogger("metricfit.tabular")

#: Rows of the sample on which families are timed that cannot be stopped.
SAMPLE_ROWS = 1000
#: Smaller tables are fitted as quickly as a sample.
ESTIMATE_FROM = 4000
#: Why a family is left out that had not begun when training was stopped.
STOPPED = "training was interrupted before it"
#: Why a family is left out that had not begun at the deadline.
BUDGET_USED_UP = "the time budget was used up before it"


@dataclass(frozen=True)
class FamilyResult:
    """A family that was fitted on all folds.

    Attributes:
        name: The name of the family.
        model: The models of the folds, combined.
        logits: The logits of each row by the model that did not train on it, NaN where all did.
        seconds: The time that fitting took.
        fold_models: The models of the folds, if the combined model does not know them.
        fitted_rows: The rows that each model was fitted on, if these are a sample of a large table.
    """

    name: str
    model: FittedModel
    logits: Floats
    seconds: float
    fold_models: tuple[FittedModel, ...] = ()
    fitted_rows: int | None = None


@dataclass(frozen=True)
class LeftOut:
    """A family that was not fitted, and why."""

    name: str
    reason: str


def fit_families(
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
    """Fit every family on the same folds, in the given order, as far as the time allows.

    A family whose estimated time does not fit into the time that is left is left out, and so is one that is still
    training at the deadline. The first family that is for the table is always fitted.

    Args:
        families: The families, cheap ones first.
        rows: The rows of the table.
        splits: For each fold, the rows to train on and the rows that are held out.
        seed: Seed of every model.
        jobs: Number of folds that are fitted at a time, each in a thread or by a worker of the active cluster.
        deadline: When training has to end.
        last_fold_only: Whether the model of the last fold predicts new rows, as is right for rows in the order of
            time, and not all folds together.
        tracker: Is told when a family begins, after every group of folds, and when it ends.

    Returns:
        The families that were fitted, and those that were not.

    Raises:
        InvalidValueError: No family is for this table, or one of them cannot be fitted on such rows.
        KeyboardInterrupt: The deadline was stopped before a family was complete.
    """
    for family in families:
        family.check(rows)
    if tracker is None:
        tracker = FitTracker(FitWatcher(), [family.name for family in families], len(splits), deadline)
    results: list[FamilyResult] = []
    left_out: list[LeftOut] = []
    for family in families:
        tracker.begin()
        reason = family.reason_to_skip(rows)
        level = logging.INFO
        if reason is None:
            limit = Deadline(deadline.at if results else None, stopped=deadline.stopped)
            result = fit_family(
                family, rows, splits, seed=seed, jobs=jobs, deadline=limit, last_only=last_fold_only, watch=tracker.fold
            )
            if isinstance(result, FamilyResult):
                log.info("%s", tracker.end(result.logits))
                results.append(result)
                continue
            reason, level = result.reason, logging.WARNING
            if deadline.stopped.is_set() and not results:
                raise KeyboardInterrupt
        log.log(level, "%s", tracker.leave_out(reason))
        left_out.append(LeftOut(family.name, reason))
    if not results:
        reasons = "; ".join(f"{family.name}: {family.reason}" for family in left_out)
        raise InvalidValueError(f"none of the models is for this table ({reasons})")
    return results, left_out


def fit_family(
    family: Family,
    rows: TrainingRows,
    splits: Splits,
    *,
    seed: int,
    jobs: int,
    deadline: Deadline,
    last_only: bool = False,
    watch: Callable[[int], None] = lambda folds_done: None,
) -> FamilyResult | LeftOut:
    """Fit a family on all folds, or return why it was not fitted.

    A family that cannot be stopped is first timed on a sample, if it does not estimate its time itself. The others
    begin with as many folds as there are jobs, and the time of these tells that of the rest.

    Args:
        family: The family.
        rows: The rows of the table.
        splits: For each fold, the rows to train on and the rows that are held out.
        seed: Seed of every model.
        jobs: Number of folds that are fitted at a time, each in a thread.
        deadline: When training has to end.
        last_only: Whether the model of the last fold predicts new rows.
        watch: Called with the number of fitted folds, after every group of them.

    Returns:
        The models with their out-of-fold logits, or the reason for leaving the family out.
    """
    reason = family.reason_to_skip(rows)
    if reason is not None:
        return LeftOut(family.name, reason)
    if deadline.seconds_left < 0:
        return LeftOut(family.name, STOPPED if deadline.stopped.is_set() else BUDGET_USED_UP)
    start = time.monotonic()
    family = family.prepare(rows)
    # A single fold chooses settings on some of its training rows, several on the rows that the other folds hold out.
    fitted = splits if len(splits) > 1 else [set_apart(train, rows.y) for train, _ in splits]
    with threadpool_limits(limits=1):  # folds are the parallel work; threads inside them would wait for each other
        models = _fit_folds_in_time(family, rows, fitted, seed=seed, jobs=jobs, deadline=deadline, watch=watch)
    if isinstance(models, LeftOut):
        return models
    return _combine_folds(family, models, rows, splits, time.monotonic() - start, last_only=last_only)


def _combine_folds(
    family: Family,
    fitted: Sequence[FittedModel | Candidates],
    rows: TrainingRows,
    splits: Splits,
    seconds: float,
    *,
    last_only: bool,
) -> FamilyResult:
    """Choose the settings of all folds, predict the rows that they held out, and combine their models."""
    models = choose_candidates(fitted)
    logits = np.full((len(rows), rows.outputs), np.nan)
    for model, (_, held_out) in zip(models, splits, strict=True):
        for part in rows.features.parts(held_out):
            logits[part] = model.logits(rows.features.take(part))
    combined = models[-1] if last_only else family.combine(models)
    fold_models = () if _knows_folds(combined, rows, splits, logits) else tuple(models)
    return FamilyResult(family.name, combined, logits, seconds, fold_models, family.fitted_rows)


def _knows_folds(combined: FittedModel, rows: TrainingRows, splits: Splits, logits: Floats) -> bool:
    """Whether a combined model gives the logits of each fold's model, as one with the mean of their starts does not."""
    if not isinstance(combined, ModelOfFolds) or combined.folds != len(splits):
        return False
    first = [held_out[:1] for _, held_out in splits]
    found = [combined.of_fold(fold).logits(rows.features.take(row)) for fold, row in enumerate(first)]
    return np.allclose(np.concatenate(found), logits[np.concatenate(first)], rtol=1e-6, atol=1e-6)


def _fit_folds_in_time(
    family: Family,
    rows: TrainingRows,
    splits: Splits,
    *,
    seed: int,
    jobs: int,
    deadline: Deadline,
    watch: Callable[[int], None],
) -> list[FittedModel | Candidates] | LeftOut:
    """Fit a family on all folds, unless its time before or after the first of them does not fit into what is left."""
    start = time.monotonic()
    models: dict[int, FittedModel | Candidates] = {}
    fit = _fit_on_cluster if runs_on_cluster() and family.may_travel else _fit_in_threads
    try:
        if deadline.at is not None:
            estimate = _estimate_folds(family, rows, splits, seed=seed, jobs=jobs, deadline=deadline)
            if estimate > deadline.seconds_left:
                return LeftOut(family.name, _reason_of_slowness(estimate, deadline))
        for first, fitted in fit(family, rows, splits, seed=seed, jobs=jobs, deadline=deadline):
            models |= dict(enumerate(fitted, first))
            watch(len(models))
            if len(models) == len(splits):
                break
            if deadline.stopped.is_set():
                raise OutOfTime("training was stopped")
            at_a_time = min(jobs, len(splits))
            rounds_left = -(-(len(splits) - len(models)) // at_a_time)
            estimate = rounds_left * at_a_time * (time.monotonic() - start) / len(models)
            if estimate > deadline.seconds_left:
                return LeftOut(family.name, _reason_of_slowness(estimate, deadline))
    except OutOfTime:
        cause = "it was interrupted" if deadline.stopped.is_set() else "the time budget ended"
        return LeftOut(family.name, f"{cause} after {_few_digits(time.monotonic() - start)} s of its training")
    return [models[fold] for fold in range(len(splits))]


def _fit_in_threads(
    family: Family, rows: TrainingRows, splits: Splits, *, seed: int, jobs: int, deadline: Deadline
) -> Iterator[tuple[int, Sequence[FittedModel | Candidates]]]:
    """Yield the number of the first fold of each group of folds, and what was fitted on them."""
    first = 0
    for part in family.batches(splits, jobs):
        yield first, family.fit_folds(rows, part, seed=seed + first, jobs=jobs, deadline=deadline)
        first += len(part)


def _fit_on_cluster(
    family: Family, rows: TrainingRows, splits: Splits, *, seed: int, jobs: int, deadline: Deadline
) -> Iterator[tuple[int, Sequence[FittedModel | Candidates]]]:
    """Yield the same, fitted by the workers of joblib's active backend, which stop at the deadline by their clocks."""
    ends_at = None if deadline.at is None else time.time() + deadline.seconds_left
    tasks, first = [], 0
    for part in family.batches(splits, 1):  # arrays are arguments of their own, which Dask sends only once
        arrays = (rows.features.encoded, rows.features.table, rows.y, rows.weight)
        of_fold = (first, part, seed + first, ends_at, thread_count())
        tasks.append(joblib.delayed(_fit_by_worker)(family, *arrays, rows.classes, *of_fold))
        first += len(part)
    finished = run_unordered(tasks, jobs)
    try:
        for place, models in finished:
            if models is None:
                raise OutOfTime("a worker reached the deadline")
            yield place, models
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*tasks which were still being processed")  # as the user asked
            finished.close()


def _fit_by_worker(
    family: Family,
    encoded: NDArray[np.float32],
    table: Any,
    y: Integers,
    weight: Floats | None,
    classes: int,
    first: int,
    part: Splits,
    seed: int,
    ends_at: float | None,
    threads: int,
) -> tuple[int, Sequence[FittedModel | Candidates] | None]:
    """Fit one fold, or the folds that a family fits together; None if the deadline came before."""
    deadline = Deadline.after(None if ends_at is None else ends_at - time.time())
    set_threads(threads)  # sums over several threads are rounded in another order
    try:
        deadline.check()
        with threadpool_limits(limits=1), without_nested_jobs():
            rows = TrainingRows(Features(encoded, table), y, weight, classes)
            return first, family.fit_folds(rows, part, seed=seed, jobs=1, deadline=deadline)
    except OutOfTime:
        return first, None


def _reason_of_slowness(estimate: float, deadline: Deadline) -> str:
    """Say that a family would take longer than the time that is left."""
    left = max(0.0, deadline.seconds_left)
    return f"would take about {_few_digits(estimate)} s more, and {_few_digits(left)} s are left"


def _few_digits(seconds: float) -> str:
    """Write seconds with two digits, or as a whole number."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def _estimate_folds(
    family: Family, rows: TrainingRows, splits: Splits, *, seed: int, jobs: int, deadline: Deadline
) -> float:
    """Estimate the seconds of all folds before they are fitted; 0 if that is not needed."""
    estimate = family.estimate(rows, splits, deadline=deadline)
    if estimate is not None:
        return estimate
    if family.can_be_stopped or len(rows) < ESTIMATE_FROM:
        return 0.0
    sample, held_out = _sample(rows, seed)
    start = time.monotonic()
    family.fit(sample, held_out, seed=seed, deadline=deadline)
    seconds = time.monotonic() - start
    train_rows = float(np.mean([len(train) for train, _ in splits]))
    return float(seconds * (train_rows / len(sample)) ** family.growth * -(-len(splits) // jobs))


def _sample(rows: TrainingRows, seed: int) -> tuple[TrainingRows, TrainingRows]:
    """Draw rows to fit on, with two rows of every class, and rows to hold out."""
    order = np.random.default_rng(seed).permutation(len(rows))
    first = np.concatenate([order[rows.y[order] == label][:2] for label in range(rows.classes)])
    order = np.concatenate([first, order[~np.isin(order, first)]])
    return rows.take(order[:SAMPLE_ROWS]), rows.take(order[SAMPLE_ROWS : SAMPLE_ROWS + SAMPLE_ROWS // 4])
