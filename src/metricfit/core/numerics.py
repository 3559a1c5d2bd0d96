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
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from metricfit.core.arrays import Array, cast, counting_type, exact, exact_type, in_kind_of, is_tensor

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

#: The derivatives of a dual number by tp, fp, fn and tn: four numbers, or an array or a tensor with them as rows.
Slopes = Any
#: A number of any kind: a tensor, an array, a number or a dual number.
Number = Any
#: The derivatives of a constant.
NO_SLOPES = (0.0, 0.0, 0.0, 0.0)


class Dual:
    """A number with its derivatives by tp, fp, fn and tn; with several classes, an array with one number per class.

    Of an array, the number of a class depends on the counts of this class alone. ``sum`` adds the classes: the result
    is one number, whose derivatives are arrays with one number per class. The two mix as in ``array / array.sum()``
    only where the first is a constant. Tensors take the place of arrays, so that nothing waits for a GPU.

    Args:
        value: The number, or one per class.
        slopes: The four derivatives. They are a tuple of numbers as long as they are the same for all counts, which
            costs no operation of arrays, and otherwise the rows of an array.
    """

    __slots__ = ("slopes", "value")
    #: NumPy's arrays leave operations with dual numbers to this class.
    __array_ufunc__ = None

    def __init__(self, value: Any, slopes: Slopes) -> None:
        self.value, self.slopes = value, slopes

    def _plain(self, number: Any) -> Any:
        """Return a number, an array or a tensor that mixes with this number; a tensor mixes with tensors alone."""
        if type(number) is float or isinstance(number, (int, float, np.number)):
            return number
        if is_tensor(number) if is_tensor(self.value) else isinstance(number, np.ndarray):
            return number
        raise TypeError(f"this dual number does not mix with {type(number).__name__}")

    def __add__(self, other: Any) -> Dual:
        if type(other) is not Dual:
            return Dual(self.value + self._plain(other), self.slopes)
        return Dual(self.value + other.value, _add(self.slopes, other.slopes))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dual:
        if type(other) is not Dual:
            return Dual(self.value - self._plain(other), self.slopes)
        return Dual(self.value - other.value, _add(self.slopes, times(other.slopes, -1.0)))

    def __rsub__(self, other: Any) -> Dual:
        return Dual(self._plain(other) - self.value, times(self.slopes, -1.0))

    def __mul__(self, other: Any) -> Dual:
        if type(other) is not Dual:
            factor = self._plain(other)
            return Dual(self.value * factor, times(self.slopes, factor))
        return Dual(self.value * other.value, _combine(self.slopes, other.value, other.slopes, self.value))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        if type(other) is not Dual:
            other = Dual(self._plain(other), NO_SLOPES)
        value, inverse = _quotient(self.value, other.value), _quotient(1.0, other.value)
        return Dual(value, _combine(self.slopes, inverse, other.slopes, -value * inverse))

    def __rtruediv__(self, other: Any) -> Dual:
        return Dual(self._plain(other), NO_SLOPES) / self

    def __pow__(self, exponent: float) -> Dual:
        power = self._plain(exponent)
        factor = power * self.value ** (power - 1) if power else 0.0
        return Dual(self.value**power, times(self.slopes, factor))

    def __neg__(self) -> Dual:
        return self * -1.0

    def __pos__(self) -> Dual:
        return self

    def __abs__(self) -> Dual:
        sign = (self.value > 0) * 1.0 - (self.value < 0) * 1.0
        return Dual(abs(self.value), times(self.slopes, sign))

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
        only = 0.0 * self.value
        only[place] = 1.0
        return Dual(self.value[place], times(self.slopes, only))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("a dual number is no array")

    @property
    def is_one_number(self) -> bool:
        """Whether it is one number, and not one per class."""
        return not getattr(self.value, "ndim", 0)

    def sum(self, axis: int = -1) -> Dual:
        """Add the numbers of all classes. One number has none, so that a formula that adds classes is noticed."""
        if self.is_one_number:
            raise TypeError("one number has no axis to sum over")
        slopes = times(self.slopes, 0.0 * self.value + 1.0) if type(self.slopes) is tuple else self.slopes
        return Dual(self.value.sum(axis), slopes)

    def __repr__(self) -> str:
        return f"Dual({self.value}, {self.slopes})"


