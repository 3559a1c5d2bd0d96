"""Parts that the results of this package share: intervals, short printing, and checks."""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from metricfit.errors import InvalidValueError
from metricfit.metrics.curves import InfeasibleError
from metricfit.stats.resampling import Floats


class Interval(NamedTuple):
    """The two ends of an interval.

    Args:
        low: The lower end.
        high: The upper end.

    Example:
        >>> Interval(0.25, 0.5)
        (0.25, 0.5)
    """

    low: float
    high: float

    def __repr__(self) -> str:
        return shorten_numbers(tuple(self))


class Readable:
    """A dataclass that is printed with four significant digits; its fields keep all digits."""

    def __repr__(self) -> str:
        shown = [f"{entry.name}={shorten_numbers(getattr(self, entry.name))}" for entry in fields(self) if entry.repr]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


def check_level(level: float) -> None:
    """Check that the level of an interval is a fraction, not a percentage."""
    if not 0 < level < 1:
        hint = f"; did you mean {level / 100:g}?" if 1 < level < 100 else ""
        raise InvalidValueError(f"level must lie strictly between 0 and 1, got {level}{hint}")


def warn_of_no_variance(finding: str, unreliable: str = "the interval and the p-value are") -> None:
    """Warn that an estimate has no spread, which is a limit of the method and not certainty."""
    warnings.warn(f"{finding} with an estimated variance of 0: {unreliable} not reliable", stacklevel=3)


def shorten_numbers(value: Any) -> str:
    """Write a value with four significant digits for every float in it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if type(value) is tuple:
        return f"({', '.join(map(shorten_numbers, value))})"
    return repr(value)


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
