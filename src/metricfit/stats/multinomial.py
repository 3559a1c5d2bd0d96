"""Bootstrap resamples of the decisions among several classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, to_numpy
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts

RESAMPLES = 1000


def resampled_counts(
    predicted: NDArray[np.int64], target: NDArray[np.int64], classes: int, seed: int = 0, *, matrix: bool = False
) -> Counts:
    """Draw bootstrap resamples of decisions.

    Metrics of decisions depend on the confusion matrix alone, so resampling the rows is drawing the matrix from a
    multinomial distribution: first the number of rows of each class, then its row of the matrix. Memory is
    O(resamples x classes), one row of the matrix at a time; with ``matrix`` it is O(resamples x classes x classes).

    Args:
        predicted: Numbers of the predicted classes.
        target: Numbers of the true classes.
        classes: The number of classes.
        seed: Seed of the draws.
        matrix: Whether the counts must hold the whole confusion matrix.

    Returns:
        The counts of the resamples, of shape ``(resamples, classes)``.
    """
    rng = np.random.default_rng(seed)
    tp, called = np.zeros((RESAMPLES, classes)), np.zeros((RESAMPLES, classes))
    matrices = np.zeros((RESAMPLES, classes, classes) if matrix else 0)
    of_class = np.bincount(target, minlength=classes)
    rows = rng.multinomial(len(target), of_class / len(target), size=RESAMPLES)
    for label in np.flatnonzero(of_class):
        shares = np.bincount(predicted[target == label], minlength=classes) / of_class[label]
        drawn = rng.multinomial(rows[:, label], shares)
        tp[:, label] = drawn[:, label]
        called += drawn
        if matrix:
            matrices[:, label] = drawn
    if matrix:
        return ConfusionMatrix(matrices)
    fp, fn = called - tp, rows - tp
    return Counts(tp, fp, fn, len(target) - tp - fp - fn)


def percentile_interval(values: Array) -> tuple[float, float]:
    """Return the 95 % percentile interval of resampled values."""
    low, high = np.quantile(to_numpy(values), [0.025, 0.975])
    return float(low), float(high)