def times(slopes: Slopes, factor: Any) -> Slopes:
    """Return derivatives times a number, an array or a tensor."""
    if type(slopes) is not tuple:
        return slopes * factor
    if isinstance(factor, (int, float)):
        a, b, c, d = slopes
        return a * factor, b * factor, c * factor, d * factor
    return NO_SLOPES if slopes is NO_SLOPES else rows_of(slopes, factor, factor.ndim) * factor


def _add(first: Slopes, second: Slopes) -> Slopes:
    if type(first) is tuple and type(second) is tuple:
        (a, b, c, d), (e, f, g, h) = first, second
        return a + e, b + f, c + g, d + h
    if first is NO_SLOPES or second is NO_SLOPES:
        return second if first is NO_SLOPES else first
    if type(first) is tuple:
        first, second = second, first
    return first + (rows_of(second, first, first.ndim - 1) if type(second) is tuple else second)


def _combine(first: Slopes, x: Any, second: Slopes, y: Any) -> Slopes:
    """Return ``first x + second y``."""
    return _add(times(first, x), times(second, y))


def rows_of(slopes: tuple[float, ...], like: Any, axes: int) -> Any:
    """Return four numbers as the rows of an array or of a tensor as ``like``, with more axes of length 1."""
    return numbers_like(slopes, like, (4, *(1,) * axes))


