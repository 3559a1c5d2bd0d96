"""Sums of pointwise losses on the CPU, with their gradient from the same pass: O(n) time, one array and a few blocks.

The value and the gradient share their exponentials, so both are computed in the forward pass. The intermediate results
of a block stay in the cache. The formulas are those of ``pointwise_form``; tests compare them with plain operations.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import softplus

from metricfit.core.kernels.pointwise_form import PointwiseForm
from metricfit.core.numerics import mix_by_label

BLOCK = 2**18
SHORT = 2**12  # up to here the number of operations decides, beyond it their cost per element

#: Losses that are finite for infinite logits, which are allowed there.
BOUNDED = ("absolute_error", "squared_error")


def handles(logits: Tensor) -> bool:
    """Return whether the kernel is for these logits: float32 or float64 on the CPU."""
    return logits.is_cpu and logits.dtype in (torch.float32, torch.float64)


def is_hard(target: Tensor) -> bool:
    """Return whether all labels are 0 or 1. An infinite label may pass; it makes the sum infinite or NaN."""
    if target.numel() <= SHORT:
        return torch.equal(target * target, target)
    low, high = torch.aminmax(torch.addcmul(target, target, target, value=-1))
    return low.item() == 0.0 == high.item()


def weighted_sum(
    logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the weighted sum of the losses times ``scale``, and its gradient.

    Args:
        logits: Logits of any shape.
        target: Labels from 0 to 1, of the same shape and type.
        weight: Weights of the same shape and type, or None.
        form: The loss.
        scale: A factor.
        with_gradient: Whether to compute the gradient.

    Returns:
        The sum and the gradient of the logits. The sum is NaN if a label is out of range, and NaN or
        infinite if a logit is, except for losses that are bounded.
    """
    if logits.dim() == 1 and logits.numel() <= SHORT and torch.equal(target * target, target):
        return _terms(logits, target, weight, form, scale, with_gradient)
    x, y, w = logits.reshape(-1), target.reshape(-1), None if weight is None else weight.reshape(-1)
    slopes = torch.empty(x.shape, dtype=x.dtype, device=x.device) if with_gradient else None
    value = torch.tensor(_sum_blocks(x, y, w, form, scale, slopes), dtype=x.dtype, device=x.device)
    return value, None if slopes is None else slopes.view(logits.shape)


def gradient(
    logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float, grad: Tensor
) -> Tensor:
    """Return the gradient of the logits, from that of the sum."""
    result = weighted_sum(logits, target, weight, form, scale, True)[1]
    assert result is not None
    return result.mul_(grad)


def _sum_blocks(x: Tensor, y: Tensor, w: Tensor | None, form: PointwiseForm, scale: float, out: Tensor | None) -> float:
    """Return the sum, added up in float64, and write the gradient into ``out``."""
    total = 0.0
    for start in range(0, x.numel(), BLOCK):
        block = slice(start, start + BLOCK)
        parts = x[block], y[block], None if w is None else w[block]
        total += _sum_block(*parts, form, scale, None if out is None else out[block])
    return total


def _sum_block(x: Tensor, y: Tensor, w: Tensor | None, form: PointwiseForm, scale: float, out: Tensor | None) -> float:
    """Return the sum over a block and write its gradient into ``out``."""
    if is_hard(y):
        return _terms(x, y, w, form, scale, out is not None, out)[0].item()
    low, high = torch.aminmax(y)
    if not (low.item() >= 0.0 and high.item() <= 1.0):
        return math.nan
    positive, negative = y, 1 - y
    if w is not None:
        positive, negative = w * positive, w * negative
    value = _terms(x, torch.ones_like(x), positive, form, scale, out is not None, out)[0].item()
    other, gradient = _terms(x, torch.zeros_like(x), negative, form, scale, out is not None, None)
    if out is not None and gradient is not None:
        out.add_(gradient)
    return value + other.item()


