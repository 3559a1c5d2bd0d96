"""Sums of pointwise losses in one pass, with a closed-form backward: O(n) time, one array of memory for the gradient.

``pointwise_form`` has the formulas. Plain operations would keep several arrays for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import pointwise_cpu, pointwise_triton
from metricfit.core.kernels.pointwise_form import PointwiseForm
from metricfit.core.numerics import has_storage, is_transformed

#: The same sum in plain operations, of logits, target and weight.
PlainSum = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def kernel_applies(logits: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    """Return whether a kernel can take these tensors: in eager mode, with a gradient for the logits only."""
    return not (
        type(logits) is not Tensor  # subclasses may have no memory of their own
        or target.requires_grad
        or (weight is not None and weight.requires_grad)
        or torch.compiler.is_compiling()
        or is_transformed()
        or not (pointwise_cpu.handles(logits) or pointwise_triton.handles(logits))
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
    if not (logits.requires_grad and torch.is_grad_enabled()):
        return _kernel(logits).weighted_sum(logits, target, weight, form, scale, False)[0]  # type: ignore
    return _apply(logits, (target, weight, form, scale, plain))  # type: ignore


def _kernel(logits: Tensor) -> Any:
    return pointwise_cpu if logits.is_cpu else pointwise_triton


class _WeightedSum(torch.autograd.Function):
    """The autograd function of the closed forms; never used under transformations, which need plain operations."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, batch: tuple[Any, ...]) -> Tensor:
        target, weight, form, scale, _ = ctx.batch = batch  # one argument, because each costs time in every call
        ctx.save_for_backward(logits)
        value: Tensor
        value, ctx.gradient = _kernel(logits).weighted_sum(logits, target, weight, form, scale, True)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # With gradients enabled this backward is itself differentiated, and for several gradients at once it is
        # vmapped. Both need plain operations.
        if torch.is_grad_enabled() or not has_storage(grad):
            return _plain_gradient(ctx, grad), None
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            (logits,) = ctx.saved_tensors
            return _kernel(logits).gradient(logits, *ctx.batch[:4], grad), None
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
