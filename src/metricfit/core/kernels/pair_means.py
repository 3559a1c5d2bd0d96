"""Means over all pairs of a positive and a negative, for losses.

On a CUDA device Triton programs compute the mean together with its gradient. The time of few samples is that of
starting programs, and so there is only one for them, which compares all pairs: 10^8 pairs take 0.15 ms on an H200.
Otherwise ``violations`` sorts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import pairs_triton
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
    if _is_fused(score, positive, negative):
        means: Tensor = _FusedMeans.apply(score, positive, negative, margin, power)  # type: ignore[no-untyped-call]
        return means
    return _means(score, positive, negative, margin, power)


def _means(score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int) -> Tensor:
    positive = positive.to(score.dtype)
    negative = 1 - positive if negative is None else negative
    sums = violations(score, negative, margin, power)
    if looks_at_values(score, None):
        check_finite(sums.detach(), score)
    return ratio((positive * sums).sum(-1), positive.sum(-1) * negative.sum(-1))


def _is_fused(score: Tensor, positive: Tensor, negative: Tensor | None) -> bool:
    """Return whether Triton programs compute the mean: eagerly, and with a gradient of the scores only."""
    if score.device.type != "cuda" or torch.compiler.is_compiling():
        return False
    return (
        pairs_triton.handles(score)
        and torch._C._functorch.peek_interpreter_stack() is None
        and not (positive.requires_grad or (negative is not None and negative.requires_grad))
    )


class _FusedMeans(torch.autograd.Function):
    """The means with the gradient that was computed with them; outside of torch's transforms."""

    @staticmethod
    def forward(
        ctx: Any, score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int
    ) -> Tensor:
        means, gradient = pairs_triton.means(score, positive, negative, margin, power)
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
        return of_score, None, None, None, None
