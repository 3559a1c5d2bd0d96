"""The progress of ``MetricClassifier.fit``: what is reported after every family and every group of folds.

A watcher can also stop training: the families that are complete by then become the model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from metricfit.runs.cells import format_seconds
from metricfit.tabular.families.family import Deadline, Floats

#: Seconds of each family relative to boosting: the median over 19 tables (studies/results/tables.json).
RELATIVE_SECONDS = {
    "linear": 0.4,
    "text": 2.0,
    "kernel": 0.3,
    "boosting": 1.0,
    "boosting_small": 1.0,
    "boosting_metric": 1.5,
    "extra_trees": 3.5,
    "random_forest": 6.0,
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
        12.0
    """
    if not families:
        return 0.0
    if not known:
        return None
    costs = [
        sum(RELATIVE_SECONDS.get(name, 1.0) for name in names) for names in (families, [name for name, _ in known])
    ]
    return sum(seconds for _, seconds in known) * costs[0] / costs[1]
