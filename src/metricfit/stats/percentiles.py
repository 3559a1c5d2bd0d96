"""Intervals and p-values from the values of resamples.

Bias-corrected intervals (Efron 1981): let z0 be the normal quantile of the fraction of resamples below the value on the
data. The interval lies between the quantiles Phi(2 z0 -+ z) of the resamples. If the resamples lie evenly around the
value, z0 is 0 and the result is the percentile interval. If each resample chooses its own threshold, they do not: the
best value of a resample tends to be above the best value of the data, as that tends to be above the best value of the
population, and 2 z0 corrects both.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from metricfit.metrics.curves import InfeasibleError
from metricfit.stats.resampling import Floats
from metricfit.stats.results import Interval


def compute_interval(values: Floats, centre: float | None, level: float) -> Interval:
    """Compute the interval, bias-corrected around ``centre``, or the percentile interval without it.

    The ends are values of resamples, without interpolation, because thresholds can be infinite.
    """
    if len(values) == 0:
        raise InfeasibleError("no resample has a value; relax the requirements, or use a fixed threshold")
    z0, z = _bias(values, centre), float(norm.ppf((1 + level) / 2))
    low = np.quantile(values, norm.cdf(2 * z0 - z), method="lower")
    return Interval(float(low), float(np.quantile(values, norm.cdf(2 * z0 + z), method="higher")))


def compute_p_value(values: Floats, centre: float | None) -> float:
    """Compute 1 - the level whose interval ends at 0; without bias, twice the fraction of resamples at or beyond 0."""
    twice = 2 * _bias(values, centre)
    at_most, at_least = (_normal_quantile(int(side.sum()), len(values)) for side in (values <= 0, values >= 0))
    two_sided = 2 * float(min(norm.cdf(at_most - twice), norm.cdf(at_least + twice)))
    return min(1.0, max(two_sided, 2 / (len(values) + 1)))


def _bias(values: Floats, centre: float | None) -> float:
    if centre is None:
        return 0.0
    return _normal_quantile(float((values < centre).sum() + (values == centre).sum() / 2), len(values))


def _normal_quantile(count: float, total: int) -> float:
    """Normal quantile of count / total, with counts between 0.5 and total - 0.5 so that it is finite."""
    return float(norm.ppf(min(max(count, 0.5), total - 0.5) / total))
