"""Sums over all pairs of few scores, with the pairs: O(n^2), but fewer operations than a sort needs."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.numerics import exact_dtype


def sums(score: Tensor, weight: Tensor, margin: float, power: int) -> tuple[Tensor, ...]:
    """Return ``sum_j w_j max(0, f_j + m - f_i)^r`` for each score, then these sums for the power r - 1, and the gaps.

    Args:
        score: ``(rows, n)``.
        weight: ``(rows, n)``.
        margin: The number m.
        power: The exponent r, from 1 to 3.
    """
    f, w = (tensor.to(exact_dtype(score.device)) for tensor in (score, weight))
    gaps = (f + margin).unsqueeze(-2) - f.unsqueeze(-1)
    flaw = (0.0 * f).sum(-1, keepdim=True)  # 0 times NaN, or infinity, is NaN
    terms = _powers(gaps, power - 1)
    lower = (terms @ w.unsqueeze(-1)).squeeze(-1) + flaw
    total = ((terms * gaps) @ w.unsqueeze(-1)).squeeze(-1)
    return torch.add(total, total, alpha=0.0).add_(flaw).to(score.dtype), lower, terms, w


def gradient(upstream: Tensor, lower: Tensor, terms: Tensor, w: Tensor, margin: float, power: int) -> Tensor:
    """Return the gradient of the scores, from the gradient of the sums and what ``sums`` returned."""
    g = upstream.to(lower.dtype)
    as_point = (g.unsqueeze(-2) @ terms).squeeze(-2)
    return as_point.mul_(w).sub_(g * lower).mul_(power).to(upstream.dtype)


def _powers(gaps: Tensor, power: int) -> Tensor:
    """Return the powers of the gaps above 0, and 0 for the others."""
    return (gaps > 0).to(gaps.dtype) if power == 0 else torch.relu(gaps) ** power
