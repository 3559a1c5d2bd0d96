r"""AUROC and average precision of a model's scores, with intervals that do not need resampling.

The interval of the AUROC is DeLong's. That of an average precision A with m positives is normal on the logit scale,
with the standard error :math:`1 / \sqrt{m A (1 - A)}` (Boyd, Eng and Page 2013). Where either is 1, these intervals
have no width, and the lower end is Wilson's with m trials, m / (m + z^2).
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from metricfit.metrics import curves
from metricfit.stats.delong import delong_interval

Pair = tuple[float, float]
#: More rows are sampled: sorting them takes gigabytes, and changes nothing that the interval would show.
MOST_ROWS = 2_000_000
Z = float(norm.isf(0.025))


class Measured(NamedTuple):
    """A value with its 95 % interval; None where the rows do not say.

    Attributes:
        value: The value.
        interval: Its interval.
    """

    value: float | None
    interval: Pair | None


def ranked_rows(rows: int) -> int:
    """Return how many of this many rows are ranked: all of them, or the size of the sample."""
    return min(rows, MOST_ROWS)


def ranking_values(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, Measured]:
    """Measure how well scores rank positives above negatives.

    Args:
        scores: One score per row.
        labels: 1 for positives, 0 for negatives.

    Returns:
        "auroc" and "average_precision" with their intervals; without values if one class has no row.

    Example:
        >>> found = ranking_values(np.array([0.9, 0.8, 0.4, 0.6, 0.3, 0.1]), np.array([1, 1, 1, 0, 0, 0]))
        >>> round(found["auroc"].value, 3), round(found["average_precision"].value, 3)
        (0.889, 0.917)
    """
    if len(scores) > MOST_ROWS:
        chosen = np.random.default_rng(0).choice(len(scores), MOST_ROWS, replace=False)
        scores, labels = scores[chosen], labels[chosen]
    positives = int(labels.sum())
    rarer = min(positives, len(labels) - positives)
    if rarer == 0:
        return dict.fromkeys(("auroc", "average_precision"), Measured(None, None))
    auroc = float(curves.auroc(scores, labels))
    precision = float(curves.average_precision(scores, labels))
    return {
        "auroc": Measured(auroc, _auroc_interval(scores, labels, auroc, rarer)),
        "average_precision": Measured(precision, average_precision_interval(precision, positives)),
    }


def average_precision_interval(value: float, positives: int) -> Pair:
    """Compute the 95 % interval of an average precision.

    Args:
        value: The average precision.
        positives: Number of positives.

    Returns:
        The interval.

    Example:
        >>> low, high = average_precision_interval(0.8, 100)
        >>> round(low, 3), round(high, 3)
        (0.71, 0.867)
    """
    if value <= 0 or value >= 1:
        return _extreme(value, positives)
    centre, half = logit(value), Z / math.sqrt(positives * value * (1 - value))
    return float(expit(centre - half)), float(expit(centre + half))


def _auroc_interval(scores: NDArray[np.float64], labels: NDArray[np.int64], value: float, rarer: int) -> Pair | None:
    if rarer < 2:
        return None
    if value <= 0 or value >= 1:
        return _extreme(value, rarer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of no variance, which happens at 0 and 1 only
        low, high = delong_interval(scores, labels).interval
    return float(low), float(high)


def _extreme(value: float, trials: int) -> Pair:
    width = Z * Z / (trials + Z * Z)
    return (1 - width, 1.0) if value >= 1 else (0.0, width)
