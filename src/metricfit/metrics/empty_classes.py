"""What a class counts for in an average if its metric is 0/0: ``zero_division=``."""

from __future__ import annotations

from metricfit.core.types import ZeroDivision
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Metric

SKIP = "skip"


def check_zero_division(metric: Metric, zero_division: object) -> ZeroDivision:
    """Return a valid ``zero_division``.

    Raises:
        InvalidValueError: It is not None, 0, 1 or "skip", or the metric has no values of classes.
    """
    if zero_division is None:
        return None
    if isinstance(zero_division, bool) or zero_division not in (0, 1, SKIP):
        raise InvalidValueError(f"zero_division is 0, 1 or 'skip', got {quote(zero_division)}")
    if isinstance(metric, GroupGap):
        raise InvalidValueError(f"{metric.name} leaves out groups without samples already; leave zero_division out")
    if metric.whole_matrix and zero_division != SKIP:
        raise InvalidValueError(
            f"zero_division={zero_division!r} is the value of a class where its metric is 0/0, and {metric.name} is a "
            "metric of all decisions; use zero_division='skip' to leave out images without labelled pixels"
        )
    return "skip" if zero_division == SKIP else 1 if zero_division == 1 else 0
