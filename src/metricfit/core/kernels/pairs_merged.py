"""Means over the pairs of one long row of scores on the CPU, with their gradient: one sort of both classes together.

The positives, and the negatives moved up by the margin, are merged into one falling order. Let T_k be the moments of
the negatives down to each place about the score at this place (``pairs`` has the recurrence). At a positive T_r is its
sum over the negatives, so that no search is needed, and -r T_(r-1) is the derivative. For a negative it is r times the
moment of order r - 1 of the positives from below. A positive stands above a negative at the same score: the pair has no
violation, and for r = 1 no derivative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.kernels.pairs_sorted import scan_moments, sorting_keys
from metricfit.core.numerics import differentiates_forward, has_storage, ratio

#: From this number of samples on, one sort is faster than what ``pairs`` has for fewer.
LONG = 2**9


def handles(score: Tensor) -> bool:
    """Return whether the kernel is for these scores: one long row on the CPU, outside of torch's transforms."""
    return (
        score.device.type == "cpu"
        and LONG <= score.shape[-1] == score.numel()
        and not differentiates_forward()
        and has_storage(score)
    )


def means(score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int) -> tuple[Tensor, Tensor]:
    """Return the mean of ``max(0, margin - (f_+ - f_-))^power`` over the pairs, and its gradient.

    Args:
        score: The scores, one row.
        positive: The weight of each sample as a positive, of the same shape.
        negative: The weight of each sample as a negative; None for 1 minus that as a positive.
        margin: How far a positive should be above a negative.
        power: The exponent: 1, 2 or 3.

    Returns:
        The mean, without the axis of the row, and the gradient of the scores. Both are NaN if a score is not finite, or
        if a power of a difference overflows float64.
    """
    f, p = (tensor.detach().reshape(-1).to(torch.float64) for tensor in (score, positive))
    q = 1 - p if negative is None else negative.detach().reshape(-1).to(torch.float64)
    pairs = p.sum() * q.sum()
    flaw = 0.0 * f.sum()  # 0 times NaN, or infinity, is NaN
    n, has_both_roles = len(f), bool((p * q).any())
    if has_both_roles:  # soft labels: each sample is there twice
        nothing = torch.zeros_like(f)
        f, p, q = torch.cat([f, f]), torch.cat([p, nothing]), torch.cat([nothing, q])
    is_negative = q != 0
    lowered = torch.add(f, is_negative, alpha=margin).neg_().add_(0.0)  # 0.0 and -0.0 become equal
    order = torch.sort(sorting_keys(lowered).add_(is_negative)).indices
    steps, p, q = lowered.index_select(0, order).diff(), p.index_select(0, order), q.index_select(0, order)
    above = scan_moments(steps, q, power)
    below = scan_moments(steps.flip(0), p.flip(0), power - 1)[-1].flip(0)
    per_pair = ratio(torch.ones_like(pairs), pairs)
    mean = torch.dot(p, above[power]).mul_(per_pair)
    mean = mean + (0.0 * mean + flaw)
    slopes = q.mul_(below).sub_(p.mul_(above[power - 1])).mul_(power * per_pair)
    gradient = torch.empty_like(slopes).scatter_(0, order, slopes)
    if has_both_roles:
        gradient = gradient[:n] + gradient[n:]
    return mean.to(score.dtype).reshape(score.shape[:-1]), gradient.to(score.dtype).reshape(score.shape)
