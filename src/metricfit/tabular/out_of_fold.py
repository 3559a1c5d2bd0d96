"""Families on the folds of a table: out-of-fold logits of each, within a time budget, and the progress of it.

The folds of a family are fitted in threads of this process, or by the workers of a cluster of Ray or Dask inside
``joblib.parallel_config(backend="dask")``, with the same numbers.

A watcher can also stop training: the families that are complete by then become the model.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from metricfit.core.arrays import Floats, Integers
from metricfit.core.threads import set_threads, thread_count
from metricfit.errors import InvalidValueError
from metricfit.runs.cells import format_seconds
from metricfit.runs.executor import run_unordered, runs_on_cluster, without_nested_jobs
from metricfit.tabular.families.arithmetic import set_apart
from metricfit.tabular.families.family import (
    Candidates,
    Deadline,
    Family,
    Features,
    FittedModel,
    OutOfTime,
    Splits,
    TrainingRows,
    choose_candidates,
)
from metricfit.tabular.large_rows import CompactFeatures, sample_large_table

log = logging.getLogger("metricfit.tabular")

#: Rows of the sample on which families are timed that cannot be stopped.
SAMPLE_ROWS = 1000
#: Smaller tables are fitted as quickly as a sample.
ESTIMATE_FROM = 4000
#: A family is not begun if it would take this many times what is left: the estimate is from other families.
UNCERTAIN = 2.0
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
        fold_models: The models of the folds.
        fitted_rows: The rows that each model was fitted on, if these are a sample of a large table.
    """

    name: str
    model: FittedModel
    logits: Floats
    seconds: float
    fold_models: tuple[FittedModel, ...]
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
    seconds_after: Callable[[FamilyResult, int], float] = lambda first, families: 0.0,
) -> tuple[list[FamilyResult], list[LeftOut]]:
    """Fit every family on the same folds, in the given order, as far as the time allows.

    A family whose estimated time does not fit into the time that is left is left out, and so is one that is still
    training at the deadline. The first family that is for the table is always fitted. What comes after training has a
    part of the time too.

    Args:
        families: The families, cheap ones first.
        rows: The rows of the table.
        splits: For each fold, the rows to train on and the rows that are held out.
        seed: Seed of every model.
        jobs: Number of folds that are fitted at a time, each in a thread or by a worker of the active cluster.
        deadline: When training has to end.
        last_fold_only: Whether the model of the last fold predicts new rows, as is right for rows in the order of
            time, and not all folds together.
        tracker: Is called when a family begins, after every group of folds, and when it ends.
        seconds_after: Estimates, from the first family that was fitted, the seconds between the last of this many
            families and the end of ``fit``.

    Returns:
        The families that were fitted, and those that were not.

    Raises:
        InvalidValueError: No family is for this table, or one of them cannot be fitted on such rows.
        KeyboardInterrupt: The deadline was stopped before a family was complete.
    """
    for family in families:
        family.reason_to_skip(rows)  # what cannot be fitted is reported before anything is trained
    tracker = tracker or FitTracker(FitWatcher(), [family.name for family in families], len(splits), deadline)
    results: list[FamilyResult] = []
    left_out: list[LeftOut] = []
    for family in families:
        tracker.begin()
        limit = Deadline(stopped=deadline.stopped)
        if results and deadline.at is not None:
            limit = replace(limit, at=deadline.at - seconds_after(results[0], len(results) + 1))
        result = _not_begun(family, tracker, limit) or fit_family(
            family, rows, splits, seed=seed, jobs=jobs, deadline=limit, last_only=last_fold_only, watch=tracker.report
        )
        if isinstance(result, FamilyResult):
            log.info("%s", tracker.report(len(splits), logits=result.logits))
            results.append(result)
            continue
        if deadline.stopped.is_set() and not results:
            raise KeyboardInterrupt
        level = logging.INFO if family.reason_to_skip(rows) else logging.WARNING
        log.log(level, "%s", tracker.report(0, left_out=result.reason))
        left_out.append(result)
    if not results:
        reasons = "; ".join(f"{family.name}: {family.reason}" for family in left_out)
        raise InvalidValueError(f"none of the models is for this table ({reasons})")
    return results, left_out


def _not_begun(family: Family, tracker: FitTracker, limit: Deadline) -> LeftOut | None:
    """Return why a family is not begun: it would take far longer than is left, as the families before it tell."""
    estimate = estimate_seconds(tracker.finished, [family.name])
    if estimate is None or not 0 <= limit.seconds_left < estimate / UNCERTAIN:
        return None
    return _too_slow(family, estimate, limit)


def _too_slow(family: Family, estimate: float, limit: Deadline) -> LeftOut:
    left = _few_digits(max(0.0, limit.seconds_left))
    return LeftOut(family.name, f"would take about {_few_digits(estimate)} s more, and {left} s are left")


