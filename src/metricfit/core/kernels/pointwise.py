"""Sums of pointwise losses in one pass, with a closed-form gradient: O(n) time, one array for the gradient.

With a label y of 0 or 1, z = (1 - 2y) x says how far a logit is on the wrong side. A sample has the loss w f(z) with a
weight w for each class, and its gradient is (1 - 2y) w f'(z). With s = sigmoid(z) and sp = softplus(z) = -log(1 - s):

    kind             f(z)                          f'(z)                          parameters
    cross_entropy    sp(z + m)                     s(z + m)                       margins m of positives and negatives
    focal            s^g sp                        s^g (g (1 - s) sp + s)         exponents g of positives and negatives
    absolute_error   2 s                           2 s (1 - s)                    none
    surrogate, y=1   (1 - (1 - s)^q) / q           (1 - s)^q s                    log c and q
               y=0   ((c + s)^q - 1) / q           (c + s)^(q - 1) s (1 - s)

At q = 0 the surrogate is sp for positives and log(c + s) for negatives.

Plain operations would keep several arrays for the backward pass. On the CPU value and gradient share their exponentials
and are computed in blocks that stay in the cache; on CUDA devices ``triton.pointwise`` computes one after the other.
Both are compared with plain operations in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from metricfit.core.kernels import triton
from metricfit.core.tensor_numerics import has_storage, is_transformed, mix_by_label

BLOCK = 2**18
SHORT = 2**12  # up to here the number of operations decides, beyond it their cost per element

#: The same sum in plain operations, of logits, target and weight.
PlainSum = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class PointwiseForm(NamedTuple):
    """The kind of a loss, the weights of the two classes, and the two parameters of the kind.

    Example:
        >>> PointwiseForm("cross_entropy", positive_weight=2.0)
        PointwiseForm(kind='cross_entropy', positive_weight=2.0, negative_weight=1.0, first=0.0, second=0.0)
    """

    kind: str
    positive_weight: float = 1.0
    negative_weight: float = 1.0
    first: float = 0.0
    second: float = 0.0

    def scaled(self, positives: float, negatives: float) -> PointwiseForm:
        """Return the form with the weights of the classes multiplied."""
        return self._replace(
            positive_weight=self.positive_weight * positives, negative_weight=self.negative_weight * negatives
        )


def kernel_applies(logits: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    """Return whether a kernel can take these tensors: in eager mode, with a gradient for the logits only."""
    return not (
        type(logits) is not Tensor  # subclasses may have no memory
        or target.requires_grad
        or (weight is not None and weight.requires_grad)
        or torch.compiler.is_compiling()
        or is_transformed()
        or not (_is_on_cpu(logits) or _takes_triton(logits))
    )


def weighted_sum(
    logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float, plain: PlainSum
) -> Tensor:
    """Return the weighted sum of the losses times ``scale``.

    Args:
        logits: Logits of any shape, for which ``kernel_applies``.
        target: Labels from 0 to 1, of the same shape and type.
        weight: Weights of the same shape and type, or None.
        form: The loss.
        scale: A factor.
        plain: The same sum without the factor in plain operations, for gradients of the gradient.

    Returns:
        The sum, a scalar with a gradient.
    """
    if logits.requires_grad and torch.is_grad_enabled():
        return _apply(logits, (target, weight, form, scale, plain))  # type: ignore
    return _sum_and_gradient(logits, target, weight, form, scale, False)[0]


def _sum_and_gradient(
    logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the sum and, on the CPU if it is wanted, the gradient of the logits.

    The sum is NaN if a label is out of range, and NaN or infinite if a logit is, except for absolute errors.
    """
    if logits.is_cuda:
        from metricfit.core.kernels.triton import pointwise

        return pointwise.weighted_sum(logits, target, weight, form, scale), None
    if logits.dim() == 1 and logits.numel() <= SHORT and torch.equal(target * target, target):
        return _terms(logits, target, weight, form, scale, with_gradient)
    x, y, w = logits.reshape(-1), target.reshape(-1), None if weight is None else weight.reshape(-1)
    slopes = torch.empty(x.shape, dtype=x.dtype, device=x.device) if with_gradient else None
    value = torch.tensor(_sum_blocks(x, y, w, form, scale, slopes), dtype=x.dtype, device=x.device)
    return value, None if slopes is None else slopes.view(logits.shape)


def _is_on_cpu(logits: Tensor) -> bool:
    return logits.is_cpu and logits.dtype in (torch.float32, torch.float64)


def _takes_triton(logits: Tensor) -> bool:
    """Return whether Triton's programs are for these logits: float32 on a CUDA device."""
    return triton.runs_on(logits) and logits.dtype == torch.float32 and 0 < logits.numel() < 2**31


class _WeightedSum(torch.autograd.Function):
    """The autograd function of the closed forms; never used under transformations, which need plain operations."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, batch: tuple[Any, ...]) -> Tensor:
        target, weight, form, scale, _ = ctx.batch = batch  # one argument, because each costs time in every call
        ctx.save_for_backward(logits)
        value: Tensor
        value, ctx.gradient = _sum_and_gradient(logits, target, weight, form, scale, True)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # With gradients enabled this backward is itself differentiated, and for several gradients at once it is
        # vmapped. Both need plain operations.
        if torch.is_grad_enabled() or not has_storage(grad):
            return _plain_gradient(ctx, grad), None
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:  # a second backward pass, or one on a CUDA device
            (logits,), (target, weight, form, scale, _) = ctx.saved_tensors, ctx.batch
            return _gradient(logits, target, weight, form, scale, grad), None
        # Nobody else holds it, so it can be changed in place; mostly the factor is 1.
        return gradient if grad.item() == 1.0 else gradient.mul_(grad), None


#: ``_WeightedSum.apply`` without its search for transforms, which ``kernel_applies`` excludes.
_apply = super(torch.autograd.Function, _WeightedSum).apply


def _plain_gradient(ctx: Any, grad: Tensor) -> Tensor:
    (logits,) = ctx.saved_tensors
    target, weight, _, scale, plain = ctx.batch
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(plain(logits, target, weight) * scale, logits, create_graph=True)
    gradient: Tensor = slope * grad
    return gradient


def _gradient(
    logits: Tensor, target: Tensor, weight: Tensor | None, form: PointwiseForm, scale: float, grad: Tensor
) -> Tensor:
    """Return the gradient of the logits, from the gradient of the sum."""
    if logits.is_cuda:
        from metricfit.core.kernels.triton import pointwise

        return pointwise.gradient(logits, target, weight, form, scale, grad)
    gradient = _sum_and_gradient(logits, target, weight, form, scale, True)[1]
    assert gradient is not None
    return gradient.mul_(grad)


def _is_hard(target: Tensor) -> bool:
    """Return whether all labels are 0 or 1. An infinite label may pass; it makes the sum infinite or NaN."""
    if target.numel() <= SHORT:
        return torch.equal(target * target, target)
    low, high = torch.aminmax(torch.addcmul(target, target, target, value=-1))
    return low.item() == 0.0 == high.item()


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
    if _is_hard(y):
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
    if kind == "absolute_error":  # which is bounded, so that infinite logits are allowed
        z = torch.add(_number(1.0, x.dtype), y, alpha=-2).mul_(x)
    else:  # NaN if x is infinite: on its right side the loss would be 0 and hide it
        z = torch.addcmul(x, y, x, value=-2)
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
    losses = torch.sigmoid(z).mul_(_number(2.0, z.dtype))
    return losses, z.neg_().sigmoid_().mul_(losses) if with_slopes else None


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