def numbers_like(numbers: Any, like: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return numbers, tuples of which can be nested, as an array, or as a tensor of the type of another one."""
    return _of_tensors().kept_numbers(numbers, like, shape) if is_tensor(like) else _keep_array(numbers, shape)


@lru_cache(maxsize=256)
def _keep_array(numbers: Any, shape: tuple[int, ...] | None) -> np.ndarray:
    array = np.array(numbers, np.float64)
    return array if shape is None else array.reshape(shape)


#: What a formula raises that does not take dual numbers: it calls functions of torch, say, or floats overflow where
#: tensors are infinite. Any other error is one of the formula.
NOT_FOR_DUALS = (TypeError, AttributeError, ArithmeticError)


def _as_dual(number: Any, like: Any = 0.0) -> Dual:
    """Return a constant as a dual number; ``like`` is a number with which it mixes."""
    if type(number) is Dual:
        return number
    return Dual(like._plain(number) if type(like) is Dual else number, NO_SLOPES)


def _as_duals(x: Any, y: Any) -> tuple[Dual, Dual]:
    return _as_dual(x, y), _as_dual(y, x)


def value_of(number: Any) -> Any:
    """Return the value of a dual number, and any other number as it is."""
    return number.value if type(number) is Dual else number


def _quotient(x: Any, y: Any) -> Any:
    """Divide as tensors do: x/0 is infinite, and 0/0 is NaN."""
    if type(y) is float and type(x) is float:
        return x / y if y else math.nan if x == 0 or x != x else math.copysign(math.inf, x)
    if is_tensor(x) or is_tensor(y):
        return x / y
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
        top, bottom = _as_duals(numerator, denominator)
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
    if is_tensor(denominator):
        return _of_tensors().safe_inverse(denominator)
    return _divide_plain(1.0, denominator)


def _divide_plain(numerator: Any, denominator: Any) -> Any:
    if isinstance(denominator, (int, float)):
        return numerator / denominator if abs(denominator) >= LEAST else 0.0 * numerator
    empty = abs(denominator) < _least(denominator)
    if not np.count_nonzero(empty):
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
        return _share_of_duals(part, rest)
    if is_tensor(part):
        return _of_tensors().share(part, rest)
    return _divide_plain(part, part + rest)


def _rows(number: Dual) -> Any:
    slopes, axes = number.slopes, number.value.ndim
    return rows_of(slopes, number.value, axes) if type(slopes) is tuple else slopes


def _share_of_duals(part: Any, rest: Any) -> Dual:
    if type(part) is not type(rest):
        part, rest = _as_duals(part, rest)
    if is_tensor(part.value) and is_tensor(rest.value):
        return Dual(*_of_tensors().share_with_slopes(part.value, rest.value, *map(_rows, (part, rest))))
    inverse = _safe_inverse(part.value + rest.value)
    of_part, of_rest = part.value * inverse, rest.value * inverse
    of_rest_slopes = times(times(rest.slopes, -1.0), of_part * inverse)  # the sign of constants costs no operation
    return Dual(of_part, _add(times(part.slopes, of_rest * inverse), of_rest_slopes))


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
    if type(x) is Dual:
        value = root(x.value)
        return Dual(value, times(x.slopes, 0.5 * _safe_inverse(value)))
    if isinstance(x, (int, float)):
        return math.sqrt(x) if x >= LEAST else 0.0
    return np.where(x < _least(x), 0.0, np.sqrt(np.maximum(x, 0.0)))


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
    if isinstance(condition, (bool, np.bool_)):
        chosen = x if condition else y
        return _as_dual(chosen) if type(x) is Dual or type(y) is Dual else chosen
    if type(x) is Dual or type(y) is Dual:
        first, second = _as_duals(x, y)
        value = where(condition, first.value, second.value)
        axes = max(value.ndim, *(part.slopes.ndim - 1 for part in (first, second) if type(part.slopes) is not tuple), 0)
        of_first, of_second = (
            rows_of(part.slopes, value, axes) if type(part.slopes) is tuple else part.slopes for part in (first, second)
        )
        return Dual(value, where(condition, of_first, of_second))
    return (sys.modules["torch"] if is_tensor(condition) else np).where(condition, x, y)


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
    return _extreme(x, y, value_of(x) < value_of(y), largest=False)


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
    return _extreme(x, y, value_of(x) > value_of(y), largest=True)


def _extreme(x: Any, y: Any, is_first: Any, *, largest: bool) -> Any:
    if type(x) is Dual or type(y) is Dual:
        return where(value_of(x) == value_of(y), (_as_dual(x, y) + y) * 0.5, where(is_first, x, y))
    return _of_tensors().extreme(x, y, largest=largest) if is_tensor(is_first) else where(is_first, x, y)


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
        return Dual(clip(x.value, low, high), times(x.slopes, 1.0 * ((x.value >= low) & (x.value <= high))))
    return min(max(x, low), high) if type(x) in (int, float) else np.clip(x, low, high)


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
    return where(value_of(x) > smallest_divisor(x), x, 0.0 * x)


def duals(cells: Sequence[Any]) -> list[Dual]:
    """Return dual numbers of four counts: floats, tensors, or arrays or lists with one float per class."""
    if is_tensor(cells):
        cells = cells.unbind()  # type: ignore[attr-defined]
    elif isinstance(cells[0], list):
        cells = [np.array(cell) for cell in cells]
    return list(map(Dual, cells, _UNITS))


_UNITS = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))


def smallest_divisor(x: Number) -> float:
    """Return the amount below which a denominator of this kind counts as 0."""
    number = value_of(x)
    return _of_tensors().SMALLEST_DIVISOR.get(number.dtype, 1.0) if is_tensor(number) else _least(number)


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


def is_positive(logits: Array, threshold: float | Array) -> Array:
    """Binary decisions ``sigmoid(logits) >= threshold``, compared in the precision that the threshold was chosen in.

    A threshold that a float32 number can hold, such as 0.5 or any of ``torch.sigmoid(logits)`` for float32 logits, is
    compared with float32 probabilities. Any other is compared with float64 probabilities: these tell apart logits of up
    to 36, whereas in float32 all probabilities of logits above 17 are 1. So a threshold that was chosen among the
    probabilities of these logits, in either precision, makes the decisions that it was chosen for. Half-precision
    logits are converted to float32 first, and float64 logits are always compared in float64.

    Args:
        logits: Logits of any shape and floating type.
        threshold: A probability, or several that broadcast with the logits. At 0 or below everything is positive, above
            1 nothing is.

    Returns:
        Booleans of the logits' shape.

    Example:
        >>> is_positive(np.array([30.0, 20.0]), 1 - 1e-10)
        array([ True, False])
    """
    logits = cast(constant(logits), counting_type(logits))
    if isinstance(threshold, (int, float)):
        in_type = logits.dtype == exact_type(logits) or fits_float32(threshold)
        return sigmoid(logits if in_type else exact(logits)) >= threshold
    bound = exact(in_kind_of(threshold, logits))
    in_float64 = sigmoid(exact(logits)) >= bound
    if logits.dtype == bound.dtype:
        return in_float64
    return where(fits_float32(bound), sigmoid(logits) >= cast(bound, logits.dtype), in_float64)
