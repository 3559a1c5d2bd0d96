"""The value of a metric for decisions about rows, with many weightings of the rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs.row_costs import RowCosts
from metricfit.decide.refer.refer_label import REFERRED
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Metric

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
        paid = costs.of_decisions(torch.from_numpy(decided), torch.from_numpy(y)).numpy()
        return np.asarray(weights @ paid / weights.sum(1))
    counted = decided != REFERRED
    counts = weighted_counts(classes, y[counted], decided[counted], weights[:, counted], matrix=metric.needs_matrix)
    if classes == 2:
        counts = counts.map(lambda cell: cell[..., 1:])
    return np.asarray(averaged(metric, counts, average).numpy())


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
        return ConfusionMatrix(torch.from_numpy(cells))
    right, total = truth == called, sums.sum(1, keepdims=True)
    tp, fp, fn = np.zeros((3, classes, len(weights)))
    np.add.at(tp, truth[right], sums[:, right].T)
    np.add.at(fp, called[~right], sums[:, ~right].T)
    np.add.at(fn, truth[~right], sums[:, ~right].T)
    tn = np.maximum(total - (tp + fp + fn).T, 0.0).T
    return Counts(*(torch.from_numpy(cell.T.copy()) for cell in (tp, fp, fn, tn)), exclusive=True)
