"""Arithmetic that stays finite, in value and in gradient, on every kind of number that a formula is evaluated on.

A formula over counts uses operators and the functions of this module: ``ratio``, ``share``, ``root``, ``where``,
``minimum``, ``maximum``, ``clip`` and ``constant``. They take torch tensors, NumPy arrays, numbers, and dual numbers.

A dual number (``Dual``) is a number with its derivatives by the four counts. One evaluation of a formula on four dual
numbers gives the value and the derivatives of a batch's loss, in microseconds and without a graph of small tensors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from metricfit.core.arrays import is_tensor

#: What a difference of sums that should be 0 can be because of rounding, as a share of the sums.
ROUNDING = 1e-12
#: The largest finite number of float64.
LARGEST = sys.float_info.max


#: The amount below which a denominator counts as 0: 8e-247 in float64, 5e-31 in float32.
#:
#: The gradient of a division is of the order of 1/denominator, and is multiplied by slopes and weights before the small
#: factors reach it that make the result moderate. Where 1/denominator is near the largest number of the type, it
#: becomes infinite on the way, and then infinity times 0, which is NaN: one class predicted with a mass of 1e-42 would
#: spoil the gradient of the whole batch.
LEAST, LEAST_FLOAT32 = sys.float_info.min**0.8, float(np.finfo(np.float32).tiny) ** 0.8

#: The derivatives of a dual number by tp, fp, fn and tn.
Slopes = tuple[Any, Any, Any, Any]
#: A number of any kind: a tensor, an array, a number or a dual number.
Number = Any


class Dual:
    """A number with its derivatives by tp, fp, fn and tn; with several classes, arrays with one number per class.

    Of an array, the number of a class depends on the counts of this class alone. ``sum`` adds the classes: the result
    is one number, whose derivatives are arrays with one number per class. The two mix as in ``array / array.sum()``
    only where the first is a constant.

    Args:
        value: The number, or one per class.
        slopes: The four derivatives.
    """

    __slots__ = ("slopes", "value")
    #: NumPy's arrays leave operations with dual numbers to this class.
    __array_ufunc__ = None

    def __init__(self, value: Any, slopes: Slopes) -> None:
        self.value, self.slopes = value, slopes

    def _scaled(self, value: Any, factor: Any) -> Dual:
        a, b, c, d = self.slopes
        if type(factor) is np.ndarray:
            return Dual(value, _combine(self.slopes, factor, NO_SLOPES, 0.0))
        return Dual(value, (a * factor, b * factor, c * factor, d * factor))

    def __add__(self, other: Any) -> Dual:
        if type(other) is not Dual:
            return Dual(self.value + _plain(other), self.slopes)
        (a, b, c, d), (e, f, g, h) = self.slopes, other.slopes
        return Dual(self.value + other.value, (a + e, b + f, c + g, d + h))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dual:
        if type(other) is not Dual:
            return Dual(self.value - _plain(other), self.slopes)
        (a, b, c, d), (e, f, g, h) = self.slopes, other.slopes
        return Dual(self.value - other.value, (a - e, b - f, c - g, d - h))

    def __rsub__(self, other: Any) -> Dual:
        a, b, c, d = self.slopes
        return Dual(_plain(other) - self.value, (-a, -b, -c, -d))

    def __mul__(self, other: Any) -> Dual:
        if type(other) is not Dual:
            factor = _plain(other)
            return self._scaled(self.value * factor, factor)
        return Dual(self.value * other.value, _combine(self.slopes, other.value, other.slopes, self.value))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        if type(other) is not Dual:
            other = Dual(_plain(other), NO_SLOPES)
        value, inverse = _quotient(self.value, other.value), _quotient(1.0, other.value)
        return Dual(value, _combine(self.slopes, inverse, other.slopes, -value * inverse))

    def __rtruediv__(self, other: Any) -> Dual:
        return Dual(_plain(other), NO_SLOPES) / self

    def __pow__(self, exponent: float) -> Dual:
        power = _plain(exponent)
        if power == 0:
            return self._scaled(self.value**power, 0.0)
        return self._scaled(self.value**power, power * self.value ** (power - 1))

    def __neg__(self) -> Dual:
        return self._scaled(-self.value, -1.0)

    def __pos__(self) -> Dual:
        return self

    def __abs__(self) -> Dual:
        return self._scaled(abs(self.value), np.sign(self.value))

    def __lt__(self, other: Any) -> Any:
        return self.value < value_of(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= value_of(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > value_of(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= value_of(other)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return self.value == value_of(other)

    def __ne__(self, other: object) -> Any:
        return self.value != value_of(other)

    def __getitem__(self, place: Any) -> Dual:
        """Return the number of one class, ``x[..., k]``, whose derivatives by the counts of other classes are 0."""
        only = np.zeros(self.value.shape)
        only[place] = 1.0
        a, b, c, d = self.slopes
        return Dual(self.value[place], (a * only, b * only, c * only, d * only))

    def sum(self, axis: int = -1) -> Dual:
        """Add the numbers of all classes."""
        classes = len(self.value)
        slopes = tuple(np.full(classes, slope) if isinstance(slope, float) else slope for slope in self.slopes)
        return Dual(float(self.value.sum(axis)), slopes)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"Dual({self.value}, {self.slopes})"


def _combine(first: Slopes, x: Any, second: Slopes, y: Any) -> Slopes:
    """Return ``first x + second y``; of arrays without the many products with 0."""
    if type(x) is np.ndarray:
        return tuple(_add_products(a, x, b, y) for a, b in zip(first, second, strict=True))
    (a, b, c, d), (e, f, g, h) = first, second
    return a * x + e * y, b * x + f * y, c * x + g * y, d * x + h * y


def _add_products(a: Any, x: Any, b: Any, y: Any) -> Any:
    if type(a) is float and not a:
        return 0.0 if type(b) is float and not b else b * y
    return a * x if type(b) is float and not b else a * x + b * y


#: What a formula raises that does not take dual numbers, because it calls functions of torch, say.
NOT_FOR_DUALS = (TypeError, AttributeError, ValueError, IndexError, ArithmeticError)
#: The derivatives of a constant.
NO_SLOPES = (0.0, 0.0, 0.0, 0.0)


def _plain(number: Any) -> Any:
    """Return a number or an array; anything else, such as a tensor, does not mix with dual numbers."""
    if isinstance(number, (int, float, np.ndarray, np.number)):
        return number
    raise TypeError(f"a dual number does not mix with {type(number).__name__}")


def _as_dual(number: Any) -> Dual:
    return number if type(number) is Dual else Dual(_plain(number), NO_SLOPES)


def value_of(number: Any) -> Any:
    """Return the value of a dual number, and any other number as it is."""
    return number.value if type(number) is Dual else number


def _quotient(x: Any, y: Any) -> Any:
    """Divide as tensors do: x/0 is infinite, and 0/0 is NaN."""
    if type(y) is float and type(x) is float:
        return x / y if y else math.nan if x == 0 or x != x else math.copysign(math.inf, x)
    with np.errstate(all="ignore"):
        return np.divide(x, y)


def ratio(numerator: Number, denominator: Number) -> Any:
    """Divide, with value 0 and gradient 0 where the denominator is 0 (or below 5e-31 in float32, 8e-247 in float64).

    Args:
        numerator: A number of any kind.
        denominator: A number that broadcasts with it.

    Returns:
        ``numerator / denominator``, or 0.

    Example:
        >>> ratio(np.array([1.0, 0.0]), np.array([4.0, 0.0]))
        array([0.25, 0.  ])
        >>> ratio(1.0, 4.0), ratio(0.0, 0.0)
        (0.25, 0.0)
    """
    if type(numerator) is Dual or type(denominator) is Dual:
        top, bottom = _as_dual(numerator), _as_dual(denominator)
        inverse = _safe_inverse(bottom.value)
        value = top.value * inverse
        return Dual(value, _combine(top.slopes, inverse, bottom.slopes, -value * inverse))
    if is_tensor(denominator):
        return _of_tensors().ratio(numerator, denominator)
    if is_tensor(numerator):
        return numerator * _safe_inverse(denominator)
    return _divide_plain(numerator, denominator)


def _of_tensors() -> ModuleType:
    from metricfit.core import tensor_numerics  # imports torch, which whoever made the tensor has imported

    return tensor_numerics


def _least(denominator: Any) -> float:
    """Return the amount below which a denominator that is no tensor counts as 0."""
    return LEAST_FLOAT32 if getattr(denominator, "dtype", None) == np.float32 else LEAST


def _safe_inverse(denominator: Any) -> Any:
    """Return 1 / denominator, and 0 where the denominator counts as 0."""
    if isinstance(denominator, float):
        return 1.0 / denominator if abs(denominator) >= LEAST else 0.0
    empty = abs(denominator) < _least(denominator)
    return np.where(empty, 0.0, 1.0 / np.where(empty, 1.0, denominator))


def _divide_plain(numerator: Any, denominator: Any) -> Any:
    if isinstance(denominator, (int, float)):
        return numerator / denominator if abs(denominator) >= LEAST else 0.0 * numerator
    empty = abs(denominator) < _least(denominator)
    if not empty.any():
        return numerator / denominator
    return np.where(empty, 0.0, numerator / np.where(empty, 1.0, denominator))


def share(part: Number, rest: Number) -> Any:
    """``part / (part + rest)`` of two amounts of at least 0, and 0 with zero gradient where both are 0.

    The gradient by ``part`` is rest / total²; a plain division forms it as 1/total - part/total², which in float32
    loses all of it where rest is small. Dividing the smaller of the two cancels nothing.

    Args:
        part: An amount of at least 0.
        rest: The rest of the total, at least 0.

    Returns:
        The share of ``part`` in the total, from 0 to 1.

    Example:
        >>> share(np.array([1.0, 3.0, 0.0]), np.array([3.0, 1.0, 0.0]))
        array([0.25, 0.75, 0.  ])
        >>> share(1.0, 3.0), share(0.0, 0.0)
        (0.25, 0.0)
    """
    if type(part) is Dual or type(rest) is Dual:
        return _share_of_duals(_as_dual(part), _as_dual(rest))
    if is_tensor(part):
        return _of_tensors().share(part, rest)
    return _divide_plain(part, part + rest)


def _share_of_duals(part: Dual, rest: Dual) -> Dual:
    inverse = _safe_inverse(part.value + rest.value)
    of_part, of_rest = part.value * inverse, rest.value * inverse
    return Dual(of_part, _combine(part.slopes, of_rest * inverse, rest.slopes, -of_part * inverse))


def root(x: Number) -> Any:
    """Take the square root, with value 0 and gradient 0, instead of an infinite one, where x counts as 0 in ``ratio``.

    Args:
        x: Numbers of at least 0.

    Returns:
        The square roots.

    Example:
        >>> root(np.array([4.0, 0.0]))
        array([2., 0.])
        >>> root(4.0)
        2.0
    """
    if is_tensor(x):
        return _of_tensors().root(x)
    number = value_of(x)
    if isinstance(number, (int, float)):
        value: Any = math.sqrt(number) if number >= LEAST else 0.0
    else:
        value = np.where(number < _least(number), 0.0, np.sqrt(np.maximum(number, 0.0)))
    return x._scaled(value, 0.5 * _safe_inverse(value)) if type(x) is Dual else value


def where(condition: Any, x: Number, y: Number) -> Any:
    """Take ``x`` where a condition holds and ``y`` elsewhere.

    Args:
        condition: A boolean, or booleans.
        x: Numbers of any kind.
        y: Numbers that broadcast with ``x``.

    Returns:
        One of the two in each place, with its gradient.

    Example:
        >>> where(np.array([True, False]), np.array([1.0, 2.0]), 0.0)
        array([1., 0.])
    """
    if is_tensor(condition):
        return sys.modules["torch"].where(condition, x, y)
    if isinstance(condition, (bool, np.bool_)):
        chosen = x if condition else y
        return _as_dual(chosen) if type(x) is Dual or type(y) is Dual else chosen
    if type(x) is Dual or type(y) is Dual:
        first, second = _as_dual(x), _as_dual(y)
        pairs = zip(first.slopes, second.slopes, strict=True)
        slopes = tuple(np.where(condition, of_x, of_y) for of_x, of_y in pairs)
        return Dual(np.where(condition, first.value, second.value), slopes)
    return np.where(condition, x, y)


def minimum(x: Number, y: Number) -> Any:
    """Take the smaller of two numbers in each place; equal ones share the gradient.

    Args:
        x: Numbers of any kind.
        y: Numbers that broadcast with ``x``.

    Returns:
        The smaller numbers.

    Example:
        >>> minimum(np.array([1.0, 3.0]), 2.0), minimum(1.0, 2.0)
        (array([1., 2.]), 1.0)
    """
    if is_tensor(x) or is_tensor(y):
        return _of_tensors().extreme(x, y, largest=False)
    return _choose(x, y, value_of(x) < value_of(y))


def maximum(x: Number, y: Number) -> Any:
    """Take the larger of two numbers in each place; equal ones share the gradient.

    Args:
        x: Numbers of any kind.
        y: Numbers that broadcast with ``x``.

    Returns:
        The larger numbers.

    Example:
        >>> maximum(np.array([1.0, 3.0]), 2.0), maximum(1.0, 2.0)
        (array([2., 3.]), 2.0)
    """
    if is_tensor(x) or is_tensor(y):
        return _of_tensors().extreme(x, y, largest=True)
    return _choose(x, y, value_of(x) > value_of(y))


def _choose(x: Any, y: Any, first: Any) -> Any:
    chosen = where(first, x, y)
    if type(chosen) is not Dual and type(x) is not Dual and type(y) is not Dual:
        return chosen
    return where(value_of(x) == value_of(y), (_as_dual(x) + y) * 0.5, chosen)


def sigmoid(x: Number) -> Any:
    """Return 1 / (1 + exp(-x)) of tensors or arrays, without overflow.

    Example:
        >>> sigmoid(np.array([-1000.0, 0.0]))
        array([0. , 0.5])
    """
    if is_tensor(x):
        return x.sigmoid()
    smaller = np.exp(-abs(x))
    return np.where(x < 0, smaller, 1.0) / (1.0 + smaller)


def clip(x: Number, low: float, high: float) -> Any:
    """Move numbers into an interval; outside of it the gradient is 0.

    Args:
        x: Numbers of any kind.
        low: The smallest number.
        high: The largest number.

    Returns:
        The numbers, of the same kind.

    Example:
        >>> clip(np.array([-2.0, 0.5]), -1.0, 1.0), clip(3.0, -1.0, 1.0)
        (array([-1. ,  0.5]), 1.0)
    """
    if is_tensor(x):
        return x.clamp(low, high)
    if type(x) is Dual:
        return x._scaled(clip(x.value, low, high), 1.0 * ((x.value >= low) & (x.value <= high)))
    return min(max(x, low), high) if isinstance(x, (int, float)) else np.clip(x, low, high)


def constant(x: Number) -> Any:
    """Return the same number as a constant, without its gradient.

    Args:
        x: Numbers of any kind.

    Returns:
        The numbers; of dual numbers the values.

    Example:
        >>> constant(duals([3.0, 1.0, 2.0, 4.0])[0])
        3.0
    """
    return x.detach() if is_tensor(x) else value_of(x)


def without_tiny(x: Number) -> Any:
    """Replace what counts as 0 in a denominator by 0, with gradient 0.

    Args:
        x: Numbers of at least 0, of any kind.

    Returns:
        The numbers, of the same kind.

    Example:
        >>> without_tiny(np.array([1e-300, 2.0]))
        array([0., 2.])
    """
    if is_tensor(x):
        return _of_tensors().without_tiny(x)
    return where(value_of(x) > _least(value_of(x)), x, 0.0 * x)


def duals(cells: Sequence[Any]) -> list[Dual]:
    """Return dual numbers of four counts: floats, or lists with one float per class."""
    if not isinstance(cells[0], float):
        cells = [np.array(cell) for cell in cells]
    return [Dual(cell, slopes) for cell, slopes in zip(cells, _UNITS, strict=True)]


_UNITS = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))


def smallest_divisor(x: Number) -> float:
    """Return the amount below which a denominator of this kind counts as 0."""
    return _of_tensors().SMALLEST_DIVISOR.get(x.dtype, 1.0) if is_tensor(x) else _least(value_of(x))


def fits_float32(number: Any) -> Any:
    """Whether a float64 number, or each number of a float64 tensor, is a float32 number too.

    Only arithmetic is used, which works on tensors and under ``torch.compile`` as well.

    Example:
        >>> fits_float32(0.5), fits_float32(0.1)
        (True, False)
    """
    widened = number * float(2**29 + 1)  # Veltkamp's splitting: rounds a 53-bit significand to 24 bits
    upper_half = widened - (widened - number)
    return (upper_half == number) & ((number * 2.0**149) % 1.0 == 0.0)  # 2**-149 is the smallest float32 number
