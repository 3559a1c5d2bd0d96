"""Bootstrap intervals for the decisions of several classes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.core.counts import Counts

RESAMPLES = 1000


def resampled_counts(predicted: NDArray[np.int64], target: NDArray[np.int64], classes: int, seed: int = 0) -> Counts:
    """The counts of bootstrap resamples of decisions, stratified by the true class, ``(resamples, classes)``.

    Metrics of decisions depend on the confusion matrix alone, so resampling the rows of a class is drawing its row of
    the matrix from a multinomial distribution. Memory is O(resamples x classes), one row of the matrix at a time.

    Args:
        predicted: Numbers of the predicted classes.
        target: Numbers of the true classes.
        classes: The number of classes.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)
    tp, called = np.zeros((RESAMPLES, classes)), np.zeros((RESAMPLES, classes))
    rows = np.bincount(target, minlength=classes)
    for each in np.flatnonzero(rows):
        shares = np.bincount(predicted[target == each], minlength=classes) / rows[each]
        drawn = rng.multinomial(rows[each], shares, size=RESAMPLES)
        tp[:, each] = drawn[:, each]
        called += drawn
    fp, fn = called - tp, rows - tp
    return Counts(*map(torch.from_numpy, (tp, fp, fn, rows.sum() - tp - fp - fn)))


def percentile_interval(values: Tensor) -> tuple[float, float]:
    """The 95 % interval between the percentiles of resampled values."""
    low, high = np.quantile(values.numpy(), [0.025, 0.975])
    return float(low), float(high)
