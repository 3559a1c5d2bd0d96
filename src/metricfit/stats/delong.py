"""Interval of the AUROC, and the test of two models on the same samples (DeLong et al. 1988), in O(n log n).

The placement of a positive is the fraction of negatives with a lower score (ties count half); the placement of a
negative is the fraction of positives with a higher score. The mean of either is the AUROC. Its variance is the variance
of the positives' placements divided by their number, plus the same for the negatives. With m positives X, n negatives Y
and mid-ranks R (Sun & Xu 2014),

    n placement(x) = R_all(x) - R_X(x),    m placement(y) = m - (R_all(y) - R_Y(y)),

so three sorts replace m n comparisons. Twice a mid-rank is an integer, so sums of them are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, rankdata

from metricfit.core.arrays import Array, to_numpy
from metricfit.errors import InvalidValueError
from metricfit.metrics.sweep import checked
from metricfit.stats.results import Interval, Readable, check_level, warn_of_no_variance

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class DeLongInterval(Readable):
    """An AUROC with its interval and standard error.

    Attributes:
        value: The AUROC.
        interval: Interval of the AUROC.
        level: Level of the interval.
        standard_error: Standard error of the AUROC.

    Example:
        >>> delong_interval([0.9, 0.8, 0.4, 0.6, 0.3, 0.1], [1, 1, 1, 0, 0, 0]).interval
        (0.5809, 1)
    """

    value: float
    interval: Interval
    level: float
    standard_error: float


@dataclass(frozen=True, repr=False)
class DeLongTest(Readable):
    """Two AUROCs on the same samples, and the two-sided test that they are equal.

    Attributes:
        auroc_a: AUROC of model a.
        auroc_b: AUROC of model b.
        difference: ``auroc_a - auroc_b``.
        interval: Interval of the difference.
        level: Level of the interval.
        statistic: The difference divided by its standard error.
        p_value: Two-sided p-value.

    Example:
        >>> target = [1, 1, 1, 1, 0, 0, 0, 0]
        >>> delong_test([8, 7, 6, 3, 5, 4, 2, 1], [8, 3, 6, 2, 5, 7, 4, 1], target).auroc_a
        0.875
    """

    auroc_a: float
    auroc_b: float
    difference: float
    interval: Interval
    level: float
    statistic: float
    p_value: float


def delong_interval(scores: Array, target: Array, *, level: float = 0.95) -> DeLongInterval:
    """Compute the AUROC of one model with its normal interval, limited to 0 and 1.

    The result equals ``ci.auc(method = "delong")`` of the R package pROC. If the AUROC is 0 or 1, the estimated
    variance is 0 and the interval has no width. This is a limit of the method, not certainty, and a warning says so.

    Args:
        scores: Scores of the samples.
        target: Labels 0 and 1, with at least two positives and two negatives.
        level: Level of the interval.

    Returns:
        The AUROC, its interval and its standard error.

    Raises:
        ValueError: There are fewer than two positives or negatives, or an argument is not valid.
        TypeError: An argument has the wrong type.

    Example:
        >>> delong_interval([0.9, 0.8, 0.4, 0.6, 0.3, 0.1], [1, 1, 1, 0, 0, 0])
        DeLongInterval(value=0.8889, interval=(0.5809, 1), level=0.95, standard_error=0.1571)
    """
    check_level(level)
    of_positives, of_negatives = _doubled_placements(*_split(scores, target))
    value, error = _mean_and_error(of_positives, of_negatives)
    if error == 0:
        warn_of_no_variance(f"the AUROC is {value:g}")
    half_width = float(norm.isf((1 - level) / 2)) * error
    return DeLongInterval(value, Interval(max(0.0, value - half_width), min(1.0, value + half_width)), level, error)


def delong_test(a: Array, b: Array, target: Array, *, level: float = 0.95) -> DeLongTest:
    """Test whether the AUROCs of two models differ on the same samples (DeLong et al. 1988).

    ``z = (A - B) / sqrt(var(A - B))`` is compared with the normal distribution. The samples must be independent, and
    neither model may have been trained or chosen on them. Two models with the same ranking have the difference 0 and
    the p-value 1.

    Args:
        a: Scores of the first model.
        b: Scores of the second model.
        target: Labels 0 and 1, with at least two positives and two negatives.
        level: Level of the interval of the difference.

    Returns:
        The two AUROCs, their difference with its interval, and the two-sided p-value.

    Raises:
        ValueError: There are fewer than two positives or negatives, or an argument is not valid.
        TypeError: An argument has the wrong type.

    Example:
        >>> target = [1, 1, 1, 1, 0, 0, 0, 0]
        >>> round(delong_test([8, 7, 6, 3, 5, 4, 2, 1], [8, 3, 6, 2, 5, 7, 4, 1], target).p_value, 4)
        0.1138
    """
    check_level(level)
    (a_positives, a_negatives), (b_positives, b_negatives) = (
        _doubled_placements(*_split(scores, target, name)) for scores, name in ((a, "a: "), (b, "b: "))
    )
    # Computed from the differences, so that models with the same ranking have a variance of exactly 0.
    difference, error = _mean_and_error(a_positives - b_positives, a_negatives - b_negatives)
    if error > 0:
        statistic = difference / error
    elif difference == 0:
        statistic = 0.0
    else:
        warn_of_no_variance(f"the AUROCs differ by {difference:g}")
        statistic = math.copysign(math.inf, difference)
    half_width = float(norm.isf((1 - level) / 2)) * error
    return DeLongTest(
        auroc_a=_mean_and_error(a_positives, a_negatives)[0],
        auroc_b=_mean_and_error(b_positives, b_negatives)[0],
        difference=difference,
        interval=Interval(difference - half_width, difference + half_width),
        level=level,
        statistic=statistic,
        p_value=float(2 * norm.sf(abs(statistic))),
    )


def _split(scores: Array, target: Array, name: str = "") -> tuple[Floats, Floats]:
    """Return the scores of the positives and of the negatives."""
    try:
        valid_scores, y, _ = checked(scores, target, None)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}{error}") from None
    s, positive = to_numpy(valid_scores, np.float64), to_numpy(y) == 1
    if positive.sum() < 2 or (~positive).sum() < 2:
        raise InvalidValueError(
            f"DeLong's variance needs at least 2 positives and 2 negatives, but target holds {positive.sum()} and "
            f"{(~positive).sum()}"
        )
    return s[positive], s[~positive]


def _doubled_placements(positives: Floats, negatives: Floats) -> tuple[Floats, Floats]:
    """Compute 2 n and 2 m times the placements of the positives and negatives: integers, in float64."""
    m = len(positives)
    ranks = rankdata(np.concatenate([positives, negatives]))
    return 2 * (ranks[:m] - rankdata(positives)), 2 * (m - (ranks[m:] - rankdata(negatives)))


def _mean_and_error(of_positives: Floats, of_negatives: Floats) -> tuple[float, float]:
    """Compute the mean placement (or difference of placements) and its standard error."""
    m, n = len(of_positives), len(of_negatives)
    variance = of_positives.var(ddof=1) / m / (2 * n) ** 2 + of_negatives.var(ddof=1) / n / (2 * m) ** 2
    return float(of_positives.sum() / (2 * m * n)), math.sqrt(variance)
