"""Parameters of metrics: which values are allowed, and how they are written; and the summary of a docstring."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Real

from metricfit.core.arrays import Array, is_tensor, namespace
from metricfit.core.numerics import numbers_like, value_of
from metricfit.errors import InvalidTypeError, InvalidValueError, quote

#: One number, or one number per class.
Parameter = float | tuple[float, ...]
#: A square matrix with one row and one column per class.
Square = tuple[tuple[float, ...], ...]

#: The largest parameter of a metric of this library, so that its products with counts are finite in float32.
LARGEST_PARAMETER = 1e20


def check_parameters(metric: str, values: Mapping[str, object], *, user_defined: bool) -> dict[str, Parameter]:
    """Convert the parameters of a metric to floats, or to tuples with one float per class.

    Args:
        metric: The name of the metric, for messages and because ``fbeta(beta=inf)`` is recall.
        values: For each parameter a number, or a list or tuple of numbers.
        user_defined: Whether the metric is a user's. Its parameters can be negative.

    Raises:
        InvalidTypeError: A value is something else.
        InvalidValueError: A number is out of range, or a list is empty.
    """
    return {key: _check_parameter(metric, key, value, user_defined) for key, value in values.items()}


def _check_parameter(metric: str, key: str, value: object, user_defined: bool) -> Parameter:
    if not isinstance(value, (list, tuple)):
        return _check_number(metric, key, value, user_defined)
    if not value:
        raise InvalidValueError(f"{metric}: {key} has no values")
    return tuple(_check_number(metric, key, number, user_defined) for number in value)


def _check_number(metric: str, key: str, value: object, user_defined: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidTypeError(f"{metric}: {key} must be a number or a list of them, got {quote(value)}")
    number = as_float(value, f"{metric}: {key}")
    largest = math.inf if metric == "fbeta" else LARGEST_PARAMETER
    if math.isfinite(number) if user_defined else 0 <= number <= largest:
        return number
    positive = "at least 0" + (f" and at most {largest:g}" if largest < math.inf else "")
    raise InvalidValueError(f"{metric}: {key} must be {'finite' if user_defined else positive}, got {value}")


def check_square(metric: str, key: str, value: object) -> Square:
    """Convert a square matrix to tuples of floats.

    Args:
        metric: The name of the metric, for messages.
        key: Name of the parameter.
        value: A list of lists, an array, a tensor or a DataFrame, of at least two rows; the numbers can be negative.

    Raises:
        InvalidTypeError: The value is something else.
        InvalidValueError: The matrix is not square, or a number is not finite or too large.
    """
    table = value.to_numpy() if hasattr(value, "to_numpy") else value
    rows = table.tolist() if hasattr(table, "tolist") else table
    if not isinstance(rows, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in rows):
        raise InvalidTypeError(
            f"{metric}: {key} must be a matrix, one row per true class, such as [[0, 1], [10, 0]]; got {quote(value)}"
        )
    if len(rows) < 2 or any(len(row) != len(rows) for row in rows):
        lengths = ", ".join(str(len(row)) for row in rows[:10])
        raise InvalidValueError(
            f"{metric}: {key} must be square, one row and one column per class; got {len(rows)} rows, of length "
            f"{lengths or 0}"
        )
    for number in (number for row in rows for number in row):
        if isinstance(number, bool) or not isinstance(number, Real):
            raise InvalidTypeError(f"{metric}: {key} must be a matrix of numbers, and has the entry {quote(number)}")
    square = tuple(tuple(_check_number(metric, key, number, True) for number in row) for row in rows)
    largest = max(abs(number) for row in square for number in row)
    if largest > LARGEST_PARAMETER:
        raise InvalidValueError(f"{metric}: {key} must be at most {LARGEST_PARAMETER:g} in size, got {largest:g}")
    return square


def expand_parameter(metric: object, key: str, value: Parameter, cell: Array) -> float | Array:
    """Make an array of a parameter with one number per class; a single number is returned as it is.

    Args:
        metric: The metric, for the message.
        key: Name of the parameter.
        value: The parameter.
        cell: One of the counts, ``(..., c)``, for shape, type and device.

    Raises:
        InvalidValueError: The number of values is not the number of classes.
    """
    if not isinstance(value, tuple):
        return value
    cell = value_of(cell)
    classes = cell.shape[-1] if getattr(cell, "shape", ()) else 1
    if len(value) != classes:
        raise InvalidValueError(f"{metric!r} has {len(value)} values of {key}, the counts have {classes} classes")
    if is_tensor(cell) and cell.is_floating_point():
        largest = namespace(cell).finfo(cell.dtype).max
        value = tuple(min(number, largest) for number in value)
    return numbers_like(value, cell)


def format_parameter(value: Parameter | Square | str) -> str:
    """Write a parameter as it is read back."""
    if isinstance(value, str):
        return repr(value)
    return "[" + ", ".join(map(format_parameter, value)) + "]" if isinstance(value, tuple) else format_number(value)


def format_number(number: float) -> str:
    """Write a number as it is read back; 2 and 2.0 are written alike, because they are one number."""
    return repr(int(number)) if abs(number) < 1e15 and number == int(number) else repr(number)


def first_paragraph(documentation: str | None) -> str:
    """Return the first paragraph of a docstring in one line."""
    return " ".join(inspect.cleandoc(documentation or "").split("\n\n")[0].split())


def as_float(value: Real | float, what: str) -> float:
    """Convert a number to a float.

    Args:
        value: A number of any type.
        what: What the number is, for the message.

    Raises:
        InvalidValueError: The number is an integer larger than any float.
    """
    try:
        return float(value)
    except OverflowError:
        raise InvalidValueError(
            f"{what} is {quote(value)}, too large for a float; write a number of at most 1.8e308 in size"
        ) from None