def fit_family(
    family: Family,
    rows: TrainingRows,
    splits: Splits,
    *,
    seed: int,
    jobs: int,
    deadline: Deadline,
    last_only: bool = False,
    watch: Callable[[int], object] = lambda folds_done: None,
) -> FamilyResult | LeftOut:
    """Fit a family on all folds, or return why it was not fitted.

    A family that cannot be stopped is first timed on a sample, if it does not estimate its time itself. The others
    begin with as many folds as there are jobs, whose time says how long the rest will take.

    Args:
        family: The family.
        rows: The rows of the table. Of a large table most families are fitted on a sample.
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
    # A single fold chooses settings on some of its training rows, several on the rows that the other folds hold out.
    parts = splits if len(splits) > 1 else [set_apart(train, rows.y) for train, _ in splits]
    training, fitted_rows, is_large = rows, None, isinstance(rows.features, CompactFeatures)
    if is_large and not family.takes_all_rows:
        training, parts = sample_large_table(rows, parts, seed)
        fitted_rows = len(parts[-1][0])
        log.info("%s is fitted on %s of %s rows", family.name, f"{fitted_rows:,}", f"{len(rows):,}")
    work = _FoldFits(family.prepare(training), training, parts, seed, jobs, deadline)
    # Folds are the parallel work; threads inside them would wait for each other.
    with (
        threadpool_limits(limits=1),
        without_nested_jobs() if is_large else nullcontext(),
        warnings.catch_warnings(),
    ):
        # Filters belong to the process: a fold that ends in a thread takes away the filter of another fold.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = work.fit_in_time(watch)
    if isinstance(fitted, LeftOut):
        return fitted
    models = choose_candidates(fitted)
    logits = np.full((len(rows), rows.outputs), np.nan)
    for model, (_, held_out) in zip(models, splits, strict=True):
        for part in rows.features.parts(held_out):
            logits[part] = model.logits(rows.features.take(part))
    combined = models[-1] if last_only else family.combine(models)
    return FamilyResult(family.name, combined, logits, time.monotonic() - start, tuple(models), fitted_rows)


@dataclass(frozen=True)
class _FoldFits:
    """The folds of one family that are to be fitted, in threads or by the workers of a cluster."""

    family: Family
    rows: TrainingRows
    splits: Splits
    seed: int
    jobs: int
    deadline: Deadline

    def fit_in_time(self, watch: Callable[[int], object]) -> list[FittedModel | Candidates] | LeftOut:
        """Fit all folds, unless the time before or after the first of them does not fit into what is left."""
        start = time.monotonic()
        models: dict[int, FittedModel | Candidates] = {}
        try:
            estimate = self._estimate()
            if estimate > self.deadline.seconds_left:
                return _too_slow(self.family, estimate, self.deadline)
            for fitted in self._on_cluster() if runs_on_cluster() else self._in_threads():
                models |= fitted
                watch(len(models))
                if len(models) == len(self.splits):
                    break
                if self.deadline.stopped.is_set():
                    raise OutOfTime("training was stopped")
                at_a_time = min(self.jobs, len(self.splits))
                rounds_left = math.ceil((len(self.splits) - len(models)) / at_a_time)
                estimate = rounds_left * at_a_time * (time.monotonic() - start) / len(models)
                if estimate > self.deadline.seconds_left:
                    return _too_slow(self.family, estimate, self.deadline)
        except OutOfTime:
            cause = "it was interrupted" if self.deadline.stopped.is_set() else "the time budget ended"
            seconds = _few_digits(time.monotonic() - start)
            return LeftOut(self.family.name, f"{cause} after {seconds} s of its training")
        return [models[fold] for fold in range(len(self.splits))]

    def _tasks(self) -> list[tuple[int, Splits]]:
        """Return what is fitted at a time: one fold, or all; with the number of the first of them."""
        size = len(self.splits) if self.family.fits_all_folds else 1
        return [(first, self.splits[first : first + size]) for first in range(0, len(self.splits), size)]

    def _fit(self, first: int, part: Splits) -> dict[int, FittedModel | Candidates]:
        models = self.family.fit_folds(self.rows, part, seed=self.seed + first, deadline=self.deadline)
        return dict(enumerate(models, first))

    def _in_threads(self) -> Iterator[dict[int, FittedModel | Candidates]]:
        """Yield what was fitted on each group of folds, by their numbers."""
        tasks = self._tasks()
        if self.jobs == 1:
            yield from (self._fit(*task) for task in tasks)
            return
        with ThreadPoolExecutor(self.jobs) as pool:
            for at in range(0, len(tasks), self.jobs):
                group = [pool.submit(self._fit, *task) for task in tasks[at : at + self.jobs]]
                try:
                    fitted = [future.result() for future in group]
                except BaseException:
                    self.deadline.cancelled.set()  # ends the other folds at their next check
                    raise
                yield {fold: model for models in fitted for fold, model in models.items()}

    def _on_cluster(self) -> Iterator[dict[int, FittedModel | Candidates]]:
        """Yield the same, fitted by workers of joblib's active backend, which stop at the deadline by their clocks."""
        ends_at = None if self.deadline.at is None else time.time() + self.deadline.seconds_left
        rows = self.rows  # its arrays are arguments of their own, which Dask sends only once
        arrays = (rows.features.encoded, rows.features.table, rows.y, rows.weight)
        tasks = [
            joblib.delayed(fit_by_worker)(
                self.family, *arrays, rows.classes, first, part, self.seed, ends_at, thread_count()
            )
            for first, part in self._tasks()
        ]
        finished = run_unordered(tasks, self.jobs)
        try:
            for models in finished:
                if models is None:
                    raise OutOfTime("a worker reached the deadline")
                yield models
        finally:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*tasks which were still being processed")  # as the user asked
                finished.close()

    def _estimate(self) -> float:
        """Estimate the seconds of all folds before they are fitted; 0 if that is not needed."""
        if self.deadline.at is None:
            return 0.0
        estimate = self.family.estimate(self.rows, self.splits, deadline=self.deadline)
        if estimate is not None:
            return estimate
        if self.family.can_be_stopped or len(self.rows) < ESTIMATE_FROM:
            return 0.0
        sample, held_out = _sample(self.rows, self.seed)
        start = time.monotonic()
        self.family.fit(sample, held_out, seed=self.seed, deadline=self.deadline)
        seconds = time.monotonic() - start
        growth = (float(np.mean([len(train) for train, _ in self.splits])) / len(sample)) ** self.family.growth
        return seconds * growth * math.ceil(len(self.splits) / self.jobs)