def _terms(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    form: PointwiseForm,
    scale: float,
    with_gradient: bool,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the sum of the losses of logits with labels 0 and 1, and the gradient, written into ``out`` if given."""
    kind, of_positive, of_negative, first, second = form
    factor = _by_label(y, of_negative * scale, of_positive * scale)
    if w is not None:
        factor.mul_(w)
    z = _wrong_side(x, y, kind)
    if kind == "cross_entropy" and (first or second):
        z.add_(_number(first, x.dtype) if first == second else _by_label(y, second, first))
    if kind == "cross_entropy" and x.numel() > SHORT:
        return _long_cross_entropy(z.neg_(), y, factor, with_gradient, out)
    losses, slopes = _KINDS[kind](z, y, form, with_gradient)
    value = _sum_products(losses, factor)
    if slopes is not None:
        signed = factor.addcmul_(y, factor, value=-2)
        slopes = slopes.mul_(signed) if out is None else torch.mul(slopes, signed, out=out)
    return value, slopes


def _wrong_side(x: Tensor, y: Tensor, kind: str) -> Tensor:
    """Return how far each logit is on the wrong side, ``(1 - 2y) x``."""
    if kind in BOUNDED:
        return torch.add(_number(1.0, x.dtype), y, alpha=-2).mul_(x)
    return torch.addcmul(x, y, x, value=-2)  # NaN if x is infinite: on its right side the loss would be 0 and hide it


def _long_cross_entropy(
    right: Tensor, y: Tensor, factor: Tensor, with_gradient: bool, out: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """As ``_terms``, from how far each logit is on the right side: one exponential serves the loss and its slope."""
    logarithms, exponentials = torch.ops.aten.log_sigmoid_forward(right)
    value = _sum_products(logarithms, factor).neg_()
    if not with_gradient:
        return value, None
    signed = factor.addcmul_(y, factor, value=-2)
    result = signed if out is None else out
    return value, torch.ops.aten.log_sigmoid_backward.grad_input(signed, right, exponentials, grad_input=result)


def _sum_products(losses: Tensor, factor: Tensor) -> Tensor:
    """Return the sum of products; more than ``SHORT`` losses are overwritten.

    ``torch.dot`` adds in few parts, and of many products that are alike loses four digits.
    """
    return torch.dot(losses, factor) if losses.numel() <= SHORT else losses.mul_(factor).sum()


def _cross_entropy(z: Tensor, y: Tensor, form: PointwiseForm, with_slopes: bool) -> tuple[Tensor, Tensor | None]:
    return softplus(z), z.sigmoid_() if with_slopes else None


def _focal(z: Tensor, y: Tensor, form: PointwiseForm, with_slopes: bool) -> tuple[Tensor, Tensor | None]:
    """The exponents are g for both classes, or 0 for positives; s^0 is 1."""
    losses, s = softplus(z), z.sigmoid_()
    power = s * s if form.second == 2.0 else s**form.second
    if form.first != form.second:
        power = torch.lerp(power, _number(1.0, z.dtype), y)
    if not with_slopes:
        return losses.mul_(power), None
    slopes = torch.lerp(losses * _exponents(y, form), _number(1.0, z.dtype), s).mul_(power)
    return losses.mul_(power), slopes


def _exponents(y: Tensor, form: PointwiseForm) -> Tensor:
    return _number(form.second, y.dtype) if form.first == form.second else _by_label(y, form.second, form.first)


def _absolute_error(z: Tensor, y: Tensor, form: PointwiseForm, with_slopes: bool) -> tuple[Tensor, Tensor | None]:
    two = _number(2.0, z.dtype)
    losses = torch.sigmoid(z).mul_(two)
    return losses, z.neg_().sigmoid_().mul_(losses) if with_slopes else None


def _squared_error(z: Tensor, y: Tensor, form: PointwiseForm, with_slopes: bool) -> tuple[Tensor, Tensor | None]:
    s = torch.sigmoid(z)
    squares = s * s
    losses = squares * _number(0.5, z.dtype)
    return losses, z.neg_().sigmoid_().mul_(squares) if with_slopes else None


def _surrogate(z: Tensor, y: Tensor, form: PointwiseForm, with_slopes: bool) -> tuple[Tensor, Tensor | None]:
    q, one = form.second, _number(1.0, z.dtype)
    s = torch.sigmoid(z)
    shifted = s + _number(math.exp(form.first), z.dtype)
    if not q:
        losses = torch.lerp(shifted.log(), softplus(z), y)
        return losses, torch.lerp(z.neg_().sigmoid_().div_(shifted), one, y).mul_(s) if with_slopes else None
    exponents = torch.lerp(shifted.log(), softplus(z).neg_(), y).mul_(q)
    losses = torch.expm1(exponents).mul_(_by_label(y, 1 / q, -1 / q))
    if not with_slopes:
        return losses, None
    return losses, torch.lerp(z.neg_().sigmoid_().div_(shifted), one, y).mul_(s).mul_(exponents.exp_())


_KINDS = {
    "cross_entropy": _cross_entropy,
    "focal": _focal,
    "absolute_error": _absolute_error,
    "squared_error": _squared_error,
    "surrogate": _surrogate,
}


def _by_label(y: Tensor, negative: float, positive: float) -> Tensor:
    """Return one of two numbers for each label 0 or 1."""
    if y.numel() <= SHORT:
        return torch.lerp(_number(negative, y.dtype), _number(positive, y.dtype), y)
    return mix_by_label(y, negative, positive)


@lru_cache(maxsize=128)
def _number(value: float, dtype: torch.dtype) -> Tensor:
    """Return a number as a tensor; an operation with a Python number would make it anew in each call."""
    return torch.tensor(value, dtype=dtype, device="cpu")
