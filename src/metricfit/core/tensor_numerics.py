"""Arithmetic of tensors: the branches of ``core.numerics`` for tensors, types to sum in, and exact tails."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def _smallest_divisor(dtype: torch.dtype) -> float:
    tiny = float(torch.finfo(dtype).tiny)
    return tiny if dtype == torch.float16 else tiny**0.8


#: ``numerics.smallest_divisor`` of each floating type.
SMALLEST_DIVISOR = {
    dtype: _smallest_divisor(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}


def ratio(numerator: Any, denominator: Tensor) -> Tensor:
    """Return ``numerics.ratio`` by a tensor."""
    return _divide(numerator, denominator, denominator.abs() < SMALLEST_DIVISOR.get(denominator.dtype, 1.0))


def _divide(numerator: Any, denominator: Tensor, empty: Tensor) -> Tensor:
    """``numerator / denominator``, and 0 with zero gradient where ``empty``."""
    if not torch.is_grad_enabled():
        return (numerator / denominator).masked_fill_(empty, 0.0)
    # The denominator is made safe before dividing: autograd goes back through what is filled over, and there 0/0 would
    # turn the zero gradient into 0 * nan = nan.
    return (numerator / denominator.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


def share(part: Tensor, rest: Tensor) -> Tensor:
    """Return ``numerics.share`` of tensors."""
    least = SMALLEST_DIVISOR.get(rest.dtype, 1.0)
    total = part + rest
    if not torch.is_grad_enabled():
        return _divide(part, total, total < least)
    mostly_part = part > rest.clamp(min=least)  # the bound makes the value 0 wherever the total counts as 0
    smaller = _divide(torch.where(mostly_part, rest, part), total, total < least)
    return torch.where(mostly_part, 1 - smaller, smaller)


def safe_inverse(denominator: Tensor) -> Tensor:
    """Return 1 / denominator, and 0 where it counts as 0, in three operations; NaN stays NaN. There is no gradient."""
    denominator = denominator if denominator.is_floating_point() else denominator.double()
    shrunk = torch.nn.functional.hardshrink(denominator, SMALLEST_DIVISOR[denominator.dtype])
    return shrunk.reciprocal_().nan_to_num_(nan=math.nan, posinf=0.0, neginf=0.0)


def share_with_slopes(part: Tensor, rest: Tensor, of_part: Tensor, of_rest: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``share`` and its derivatives from both amounts' derivatives; each operation is a launch on a GPU."""
    inverse = safe_inverse(part + rest)
    value = part * inverse
    slopes = torch.addcmul(of_part * (rest * inverse), of_rest, value, value=-1)
    return value, slopes * inverse


def kept_numbers(numbers: Any, like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return numbers as a tensor of the type of another one, or float32 for integers and booleans, on its device.

    The tensor is kept, because copying numbers to a GPU in every step would wait for it; a compiler makes a constant.
    """
    dtype = like.dtype if like.is_floating_point() else torch.float32
    if torch.compiler.is_compiling():
        made = torch.tensor(numbers, dtype=dtype, device=like.device)
        return made if shape is None else made.view(shape)
    return _keep_numbers(numbers, dtype, like.device, shape)


@lru_cache(maxsize=256)
def _keep_numbers(numbers: Any, dtype: torch.dtype, device: torch.device, shape: tuple[int, ...] | None) -> Tensor:
    with torch.inference_mode(False):
        made = torch.tensor(numbers, dtype=dtype, device=device)
        return made if shape is None else made.view(shape)


def root(x: Tensor) -> Tensor:
    """Return ``numerics.root`` of a tensor."""
    empty = x < SMALLEST_DIVISOR[x.dtype]  # 0, or a difference of counts that rounds to -1e-9
    return torch.sqrt(x.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)


def extreme(x: Any, y: Any, *, largest: bool) -> Tensor:
    """Return ``numerics.maximum`` or ``numerics.minimum`` of a tensor and a tensor or a number."""
    like = x if isinstance(x, Tensor) else y
    first, second = (part if isinstance(part, Tensor) else torch.full_like(like, part) for part in (x, y))
    return torch.maximum(first, second) if largest else torch.minimum(first, second)


def without_tiny(x: Tensor) -> Tensor:
    """Return ``numerics.without_tiny`` of a tensor."""
    return torch.nn.functional.threshold(x, SMALLEST_DIVISOR[x.dtype], 0.0)


def counting_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type for sums over such logits: at least float32, because float16 overflows at 65,504."""
    return torch.promote_types(dtype, torch.float32)


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return the type of hard counts: float64, exact up to 2**53, if the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


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


def traces_transform() -> bool:
    """Return whether a compiler traces a transform of torch.func, such as ``vmap``."""
    return torch._C._functorch.peek_interpreter_stack() is not None


# What torch.compiler.assume_constant_result does; calling it would import the compiler together with this package.
traces_transform._dynamo_marked_constant = True  # type: ignore[attr-defined]


def in_backward() -> bool:
    """Return whether a backward pass is running; a forward pass within one belongs to a checkpoint."""
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
