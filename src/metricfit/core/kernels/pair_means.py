"""Means over all pairs of a positive and a negative, for losses.

On a CUDA device Triton programs compute the mean together with its gradient. The time of few samples is that of
starting programs, and so there is only one for them, which compares all pairs: 10^8 pairs take 0.15 ms on an H200.
On the CPU ``pairs_merged`` does so for one long row. Otherwise ``violations`` sorts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import pairs_merged, pairs_triton
from metricfit.core.kernels.pairs import violations
from metricfit.core.numerics import ratio
from metricfit.core.validation import check_finite, looks_at_values


def pair_means(score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int) -> Tensor:
    """Return the mean of ``max(0, margin - (f_+ - f_-))^power`` over the pairs of each row; 0 without pairs.

    Args:
        score: The scores, ``(..., n)``.
        positive: The weight of each sample as a positive, ``(..., n)``, of any type.
        negative: The weight of each sample as a negative; None for 1 minus that as a positive.
        margin: How far a positive should be above a negative.
        power: The exponent: 1, 2 or 3.

    Returns:
        The means, ``(...)``.

    Raises:
        DivergedError: If scores are not finite and values are checked.

    Example:
        >>> pair_means(torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.0]), None, 1.0, 2)
        tensor(0.2500)
    """
    if (kernel := _fused_kernel(score, positive, negative)) is not None:
        means: Tensor = _FusedMeans.apply(score, positive, negative, margin, power, kernel)  # type: ignore[no-untyped-call]
        if looks_at_values(score, None):
            check_finite(means.detach(), score)
        return means
    return _means(score, positive, negative, margin, power)


def _means(score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int) -> Tensor:
    positive = positive.to(score.dtype)
    negative = 1 - positive if negative is None else negative
    sums = violations(score, negative, margin, power)
    if looks_at_values(score, None):
        check_finite(sums.detach(), score)
    return ratio((positive * sums).sum(-1), positive.sum(-1) * negative.sum(-1))


def _fused_kernel(score: Tensor, positive: Tensor, negative: Tensor | None) -> Any:
    """Return the module that computes the mean with its gradient: eagerly, and with a gradient of the scores only."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    if positive.requires_grad or (negative is not None and negative.requires_grad):
        return None
    return next((kernel for kernel in (pairs_triton, pairs_merged) if kernel.handles(score)), None)


class _FusedMeans(torch.autograd.Function):
    """The means with the gradient that was computed with them; outside of torch's transforms."""

    @staticmethod
    def forward(
        ctx: Any, score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int, kernel: Any
    ) -> Tensor:
        means: Tensor
        means, gradient = kernel.means(score, positive, negative, margin, power)
        ctx.save_for_backward(score, positive, negative, gradient)
        ctx.margin, ctx.power = margin, power
        return means

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        score, positive, negative, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # this backward is itself differentiated
            means = _means(score, positive, negative, ctx.margin, ctx.power)
            (of_score,) = torch.autograd.grad(means, score, grad, create_graph=True)
        else:
            of_score = grad.unsqueeze(-1) * gradient
        return of_score, None, None, None, None, None
