"""Methods beside each other: values by fold, means with intervals, and differences to the reference method.

All methods are compared with one reference on the same folds, which makes several tests. Their p-values are corrected
by Holm's method, and the intervals of the differences are simultaneous (Bonferroni).
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metricfit import stats
from metricfit.metrics import Metric
from metricfit.tabular.compare.methods import REFERENCE

TIE = 0.01
LEVEL = 0.95


@dataclass(frozen=True)
class Row:
    """A method's values, one per fold, and what they say.

    Attributes:
        name: The method.
        values: The metric on each fold. Where no threshold met the requirements on a fold's training rows, it is the
            value at the threshold that came nearest to them.
        interval: 95 % interval of the mean by the corrected t of Nadeau & Bengio (2003), within the bounds of the
            metric; None if all folds have the same value, because nothing then says how far to trust the mean.
        seconds: Training time of all folds.
        held: Number of folds on which the requirements held.
        versus: The comparison with the reference, its interval simultaneous with those of the other methods; None for
            the reference itself and for a method that equals it on every fold.
        p_value: p-value of the difference to the reference, corrected by Holm's method for all methods compared with
            it; None where ``versus`` is None or the difference is the same on every fold.
        unreached: For each fold whose training rows no threshold could meet the requirements on, what was reachable.
    """

    name: str
    values: tuple[float, ...]
    interval: stats.Interval | None
    seconds: float
    held: int
    versus: stats.SplitComparison | None
    p_value: float | None = None
    unreached: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Mean over folds."""
        return statistics.fmean(self.values)

    @property
    def difference(self) -> float | None:
        """The mean less the reference's."""
        return None if self.versus is None else self.versus.difference

    @property
    def difference_interval(self) -> stats.Interval | None:
        """Simultaneous 95 % interval of the difference; None if the difference is the same on every fold."""
        return None if self.versus is None or is_constant(self.versus) else self.versus.interval


def standings(reports: Mapping[str, Sequence[Mapping[str, Any]]], metric: Metric) -> list[Row]:
    """Make the rows from the reports of the cells, best mean first.

    Args:
        reports: For each method, the reports of its folds.
        metric: The metric that the methods are judged by.

    Returns:
        One row per method; methods that could not meet the requirements on the training rows of some fold come last.
    """
    values: dict[str, list[float]] = {}
    held: dict[str, int] = {}
    seconds: dict[str, float] = {}
    unreached: dict[str, list[str]] = {}
    for of_method in reports.values():
        for report in of_method:
            for name, value in report["values"].items():
                values.setdefault(name, []).append(value)
                held[name] = held.get(name, 0) + report["held"][name]
                seconds[name] = seconds.get(name, 0.0) + report["training_seconds"]
                unreached.setdefault(name, []).extend(
                    [report["not_reachable"][name]] if name in report.get("not_reachable", {}) else []
                )
    others = {name: of for name, of in values.items() if name != REFERENCE}
    versus = dict(zip(others, compare_with(values[REFERENCE], list(others.values()), metric), strict=True))
    rows = [
        Row(
            name,
            tuple(of),
            interval_of_mean(of, metric),
            seconds[name],
            held[name],
            *versus.get(name, (None, None)),
            unreached=tuple(unreached[name]),
        )
        for name, of in values.items()
    ]
    return sorted(rows, key=lambda row: (bool(row.unreached), row.mean if metric.minimize else -row.mean))


def interval_of_mean(values: Sequence[float], metric: Metric) -> stats.Interval | None:
    """The 95 % interval of the mean over the folds of a cross-validation, one value per fold.

    The folds' training rows overlap, so Student's interval of the mean would be far too short: the variance is that of
    Nadeau & Bengio (2003), with as many folds as values. Cut at the metric's bounds, which the mean cannot pass; None
    where all values are equal.

    >>> from metricfit.metrics import get_metric
    >>> interval_of_mean([0.70, 0.74, 0.69, 0.72, 0.75], get_metric("f1"))
    (0.6725, 0.7675)
    """
    if len(set(values)) == 1:
        return None
    from_zero = stats.compare_splits(values, [0.0] * len(values), test_fraction=1 / len(values))
    low, high = metric.bounds
    return stats.Interval(max(low, from_zero.interval.low), min(high, from_zero.interval.high))


def compare_with(
    base: Sequence[float], others: Sequence[Sequence[float]], metric: Metric
) -> list[tuple[stats.SplitComparison | None, float | None]]:
    """Compare several methods with one, on the folds of one cross-validation.

    Args:
        base: The values of the method that the others are compared with.
        others: The values of the others.
        metric: The metric; it says which direction is better.

    Returns:
        For each of the others the comparison (other - base), with an interval that is simultaneous over all of them,
        and its p-value after Holm's correction. Both are None for a method that is equal on every fold; the p-value
        alone is None where the difference is the same on every fold, because its variance is then not known.

    Example:
        >>> from metricfit.metrics import get_metric
        >>> base, one, two = [0.5, 0.52, 0.48], [0.61, 0.61, 0.60], [0.5, 0.53, 0.47]
        >>> [round(p, 3) for _, p in compare_with(base, [one, two], get_metric("f1"))]
        [0.033, 1.0]
    """
    found = [beside(values, base, metric, comparisons=len(others)) for values in others]
    known = [None if each is None or is_constant(each) else each.p_value for each in found]
    corrected = stats.holm([1.0 if p is None else p for p in known])
    pairs = zip(found, known, corrected, strict=True)
    return [(each, None if p is None else after) for each, p, after in pairs]


def beside(
    values: Sequence[float], base: Sequence[float], metric: Metric, comparisons: int = 1
) -> stats.SplitComparison | None:
    """Compare two methods on the folds of one cross-validation; None where they are equal on every fold.

    ``comparisons`` is the number of comparisons made together: the level of the interval is raised for it, from 95 %
    to 100 % - 5 % / comparisons (Bonferroni).

    >>> from metricfit.metrics import get_metric
    >>> beside([0.8, 0.7, 0.9], [0.7, 0.7, 0.8], get_metric("f1")).wins
    2
    """
    if list(values) == list(base):
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the values differ by .* on every split")  # the verdict says so in its words
        return stats.compare_splits(
            values,
            base,
            test_fraction=1 / len(values),
            rope=TIE,
            minimize=metric.minimize,
            level=1 - (1 - LEVEL) / comparisons,
        )


def is_constant(comparison: stats.SplitComparison) -> bool:
    """Whether the difference is the same on every fold, so that its interval has no width."""
    return comparison.interval.low == comparison.interval.high
