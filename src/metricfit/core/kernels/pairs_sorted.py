"""Sums over the pairs of one set of scores in plain operations: one sort and one search, O(n) memory.

Queries and points are the same samples, the points higher by the margin, so that one order serves both. The moments
are those of ``pairs``: those of the samples from the highest down for the sums, from the lowest up for the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.numerics import exact_dtype, has_storage

BINOMIAL = ((1,), (1, 1), (1, 2, 1), (1, 3, 3, 1))


def sums(score: Tensor, weight: Tensor, margin: float, power: int) -> tuple[Tensor, ...]:
    """Return ``sum_j w_j max(0, f_j + m - f_i)^r`` for each score, and what ``gradient`` needs.

    Args:
        score: ``(rows, n)``.
        weight: ``(rows, n)``.
        margin: The number m.
        power: The exponent r, from 1 to 3.

    Returns:
        The sums, then in falling order of the scores: the sums of the power r - 1, the scores, the weights, the order,
        and the number of points above each query.
    """
    exact = exact_dtype(score.device)
    order = sorting_order(-score)
    y, w = select(score, order).to(exact), select(weight, order).to(exact)
    points = y + margin
    above = torch.searchsorted(-points, -y)
    nearest = (above - 1).clamp_(min=0)
    gap = select(points, nearest).sub_(y)
    moments = [select(moment, nearest) for moment in scan_moments(-y.diff(dim=-1), w, power)]
    nothing = above == 0  # without a margin, or one that rounding makes 0
    # 0 times NaN, or infinity, is NaN. Sorting puts these at an end.
    flaw = 0.0 * (y[..., :1] + y[..., -1:])
    if score.dtype == torch.float64:
        flaw = flaw + 0.0 * (points[..., :1] - y).relu_() ** power
    total = binomial_sum(power, gap, moments).masked_fill_(nothing, 0.0)
    lower = binomial_sum(power - 1, gap, moments[:-1]).masked_fill_(nothing, 0.0).add_(flaw)
    return _unsort(total.add(total, alpha=0.0).add_(flaw).to(score.dtype), order), lower, y, w, order, above


def gradient(
    upstream: Tensor, lower: Tensor, y: Tensor, w: Tensor, order: Tensor, above: Tensor, margin: float, power: int
) -> Tensor:
    """Return the gradient of the scores, from the gradient of the sums and what ``sums`` returned."""
    g = select(upstream, order).to(y.dtype)
    first = queries_below(above, y.shape[-1])
    last = y.shape[-1] - 1
    nearest = first.clamp(max=last)
    gap = torch.add(y, margin).sub_(select(y, nearest))
    from_lowest = last - nearest
    steps = -y.diff(dim=-1).flip(-1)
    moments = [select(moment, from_lowest) for moment in scan_moments(steps, g.flip(-1), power - 1)]
    as_point = binomial_sum(power - 1, gap, moments).masked_fill_(first > last, 0.0).mul_(w)
    result = as_point.sub_(g.mul_(lower)).mul_(power)
    return _unsort(result.to(upstream.dtype), order)


def weight_ranks(score: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of all samples with a higher score than each one, and of those with the same score.

    Args:
        score: ``(..., n)``.
        weight: ``(..., n)``.

    Returns:
        Two tensors ``(..., n)`` of the type of exact sums, without gradients. Scores must not be NaN.

    Example:
        >>> weight_ranks(torch.tensor([1.0, 3.0, 1.0]), torch.tensor([1.0, 2.0, 4.0]))
        (tensor([2., 0., 2.], dtype=torch.float64), tensor([5., 2., 5.], dtype=torch.float64))
    """
    lowered = -score.detach()
    order = sorting_order(lowered)
    rising = lowered.gather(-1, order)
    total = torch.nn.functional.pad(weight.detach().to(exact_dtype(score.device)).gather(-1, order).cumsum(-1), (1, 0))
    higher = total.gather(-1, torch.searchsorted(rising, rising))
    same = total.gather(-1, torch.searchsorted(rising, rising, right=True)) - higher
    return _unsort(higher, order), _unsort(same, order)


def queries_below(above: Tensor, points: int) -> Tensor:
    """Return the number of queries that do not exceed each point, given the points above each query.

    Point j exceeds the queries with more than j points above them.
    """
    queries_with = above.new_zeros(*above.shape[:-1], points + 1)
    return queries_with.scatter_add_(-1, above, torch.ones_like(above)).cumsum(-1)[..., :-1]


def scan_moments(steps: Tensor, w: Tensor, highest: int) -> list[Tensor]:
    """Return the moments of the first points up to each one about this one, of the powers 0 to ``highest``.

    Args:
        steps: The distances from each point to the next, ``(..., n - 1)``.
        w: The weights of the points, ``(..., n)``.
        highest: The highest power.
    """
    moments = [w.cumsum(-1)]
    for k in range(1, highest + 1):
        gained = binomial_sum(k, steps, [moment[..., :-1] for moment in moments])
        moments.append(torch.nn.functional.pad(gained.cumsum(-1), (1, 0)))
    return moments


def binomial_sum(power: int, base: Tensor, moments: list[Tensor]) -> Tensor:
    """Sum ``binomial(power, k) base^(power - k) moment_k`` over the k of the moments, by Horner's rule."""
    total = moments[0]
    for k, moment in enumerate(moments[1:], start=1):
        total = torch.add(total * base, moment, alpha=BINOMIAL[power][k])
    return total if len(moments) > power else total * base


def sorting_order(values: Tensor) -> Tensor:
    """Return the indices that sort the values, the smallest first and NaN at an end.

    On the CPU torch sorts integers by radix: one long row takes a tenth of the time of floating point numbers.
    """
    values = values.detach()
    one_row = values.device.type == "cpu" and values.numel() == values.shape[-1]
    if torch.compiler.is_compiling() or not one_row or not has_storage(values):
        return torch.sort(values, dim=-1).indices
    return torch.sort(sorting_keys(values.reshape(-1))).indices.reshape(values.shape)


def sorting_keys(values: Tensor) -> Tensor:
    """Return integers in the order of floating point numbers of one row.

    The bits of a floating point number, read as an integer, rise with the number above 0 and fall below 0, where all
    bits but the sign are therefore inverted.
    """
    integer = torch.int32 if values.dtype == torch.float32 else torch.int64
    bits = values.contiguous().view(integer)
    return torch.where(bits < 0, bits ^ torch.iinfo(integer).max, bits)


def select(values: Tensor, index: Tensor) -> Tensor:
    """Return the values of each row at the positions of its index; of one row, by the quickest operation for that."""
    if values.numel() == values.shape[-1] and values.numel() == index.numel():
        return values.reshape(-1).index_select(0, index.reshape(-1)).reshape(values.shape)
    return values.gather(-1, index)


def _unsort(values: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(values).scatter(-1, order, values)