def fit_by_worker(
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
) -> dict[int, FittedModel | Candidates] | None:
    """Fit one fold, or the folds that a family fits together; None if the deadline came before."""
    deadline = Deadline.after(None if ends_at is None else ends_at - time.time())
    set_threads(threads)  # sums over several threads are rounded in another order
    rows = TrainingRows(Features(encoded, table), y, weight, classes)
    try:
        deadline.check()
        with threadpool_limits(limits=1), without_nested_jobs():
            return _FoldFits(family, rows, part, seed, 1, deadline)._fit(first, part)
    except OutOfTime:
        return None


def _few_digits(seconds: float) -> str:
    """Write seconds with two digits, or as a whole number."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def _sample(rows: TrainingRows, seed: int) -> tuple[TrainingRows, TrainingRows]:
    """Draw rows to fit on, with two rows of every class, and rows to hold out."""
    order = np.random.default_rng(seed).permutation(len(rows))
    first = np.concatenate([order[rows.y[order] == label][:2] for label in range(rows.classes)])
    order = np.concatenate([first, order[~np.isin(order, first)]])
    return rows.take(order[:SAMPLE_ROWS]), rows.take(order[SAMPLE_ROWS : SAMPLE_ROWS + SAMPLE_ROWS // 4])


#: Seconds of each family relative to boosting: the median over 19 tables (studies/results/tables.json).
RELATIVE_SECONDS = {
    "linear": 0.4,
    "text": 2.0,
    "kernel": 0.3,
    "boosting": 1.0,
    "boosting_small": 1.0,
    "boosting_metric": 1.5,
    "extra_trees": 3.5,
    "catboost": 6.0,
    "network": 5.0,
}


@dataclass(frozen=True)
class FitProgress:
    """How far the training of families is.

    Attributes:
        family: The name of the family that is training or has ended.
        number: Its number, from 1 on.
        families: The number of families.
        folds_done: The folds of this family that are fitted.
        folds: The number of folds.
        ended: Whether the family has ended.
        seconds: The seconds that it has taken so far.
        value: Its value of the metric out of fold; None before it has ended, and if it was left out.
        best: The best value of a family so far; None before the first one.
        seconds_left: Estimated seconds until all families have ended; None if nothing is known about it.
        left_out: Why the family was left out; None if it was not.
    """

    family: str
    number: int
    families: int
    folds_done: int
    folds: int
    ended: bool = False
    seconds: float = 0.0
    value: float | None = None
    best: float | None = None
    seconds_left: float | None = None
    left_out: str | None = None

    def __str__(self) -> str:
        """Write one line about a family that has ended."""
        place = f"{self.number} of {self.families}"
        if self.left_out is not None:
            return f"{self.family} is left out: {self.left_out} ({place})"
        facts = [place]
        if self.best is not None and self.number > 1:
            facts.append(f"best so far {self.best:.3f}")
        if self.seconds_left is not None and self.number < self.families:
            facts.append(f"about {format_seconds(self.seconds_left)} left")
        value = "" if self.value is None else f"{self.value:.3f} out of fold, "
        return f"{self.family}: {value}{self.seconds:.1f} s ({'; '.join(facts)})"


class FitWatcher:
    """Watches ``fit``, and can stop it; subclasses show the progress.

    Attributes:
        shows_values: Whether the value of every family is needed as soon as it has ended, which takes a little time.
        stop: Set to leave out the families that are not complete; at least one is.
    """

    shows_values = False

    def __init__(self) -> None:
        self.stop = threading.Event()

    def begin(self, model: Any) -> None:
        """Called when the table is encoded and no family is fitted yet; an error of it ends ``fit``."""

    def report(self, progress: FitProgress) -> None:
        """Called when a family begins, after every group of folds, and when it has ended."""


class PrintedProgress(FitWatcher):
    """Prints one line per family, for ``MetricClassifier(verbose=True)``."""

    shows_values = True

    def report(self, progress: FitProgress) -> None:
        """Print a family that has ended."""
        if progress.ended:
            print(progress, flush=True)


_watcher: ContextVar[FitWatcher | None] = ContextVar("metricfit_fit_watcher", default=None)


@contextmanager
def watch_fit(watcher: FitWatcher) -> Iterator[None]:
    """Make a watcher follow every ``MetricClassifier.fit`` that is called in the context."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def choose_watcher(verbose: bool) -> FitWatcher:
    """Return the watcher of the context, or one that prints if ``verbose``, or one that does nothing."""
    return _watcher.get() or (PrintedProgress() if verbose else FitWatcher())


