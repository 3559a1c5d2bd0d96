"""The rows of a comparison: values by fold, means with intervals, and differences to the reference method.

All methods are compared with one reference on the same folds, which makes several tests. Their p-values are corrected
by Holm's method, and the intervals of the differences are simultaneous (Bonferroni).
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

from metricfit import stats
from metricfit.metrics import Metric
from metricfit.tabular.compare.baselines import BASELINES
from metricfit.tabular.compare.comparison_row import ComparisonRow
from metricfit.tabular.compare.judging import FoldResult
from metricfit.tabular.compare.methods import REFERENCE

TIE = 0.01
LEVEL = 0.95
#: Values that differ by less are equal: the expected MCC of decisions at random is 0, computed as about 1e-17.
ROUNDING = 1e-12


def standings(
    results: Mapping[str, Sequence[FoldResult]], metric: Metric, *, required: bool = False
) -> list[ComparisonRow]:
    """Make the rows of a comparison from the results of its folds.

    Decisions without a model are shown without tests: nobody asks whether they differ from the reference, and every
    test makes the correction of the others stricter.

    Args:
        results: For each row, the results of its folds.
        metric: The metric that the methods are judged by.
        required: Whether there are requirements.

    Returns:
        One row per method, best mean first; methods that could not meet the requirements on the training rows of some
        fold come last.
    """
    values = {name: [result.value for result in by_fold] for name, by_fold in results.items()}
    tested = {name: by_fold for name, by_fold in values.items() if name not in {REFERENCE, *BASELINES}}
    versus = dict(zip(tested, compare_with(values[REFERENCE], list(tested.values()), metric), strict=True))
    rows = []
    for name, by_fold in results.items():
        comparison, p_value = versus.get(name, (None, None))
        rows.append(
            ComparisonRow(
                name,
                mean=statistics.fmean(values[name]),
                interval=interval_of_mean(values[name], metric),
                difference=None if comparison is None else comparison.difference,
                difference_interval=None if comparison is None or is_constant(comparison) else comparison.interval,
                p_value=p_value,
                seconds=None if name in BASELINES else sum(result.seconds for result in by_fold),
                held=sum(result.held for result in by_fold) if required else None,
                values=tuple(values[name]),
                not_reachable=tuple(result.not_reachable for result in by_fold if result.not_reachable is not None),
            )
        )
    return sorted(rows, key=lambda row: (bool(row.not_reachable), row.mean if metric.minimize else -row.mean))


def interval_of_mean(values: Sequence[float], metric: Metric) -> stats.Interval | None:
    """The 95 % interval of the mean over the folds of a cross-validation, one value per fold.

    The folds' training rows overlap, so Student's interval of the mean would be far too short: the variance is that of
    Nadeau & Bengio (2003), with as many folds as values. The interval is cut at the metric's bounds, which the mean
    cannot pass. It is None where all values are equal, except for rounding.

    >>> from metricfit.metrics import get_metric
    >>> interval_of_mean([0.70, 0.74, 0.69, 0.72, 0.75], get_metric("f1"))
    (0.6725, 0.7675)
    """
    if max(values) - min(values) <= ROUNDING:
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
        >>> base, first, second = [0.5, 0.52, 0.48], [0.61, 0.61, 0.60], [0.5, 0.53, 0.47]
        >>> [round(p, 3) for _, p in compare_with(base, [first, second], get_metric("f1"))]
        [0.033, 1.0]
    """
    comparisons = [compare_two(values, base, metric, comparisons=len(others)) for values in others]
    p_values = [
        None if comparison is None or is_constant(comparison) else comparison.p_value for comparison in comparisons
    ]
    corrected = stats.holm([1.0 if p is None else p for p in p_values])
    triples = zip(comparisons, p_values, corrected, strict=True)
    return [(comparison, None if p is None else corrected_p) for comparison, p, corrected_p in triples]


def compare_two(
    values: Sequence[float], base: Sequence[float], metric: Metric, comparisons: int = 1
) -> stats.SplitComparison | None:
    """Compare two methods on the folds of one cross-validation; None where they are equal on every fold.

    ``comparisons`` is the number of comparisons made together: the level of the interval is raised for it, from 95 %
    to 100 % - 5 % / comparisons (Bonferroni). With few folds it can be wider than the metric allows, so it is cut where
    no difference of two values can lie: at -1 and 1 for f1.

    >>> from metricfit.metrics import get_metric
    >>> compare_two([0.8, 0.7, 0.9], [0.7, 0.7, 0.8], get_metric("f1")).wins
    2
    """
    if list(values) == list(base):
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the values differ by .* on every split")  # the verdict reports it
        comparison = stats.compare_splits(
            values,
            base,
            test_fraction=1 / len(values),
            rope=TIE,
            minimize=metric.minimize,
            level=1 - (1 - LEVEL) / comparisons,
        )
    lowest, highest = metric.bounds
    span = highest - lowest
    low, high = comparison.interval
    return replace(comparison, interval=stats.Interval(max(low, -span), min(high, span)))


def is_constant(comparison: stats.SplitComparison) -> bool:
    """Whether the difference is the same on every fold, so that its interval has no width."""
    return comparison.interval.low == comparison.interval.high
