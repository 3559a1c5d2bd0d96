"""Arithmetic that stays finite, in value and in gradient, on every kind of number that a formula is evaluated on.

A formula over counts uses operators and the functions of this module: ``ratio``, ``share``, ``root``, ``where``,
``minimum``, ``maximum``, ``clip`` and ``constant``. They take torch tensors, NumPy arrays, numbers, and dual numbers.

A dual number (``Dual``) is a number with its derivatives by the four counts. One evaluation of a formula on four dual
numbers gives the value and the derivatives of a batch's loss, in microseconds and without a graph of small tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

#: What a difference of sums that should be 0 can be because of rounding, as a share of the sums.
ROUNDING = 1e-12
#: The largest finite number of float64.
LARGEST = torch.finfo(torch.float64).max


def _smallest_divisor(dtype: torch.dtype) -> float:
    tiny = float(torch.finfo(dtype).tiny)
    return tiny if dtype == torch.float16 else tiny**0.8


#: The amount below which a denominator counts as 0: 5e-31 in float32, 8e-247 in float64.
#:
#: The gradient of a division is of the order of 1/denominator, and is multiplied by slopes and weights before the small
#: factors reach it that make the result moderate. Where 1/denominator is near the largest number of the dtype, it
#: becomes infinite on the way, and then infinity times 0, which is NaN: one class predicted with a mass of 1e-42 would
#: spoil the gradient of the whole batch.
SMALLEST_DIVISOR = {
    dtype: _smallest_divisor(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}
#: The same for numbers, arrays and dual numbers in float64, and for arrays in float32.
LEAST, LEAST_FLOAT32 = SMALLEST_DIVISOR[torch.float64], SMALLEST_DIVISOR[torch.float32]

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
        >>> ratio(torch.tensor([1.0, 0.0]), torch.tensor([4.0, 0.0]))
        tensor([0.2500, 0.0000])
        >>> ratio(1.0, 4.0), ratio(0.0, 0.0)
        (0.25, 0.0)
    """
    if isinstance(denominator, Tensor):
        return _divide(numerator, denominator, denominator.abs() < SMALLEST_DIVISOR.get(denominator.dtype, 1.0))
    if type(numerator) is Dual or type(denominator) is Dual:
        top, bottom = _as_dual(numerator), _as_dual(denominator)
        inverse = _safe_inverse(bottom.value)
        value = top.value * inverse
        return Dual(value, _combine(top.slopes, inverse, bottom.slopes, -value * inverse))
    if isinstance(numerator, Tensor):
        return numerator * _safe_inverse(denominator)
    return _divide_plain(numerator, denominator)