class FitTracker:
    """Tells a watcher what happens, with the best value so far and the time that is left.

    Args:
        watcher: The watcher.
        families: The names of the families, in their order.
        folds: The number of folds.
        deadline: When training has to end.
        value_of: Returns the metric of a family's out-of-fold logits.
        minimize: Whether lower values are better.
    """

    def __init__(
        self,
        watcher: FitWatcher,
        families: Sequence[str],
        folds: int,
        deadline: Deadline,
        value_of: Callable[[Floats], float] | None = None,
        minimize: bool = False,
    ) -> None:
        self.watcher, self.families, self.folds, self.deadline = watcher, families, folds, deadline
        self.value_of = value_of if watcher.shows_values else None
        self.better = min if minimize else max
        self.best: float | None = None
        self.finished: list[tuple[str, float]] = []
        self.number, self.start = 0, 0.0

    def begin(self) -> None:
        """Report that the next family begins."""
        self.number, self.start = self.number + 1, time.monotonic()
        self.report(0)

    def report(self, done: int, *, logits: Floats | None = None, left_out: str | None = None) -> FitProgress:
        """Report how far the family is.

        Args:
            done: The folds that are fitted.
            logits: The out-of-fold logits of a family that has ended.
            left_out: Why the family was left out.
        """
        family, seconds, value = self.families[self.number - 1], time.monotonic() - self.start, None
        ended, to_come, left = logits is not None or left_out is not None, self.families[self.number :], 0.0
        known = list(self.finished)
        if logits is not None:
            self.finished.append((family, seconds))
            known = list(self.finished)
            value = None if self.value_of is None else self.value_of(logits)
            if value is not None:
                self.best = value if self.best is None else self.better(self.best, value)
        elif done:
            whole = seconds * self.folds / done
            left = whole - seconds
            known.append((family, whole))
        elif not ended:
            to_come = [family, *to_come]
        estimate = estimate_seconds(known, to_come)
        seconds_left = None if estimate is None else max(0.0, min(left + estimate, self.deadline.seconds_left))
        place = (self.number, len(self.families), done, self.folds)
        progress = FitProgress(family, *place, ended, seconds, value, self.best, seconds_left, left_out)
        self.watcher.report(progress)
        return progress


def estimate_seconds(known: Sequence[tuple[str, float]], families: Sequence[str]) -> float | None:
    """Estimate the seconds of families from the seconds of others, by their relative cost.

    Args:
        known: Names and seconds of families.
        families: The names of the families to estimate.

    Returns:
        The seconds of all of them; None if there is nothing to estimate from.

    Example:
        >>> estimate_seconds([("boosting", 2.0)], ["boosting_small", "extra_trees"])
        9.0
    """
    if not families:
        return 0.0
    if not known:
        return None
    costs = [
        sum(RELATIVE_SECONDS.get(name, 1.0) for name in names) for names in (families, [name for name, _ in known])
    ]
    return sum(seconds for _, seconds in known) * costs[0] / costs[1]
