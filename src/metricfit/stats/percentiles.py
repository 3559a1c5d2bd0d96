"""From the values of resamples to an interval and a p-value.

Bias-corrected (Efron 1981): with z0 the normal quantile of the share of resamples below the value on the data, the
interval runs between the quantiles Phi(2 z0 -+ z) of the resamples. z0 is 0 where the resamples lie evenly around the
value, and the percentile interval comes out. Where a threshold is chosen anew they do not: the best of a resample tends
to lie above the best of the data, as that lies above the best of the population, and twice z0 undoes both steps.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from metricfit.metrics.curves import InfeasibleError
from metricfit.stats.resampling import Floats
from metricfit.stats.results import Interval


def interval_of(values: Floats, centre: float | None, level: float) -> Interval:
    """Order statistics, the outer ones: nothing is computed between values, for thresholds can be infinite.

    Bias-corrected around ``centre``; the percentile interval without one.
    """
    if len(values) == 0:
        raise InfeasibleError("no resample gave a value; loosen the requirements, or fix the threshold")
    z0, z = _bias(values, centre), float(norm.ppf((1 + level) / 2))
    low = np.quantile(values, norm.cdf(2 * z0 - z), method="lower")
    return Interval(float(low), float(np.quantile(values, norm.cdf(2 * z0 + z), method="higher")))


def p_value_of(values: Floats, centre: float | None) -> float:
    """1 - the level whose interval ends at 0: twice the share of resamples at or beyond 0, where there is no bias."""
    twice = 2 * _bias(values, centre)
    at_most, at_least = (_quantile(int(there.sum()), len(values)) for there in (values <= 0, values >= 0))
    two_sided = 2 * float(min(norm.cdf(at_most - twice), norm.cdf(at_least + twice)))
    return min(1.0, max(two_sided, 2 / (len(values) + 1)))


def _bias(values: Floats, centre: float | None) -> float:
    if centre is None:
        return 0.0
    return _quantile(float((values < centre).sum() + (values == centre).sum() / 2), len(values))


def _quantile(count: float, of: int) -> float:
    """The normal quantile of a share; none counts as half a one, and all as all but half a one."""
    return float(norm.ppf(min(max(count, 0.5), of - 0.5) / of))
