"""Checks of numbers that users pass as parameters."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.metric_parameters import as_float


def check_whole(name: str, value: Any, minimum: int, description: str) -> None:
    """Raise an error that names the parameter, unless the value is a whole number of at least a minimum.

    >>> check_whole("members", 1, 2, "folds")
    Traceback (most recent call last):
    metricfit.errors.InvalidValueError: members is a whole number of folds, at least 2; got 1
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidTypeError(f"{name} is a whole number of {description}, at least {minimum}; got {quote(value)}")
    if value < minimum:
        raise InvalidValueError(f"{name} is a whole number of {description}, at least {minimum}; got {quote(value)}")


def check_positive(name: str, value: Any, description: str) -> None:
    """Raise an error that names the parameter, unless the value is a finite number above 0."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidTypeError(f"{name} is {description}, a number above 0; got {quote(value)}")
    if not 0 < as_float(value, name) < math.inf:
        raise InvalidValueError(f"{name} is {description}, a number above 0; got {quote(value)}")