def _divide(numerator: Any, denominator: Tensor, empty: Tensor) -> Tensor:
    """``numerator / denominator``, and 0 with zero gradient where ``empty``."""
    if not torch.is_grad_enabled():
        return (numerator / denominator).masked_fill_(empty, 0.0)
    # The denominator is made safe before dividing: autograd goes back through what is filled over, and there 0/0 would
    # turn the zero gradient into 0 * nan = nan.
    return (numerator / denominator.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


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
        >>> share(torch.tensor([1.0, 3.0, 0.0]), torch.tensor([3.0, 1.0, 0.0]))
        tensor([0.2500, 0.7500, 0.0000])
        >>> share(1.0, 3.0), share(0.0, 0.0)
        (0.25, 0.0)
    """
    if type(part) is Dual or type(rest) is Dual:
        return _share_of_duals(_as_dual(part), _as_dual(rest))
    if not isinstance(part, Tensor):
        return _divide_plain(part, part + rest)
    least = SMALLEST_DIVISOR.get(rest.dtype, 1.0)
    total = part + rest
    if not torch.is_grad_enabled():
        return _divide(part, total, total < least)
    mostly_part = part > rest.clamp(min=least)  # the bound makes the value 0 wherever the total counts as 0
    smaller = _divide(torch.where(mostly_part, rest, part), total, total < least)
    return torch.where(mostly_part, 1 - smaller, smaller)


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
        >>> root(torch.tensor([4.0, 0.0]))
        tensor([2., 0.])
        >>> root(4.0)
        2.0
    """
    if isinstance(x, Tensor):
        empty = x < SMALLEST_DIVISOR[x.dtype]  # 0, or a difference of counts that rounds to -1e-9
        return torch.sqrt(x.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)
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
        >>> where(torch.tensor([True, False]), torch.tensor([1.0, 2.0]), 0.0)
        tensor([1., 0.])
    """
    if isinstance(condition, Tensor):
        return torch.where(condition, x, y)
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
        >>> minimum(torch.tensor([1.0, 3.0]), 2.0), minimum(1.0, 2.0)
        (tensor([1., 2.]), 1.0)
    """
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return torch.minimum(*_tensors(x, y))
    return _choose(x, y, value_of(x) < value_of(y))


def maximum(x: Number, y: Number) -> Any:
    """Take the larger of two numbers in each place; equal ones share the gradient.

    Args:
        x: Numbers of any kind.
        y: Numbers that broadcast with ``x``.

    Returns:
        The larger numbers.

    Example:
        >>> maximum(torch.tensor([1.0, 3.0]), 2.0), maximum(1.0, 2.0)
        (tensor([2., 3.]), 2.0)
    """
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return torch.maximum(*_tensors(x, y))
    return _choose(x, y, value_of(x) > value_of(y))


def _tensors(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    like = x if isinstance(x, Tensor) else y
    return (
        x if isinstance(x, Tensor) else torch.full_like(like, x),
        y if isinstance(y, Tensor) else torch.full_like(like, y),
    )


def _choose(x: Any, y: Any, first: Any) -> Any:
    chosen = where(first, x, y)
    if type(chosen) is not Dual and type(x) is not Dual and type(y) is not Dual:
        return chosen
    return where(value_of(x) == value_of(y), (_as_dual(x) + y) * 0.5, chosen)


def clip(x: Number, low: float, high: float) -> Any:
    """Move numbers into an interval; outside of it the gradient is 0.

    Args:
        x: Numbers of any kind.
        low: The smallest number.
        high: The largest number.

    Returns:
        The numbers, of the same kind.

    Example:
        >>> clip(torch.tensor([-2.0, 0.5]), -1.0, 1.0), clip(3.0, -1.0, 1.0)
        (tensor([-1.0000,  0.5000]), 1.0)
    """
    if isinstance(x, Tensor):
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
        >>> constant(torch.tensor(2.0, requires_grad=True)).requires_grad
        False
    """
    return x.detach() if isinstance(x, Tensor) else value_of(x)


def without_tiny(x: Number) -> Any:
    """Replace what counts as 0 in a denominator by 0, with gradient 0.

    Args:
        x: Numbers of at least 0, of any kind.

    Returns:
        The numbers, of the same kind.

    Example:
        >>> without_tiny(torch.tensor([1e-40, 2.0]))
        tensor([0., 2.])
    """
    if isinstance(x, Tensor):
        return torch.nn.functional.threshold(x, SMALLEST_DIVISOR[x.dtype], 0.0)
    return where(value_of(x) > _least(value_of(x)), x, 0.0 * x)


def duals(cells: Sequence[Any]) -> list[Dual]:
    """Return dual numbers of four counts: floats, or lists with one float per class."""
    if not isinstance(cells[0], float):
        cells = [np.array(cell) for cell in cells]
    return [Dual(cell, slopes) for cell, slopes in zip(cells, _UNITS, strict=True)]


_UNITS = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))


def smallest_divisor(x: Number) -> float:
    """Return the amount below which a denominator of this kind counts as 0."""
    return SMALLEST_DIVISOR.get(x.dtype, 1.0) if isinstance(x, Tensor) else _least(x)


def counting_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type for sums over such logits: at least float32, because float16 overflows at 65,504."""
    return torch.promote_types(dtype, torch.float32)


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return the type of hard counts: float64, exact up to 2**53, if the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def is_positive(logits: Tensor, threshold: float | Tensor) -> Tensor:
    """Binary decisions ``sigmoid(logits) >= threshold``, compared in the precision that the threshold was chosen in.

    A threshold that a float32 number can hold, such as 0.5 or any of ``torch.sigmoid(logits)`` for float32 logits, is
    compared with float32 probabilities. Any other is compared with float64 probabilities: these tell apart logits of up
    to 36, whereas in float32 all probabilities of logits above 17 are 1. So a threshold that was chosen among the
    probabilities of these logits, in either precision, makes the decisions that it was chosen for. Half-precision
    logits are converted to float32 first, and float64 logits are always compared in float64.

    Args:
        logits: Logits of any shape and floating type.
        threshold: A probability, or a tensor of them that broadcasts with the logits. At 0 or below everything is
            positive, above 1 nothing is.

    Returns:
        A boolean tensor of the logits' shape.

    Example:
        >>> is_positive(torch.tensor([30.0, 20.0]), 1 - 1e-10)
        tensor([ True, False])
    """
    logits = logits.detach().to(counting_dtype(logits.dtype))
    exact = exact_dtype(logits.device)
    if isinstance(threshold, Tensor):
        bound = threshold.detach().to(logits.device, exact)
        in_float64 = torch.sigmoid(logits.to(exact)) >= bound
        if logits.dtype == exact:
            return in_float64
        return torch.where(fits_float32(bound), torch.sigmoid(logits) >= bound.to(logits.dtype), in_float64)
    if logits.dtype == exact or fits_float32(threshold):
        return torch.sigmoid(logits) >= threshold
    return torch.sigmoid(logits.to(exact)) >= threshold


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


def tails(logits: Tensor) -> tuple[Tensor, Tensor]:
    """``sigmoid(x)`` and ``sigmoid(-x)`` from one exponential, each accurate where it is small, as are their gradients.

    Both are made of the smaller tail s, whose gradient is s (1 - s): a larger tail has no digits left of 1 - s.
    """
    is_negative = logits < 0
    smaller = torch.sigmoid(torch.where(is_negative, logits, -logits))
    larger = 1 - smaller
    return torch.where(is_negative, smaller, larger), torch.where(is_negative, larger, smaller)


def mix_by_label(y: Tensor, if_negative: float, if_positive: float, out: Tensor | None = None) -> Tensor:
    """``(1 - y) if_negative + y if_positive`` of many labels in one or two operations, without gradient.

    ``torch.lerp`` of two numbers takes four times as long. The sum starts from the number that is not much larger than
    the other one, so that at most three bits of it cancel.

    Args:
        y: Labels from 0 to 1.
        if_negative: The number for the label 0.
        if_positive: The number for the label 1.
        out: Where to write the result.

    Returns:
        One number per label.

    Example:
        >>> mix_by_label(torch.tensor([0.0, 1.0, 0.5]), 2.0, 3.0)
        tensor([2.0000, 3.0000, 2.5000])
    """
    difference = if_positive - if_negative
    if abs(if_negative) <= 8 * abs(if_positive):
        return torch.add(y.new_tensor(if_negative), y, alpha=difference, out=out)
    return torch.add(y.new_tensor(if_positive), torch.sub(y, 1, out=out), alpha=difference, out=out)


def stable_sigmoid(x: Tensor) -> Tensor:
    """``sigmoid(x)`` whose gradient is ``s(x) s(-x)`` from both tails.

    torch.sigmoid's backward is ``s (1 - s)``: in float32 that is exactly 0 from x = 17 on, where the true
    gradient is 4e-8. The logarithm keeps both tails.
    """
    return torch.exp(torch.nn.functional.logsigmoid(x))


def has_storage(tensor: Tensor) -> bool:
    """Return whether kernels can read and write the tensor; not if vmap or a tracer has put something in its place."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def is_transformed() -> bool:
    """Return whether a transform of ``torch.func``, or forward-mode differentiation, is active."""
    return torch._C._are_functorch_transforms_active() or differentiates_forward()


def differentiates_forward() -> bool:
    """Return whether derivatives are computed in forward mode, for which only plain operations have a rule."""
    return forward_ad._current_level >= 0


def in_backward() -> bool:
    """Return whether a backward pass is running; a forward pass within one is that of a checkpoint."""
    current = getattr(torch._C, "_current_graph_task_id", None)
    return current is not None and current() != -1


def leading(tensor: Tensor | None, axis: int | None, size: int) -> Tensor | None:
    """Return a tensor with its vmapped axis in front; the axis is added if there is none."""
    if tensor is None:
        return None
    return tensor.expand(size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Switch autocast off, because sums over samples need full precision."""
    is_on = device.type in ("cpu", "cuda", "xpu", "mps") and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if is_on else nullcontext()


def smallest_rounded_to(number: float, dtype: torch.dtype) -> float:
    """Return the smallest float32 number, at least 0 if the number is, that is rounded to a half-precision number."""
    if number == 0 or math.isinf(number):
        return number
    this = torch.tensor(number, dtype=dtype)
    below = (this.view(torch.int16) + (-1 if number > 0 else 1)).view(dtype)  # the next lower number of the type
    middle = (this.float() + below.float()) / 2
    if middle.to(dtype) != this:  # ties are rounded to the number with an even last bit
        middle = torch.nextafter(middle, this.float())
    return float(middle)
