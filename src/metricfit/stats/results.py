"""What the results of this layer share: an interval, and a short way of printing themselves."""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any, NamedTuple

from metricfit.errors import InvalidValueError


class Interval(NamedTuple):
    """The two ends of an interval.

    >>> Interval(0.25, 0.5)
    (0.25, 0.5)
    """

    low: float
    high: float

    def __repr__(self) -> str:
        return short(tuple(self))


class Readable:
    """Prints a dataclass with four significant digits; its fields keep all of them."""

    def __repr__(self) -> str:
        shown = [f"{each.name}={short(getattr(self, each.name))}" for each in fields(self) if each.repr]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


def check_level(level: float) -> None:
    """An interval's level is a share, not a percentage."""
    if not 0 < level < 1:
        hint = f"; did you mean {level / 100:g}?" if 1 < level < 100 else ""
        raise InvalidValueError(f"level must lie strictly between 0 and 1, got {level}{hint}")


def warn_of_no_variance(what: str, unreliable: str = "the interval and the p-value are") -> None:
    """For the caller's caller: an estimate without spread is a limit of the method, not certainty."""
    warnings.warn(f"{what} with an estimated variance of 0: {unreliable} not to be relied on", stacklevel=3)


def short(value: Any) -> str:
    """Four significant digits of every float in it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if type(value) is tuple:
        return f"({', '.join(map(short, value))})"
    return repr(value)
