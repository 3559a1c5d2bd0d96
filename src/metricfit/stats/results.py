"""Parts that the results of this package share: intervals, short printing, and checks."""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any, NamedTuple

from metricfit.errors import InvalidValueError


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
