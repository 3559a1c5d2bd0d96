"""Metrics of decisions with many weightings of the rows at once, and intervals from them.

The shares of a class's rows that are called each class are drawn from their posterior distribution with a prior of one
row, half of it right (Jeffreys' prior, if there are two classes). Its intervals are as wide as those of the bootstrap
where there are many errors, and do not have a width of 0 where there are none. With weights or groups rows are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs import RowCosts
from metricfit.decide.decision import REFERRED
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Metric
from metricfit.stats.resampling import resampled_counts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def weighted_values(
    metric: Metric,
    average: ScalarAverage,
    classes: int,
    y: Integers,
    decided: Integers,
    weights: Floats,
    costs: RowCosts | None = None,
) -> Floats:
    """Return the metric for each weighting of the rows.

    Args:
        metric: The metric.
        average: Its average over several classes.
        classes: Number of classes.
        y: Class numbers; of two classes, 1 is the positive one.
        decided: Decided class numbers, -1 for rows that are referred, which do not count.
        weights: Weights ``(weightings, n)``.
        costs: The costs of the rows, for a metric with costs from columns.

    Returns:
        One value per weighting.

    Example:
        >>> from metricfit import metrics
        >>> y, decided = np.array([1, 1, 0]), np.array([1, 0, 0])
        >>> weighted_values(metrics.recall, "macro", 2, y, decided, np.array([[1.0, 1, 1], [3, 1, 1]]))
        array([0.5 , 0.75])
    """
    if costs is not None:
        paid = costs.of_decisions(decided, y)
        return np.asarray(weights @ paid / weights.sum(1))
    counted = decided != REFERRED
    counts = weighted_counts(classes, y[counted], decided[counted], weights[:, counted], matrix=metric.needs_matrix)
    if classes == 2:
        counts = counts.map(lambda cell: cell[..., 1:])
    return np.asarray(averaged(metric, counts, average))


def draw_multiplicities(
    strata: Integers | None, groups: NDArray[Any] | None, rows: int, resamples: int, rng: np.random.Generator
) -> Floats:
    """Draw bootstrap resamples of rows.

    Args:
        strata: The stratum of each row; every resample has as many rows of each. None for one stratum.
        groups: The group of each row; whole groups are drawn, of the stratum that is their largest. None draws rows.
        rows: Number of rows.
        resamples: Number of resamples.
        rng: Source of random numbers.

    Returns:
        How often each row is drawn, ``(resamples, rows)``.
    """
    unit = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    units = int(unit.max()) + 1
    stratum_of_unit = np.zeros(units, dtype=np.int64)
    if strata is not None:
        np.maximum.at(stratum_of_unit, unit, strata)
    drawn = np.zeros((resamples, units))
    for stratum in np.unique(stratum_of_unit):
        members = np.flatnonzero(stratum_of_unit == stratum)
        picks = rng.integers(len(members), size=(resamples, len(members)))
        picks += len(members) * np.arange(resamples)[:, None]
        counted = np.bincount(picks.reshape(-1), minlength=resamples * len(members))
        drawn[:, members] = counted.reshape(resamples, len(members))
    return drawn[:, unit]


def weighted_counts(classes: int, y: Integers, decided: Integers, weights: Floats, *, matrix: bool = False) -> Counts:
    """Count the decisions about each class for each weighting of the rows.

    Args:
        classes: Number of classes.
        y: True class numbers.
        decided: Decided class numbers.
        weights: Weights ``(weightings, n)``.
        matrix: Whether the counts of more than two classes must hold the whole confusion matrix.

    Returns:
        Counts ``(weightings, c)``.
    """
    pairs, place = np.unique(y * classes + decided, return_inverse=True)
    sums = np.zeros((len(weights), len(pairs)))
    if len(pairs):
        order = np.argsort(place, kind="stable")
        sums = np.add.reduceat(weights[:, order], np.searchsorted(place[order], np.arange(len(pairs))), axis=1)
    truth, called = np.divmod(pairs, classes)
    if matrix and classes > 2:
        cells = np.zeros((len(weights), classes, classes))
        cells[:, truth, called] = sums
        return ConfusionMatrix(cells)
    right, total = truth == called, sums.sum(1, keepdims=True)
    tp, fp, fn = np.zeros((3, classes, len(weights)))
    np.add.at(tp, truth[right], sums[:, right].T)
    np.add.at(fp, called[~right], sums[:, ~right].T)
    np.add.at(fn, truth[~right], sums[:, ~right].T)
    tn = np.maximum(total - (tp + fp + fn).T, 0.0).T
    return Counts(*(cell.T for cell in (tp, fp, fn, tn)), exclusive=True)


DRAWS = 1000
#: With more classes the draws would take long, and rows are resampled.
MOST_CLASSES = 50
ROWS_AT_A_TIME = 2_000_000
#: Of very many rows fewer resamples are drawn, so that it takes a few seconds at most.
ROWS_IN_ALL, FEWEST_DRAWS = 20_000_000, 50

Pair = tuple[float, float]


def class_intervals(
    predicted: NDArray[np.int64],
    target: NDArray[np.int64],
    classes: int,
    several: Sequence[Metric],
    weight: NDArray[np.float64] | None = None,
    groups: NDArray[Any] | None = None,
) -> list[list[Pair | None]]:
    """Compute 95 % intervals of metrics of each class.

    Args:
        predicted: Predicted class numbers.
        target: True class numbers.
        classes: Number of classes.
        several: Metrics that have a value for each class.
        weight: One weight per row, or None.
        groups: One group per row, or None; whole groups are drawn.

    Returns:
        For each metric the interval of each class; None for classes without a row.

    Example:
        >>> from metricfit.metrics import recall
        >>> none_wrong = np.repeat([0, 1], 10)
        >>> low, high = class_intervals(none_wrong, none_wrong, 2, [recall])[0][1]
        >>> round(low, 1), high
        (0.8, 1.0)
    """
    counts = drawn_counts(predicted, target, classes, weight, groups)
    present = np.bincount(target, minlength=classes) > 0
    ones = np.ones((1, len(target))) if weight is None else weight[None]
    exact = weighted_counts(classes, target, predicted, ones)
    found = []
    for metric in several:
        low, high = np.quantile(metric(counts), [0.025, 0.975], axis=0)
        value = metric(exact)[0]
        ends = zip(np.minimum(low, value).tolist(), np.maximum(high, value).tolist(), present, strict=True)
        found.append([(start, end) if there else None for start, end, there in ends])
    return found


def drawn_counts(
    predicted: NDArray[np.int64],
    target: NDArray[np.int64],
    classes: int,
    weight: NDArray[np.float64] | None = None,
    groups: NDArray[Any] | None = None,
    *,
    matrix: bool = False,
    fixed_classes: bool = True,
) -> Counts:
    """Draw counts of decisions as they could be on other rows of the same kind.

    Args:
        predicted: Predicted class numbers.
        target: True class numbers.
        classes: Number of classes.
        weight: One weight per row, or None.
        groups: One group per row, or None; whole groups are drawn.
        matrix: Whether the counts must hold the whole confusion matrix.
        fixed_classes: Whether every draw has as many rows of each class. With more than 50 classes they always vary.

    Returns:
        Counts ``(draws, classes)``.
    """
    if weight is not None or groups is not None:
        strata = target if fixed_classes else None
        return _resampled(predicted, target, classes, weight, groups, strata, matrix=matrix)
    if classes > MOST_CLASSES:
        return resampled_counts(predicted, target, classes, matrix=matrix)
    return _posterior(predicted, target, classes, fixed_classes)


def _posterior(predicted: NDArray[np.int64], target: NDArray[np.int64], classes: int, fixed_classes: bool) -> Counts:
    rows = np.bincount(target * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    prior = np.full((classes, classes), 0.5 / (classes - 1))
    np.fill_diagonal(prior, 0.5)
    drawn = np.random.default_rng(0).gamma(rows + prior, size=(DRAWS, classes, classes))
    shares = drawn / drawn.sum(2, keepdims=True)
    of_class = rows.sum(1)
    if not fixed_classes:
        sizes = drawn.sum(2) * (of_class > 0)
        of_class = len(target) * sizes / sizes.sum(1, keepdims=True)
    return ConfusionMatrix(shares * of_class[..., None])


def _resampled(
    predicted: NDArray[np.int64],
    target: NDArray[np.int64],
    classes: int,
    weight: NDArray[np.float64] | None,
    groups: NDArray[Any] | None,
    strata: NDArray[np.int64] | None,
    *,
    matrix: bool,
) -> Counts:
    rng, rows = np.random.default_rng(0), len(target)
    draws = max(FEWEST_DRAWS, min(DRAWS, ROWS_IN_ALL // rows))
    size = max(1, min(draws, ROWS_AT_A_TIME // rows))
    parts = []
    for first in range(0, draws, size):
        drawn = draw_multiplicities(strata, groups, rows, min(size, draws - first), rng)
        weights = drawn if weight is None else drawn * weight
        parts.append(weighted_counts(classes, target, predicted, weights, matrix=matrix))
    return parts[0].with_tensors(np.concatenate(cells) for cells in zip(*(part.tensors for part in parts), strict=True))
