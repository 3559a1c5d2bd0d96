"""Methods beside each other: their values, one a fold, means with intervals, and differences to the reference."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metricfit import stats
from metricfit.experiments.methods import REFERENCE
from metricfit.metrics import Metric

TIE = 0.01


@dataclass(frozen=True)
class Row:
    """A method's values, one a fold, and what they say.

    Attributes:
        values: None on folds where no threshold met the requirements on the training rows.
        interval: of the mean, 95 %, by the corrected t of Nadeau & Bengio (2003), within the bounds of the metric; None
            where all folds have one value, for then nothing says how far it is to be trusted.
        seconds: of training, over all folds.
        held: on how many folds the requirements held.
        versus: the method beside the reference; None for the reference itself, what equals it on every fold, and where
            one of the two lacks a value.
        unreached: what was reachable in place of the requirements, for each fold without a value.
    """

    name: str
    values: tuple[float | None, ...]
    interval: stats.Interval | None
    seconds: float
    held: int
    versus: stats.SplitComparison | None
    unreached: tuple[str, ...] = ()

    @property
    def reached(self) -> tuple[float, ...]:
        """The values there are."""
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Over folds; None where one has no value, for a mean over other folds is not to be compared."""
        return statistics.fmean(self.reached) if len(self.reached) == len(self.values) else None

    @property
    def difference(self) -> float | None:
        """The mean less the reference's."""
        return None if self.versus is None else self.versus.difference

    @property
    def difference_interval(self) -> stats.Interval | None:
        """Of the difference, 95 %; None where it is the same on every fold, which says nothing of how sure it is."""
        return None if self.versus is None or constant(self.versus) else self.versus.interval

    @property
    def p_value(self) -> float | None:
        """Of the difference; None where it has no interval."""
        return None if self.versus is None or constant(self.versus) else self.versus.p_value


def standings(reports: Mapping[str, Sequence[Mapping[str, Any]]], metric: Metric) -> list[Row]:
    """Rows from cells' reports, by method and fold; best mean first, methods without one last."""
    values: dict[str, list[float | None]] = {}
    held: dict[str, int] = {}
    seconds: dict[str, float] = {}
    unreached: dict[str, list[str]] = {}
    for of_method in reports.values():
        for report in of_method:
            for called, value in report["values"].items():
                values.setdefault(called, []).append(value)
                held[called] = held.get(called, 0) + report["held"][called]
                seconds[called] = seconds.get(called, 0.0) + report["training_seconds"]
                unreached.setdefault(called, []).extend([report["not_reachable"]] if value is None else [])
    rows = [
        Row(
            called,
            tuple(of),
            interval_of_mean(of, metric),
            seconds[called],
            held[called],
            None if called == REFERENCE else beside(of, values[REFERENCE], metric),
            tuple(unreached[called]),
        )
        for called, of in values.items()
    ]
    return sorted(rows, key=lambda row: math.inf if row.mean is None else row.mean if metric.minimize else -row.mean)


def interval_of_mean(values: Sequence[float | None], metric: Metric) -> stats.Interval | None:
    """The 95 % interval of the mean over the folds of a cross-validation, a value each.

    The folds' training rows overlap, so Student's interval of the mean would be far too short: the variance is that of
    Nadeau & Bengio (2003), with as many folds as values. Cut at the metric's bounds, which the mean cannot pass; None
    where all values are equal or one is missing.

    >>> from metricfit.metrics import get_metric
    >>> interval_of_mean([0.70, 0.74, 0.69, 0.72, 0.75], get_metric("f1"))
    (0.6725, 0.7675)
    """
    if len(set(values)) == 1 or None in values:
        return None
    from_zero = stats.compare_splits(values, [0.0] * len(values), test_fraction=1 / len(values))
    low, high = metric.bounds
    return stats.Interval(max(low, from_zero.interval.low), min(high, from_zero.interval.high))


def beside(
    values: Sequence[float | None], others: Sequence[float | None], metric: Metric
) -> stats.SplitComparison | None:
    """Two methods on the folds of one cross-validation; None where they are equal on all, or a value is missing.

    >>> from metricfit.metrics import get_metric
    >>> beside([0.8, 0.7, 0.9], [0.7, 0.7, 0.8], get_metric("f1")).wins
    2
    """
    if list(values) == list(others) or None in values or None in others:
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the values differ by .* on every split")  # the verdict says so in its words
        return stats.compare_splits(values, others, test_fraction=1 / len(values), rope=TIE, minimize=metric.minimize)


def constant(found: stats.SplitComparison) -> bool:
    """Whether the difference is the same on every fold, so that its interval has no width."""
    return found.interval.low == found.interval.high
