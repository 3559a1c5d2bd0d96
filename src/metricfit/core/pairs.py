"""Sums over all pairs by sorting: O((m + n) log n) time and O(m + n) memory where all pairs take m n of both.

For queries x_i and weighted points y_j,

    s_i = sum_j w_j max(0, y_j - x_i)^r = sum_k binomial(r, k) (-x_i)^(r-k) sum_{j: y_j > x_i} w_j y_j^k,

so one sort of the points, r + 1 cumulative sums along it and a binary search for each query give every s_i exactly. The
derivatives are sums of the same kind, with r - 1 for r and, for the points, queries and points exchanged:

    ds_i/dx_i = -r sum_j w_j max(0, y_j - x_i)^(r-1)
    sum_i g_i ds_i/dy_j = r w_j sum_i g_i max(0, y_j - x_i)^(r-1).

The powers are taken of values centred on the points' mean, in float64, and the sums run from the largest point down, so
that a query near the top adds few terms and cancels none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.numerics import exact_dtype, leading

BINOMIAL = ((1,), (1, 1), (1, 2, 1), (1, 3, 3, 1))

#: Below this many points all pairs at once are as fast as a sort.
FEW = 256


def hinge_sums(queries: Tensor, points: Tensor, weight: Tensor, power: int) -> Tensor:
    """``sum_j w_j max(0, y_j - x_i)^r`` for every query, ``(..., m)`` of points ``(..., n)``; r from 0 to 3.

    At r = 0 it is the weight of the points above each query, and has no gradient but the weights'.

    >>> hinge_sums(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 3.0]), torch.ones(2), power=1)
    tensor([4., 1.])
    """
    if points.shape[-1] <= FEW:
        return _all_pairs(queries, points, weight, power)
    if torch.compiler.is_compiling():  # plain operations for a compiler, for the reason given in ``soft_counts``
        return _sorted(queries, points, weight, power)
    sums: Tensor = _HingeSums.apply(queries, points, weight, power)  # type: ignore[no-untyped-call]
    return sums


def _all_pairs(queries: Tensor, points: Tensor, weight: Tensor, power: int) -> Tensor:
    gaps = points.unsqueeze(-2) - queries.unsqueeze(-1)
    terms = (gaps > 0).to(gaps.dtype) if power == 0 else torch.relu(gaps) ** power
    return (terms * weight.unsqueeze(-2)).sum(-1)


def _sorted(queries: Tensor, points: Tensor, weight: Tensor, power: int) -> Tensor:
    exact = exact_dtype(points.device)
    x, y, w = queries.to(exact), points.to(exact), weight.to(exact)
    centre = y.mean(-1, keepdim=True)
    x, y = x - centre, y - centre
    falling, order = torch.sort(-y, dim=-1)  # as it falls, -y rises, which is what searchsorted wants
    w = w.expand(y.shape).gather(-1, order)
    above = torch.searchsorted(falling, -x)  # how many points exceed each query
    total = torch.zeros_like(x)
    term = w
    for k in range(power + 1):
        sums = torch.cat([term.new_zeros(*term.shape[:-1], 1), term.cumsum(-1)], -1).gather(-1, above)
        total = total + BINOMIAL[power][k] * (-x) ** (power - k) * sums
        term = term * -falling
    return total.to(queries.dtype)


class _HingeSums(torch.autograd.Function):
    """The sorted sums with their closed-form gradients, themselves such sums and so differentiable again."""

    @staticmethod
    def forward(queries: Tensor, points: Tensor, weight: Tensor, power: int) -> Tensor:
        return _sorted(queries, points, weight, power)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        queries, points, weight, ctx.power = inputs
        ctx.save_for_backward(queries, points, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, points, weight = ctx.saved_tensors
        r = ctx.power
        of_queries = of_points = of_weight = None
        if r and ctx.needs_input_grad[0]:
            of_queries = -r * grad * hinge_sums(queries, points, weight, r - 1)
        if r and ctx.needs_input_grad[1]:
            of_points = r * weight * hinge_sums(-points, -queries, grad, r - 1)
        if ctx.needs_input_grad[2]:
            of_weight = hinge_sums(-points, -queries, grad, r)
        return of_queries, of_points, of_weight, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """A vmapped axis becomes a leading one."""
        tensors = [leading(given, dim, info.batch_size) for given, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        return _HingeSums.apply(*tensors, inputs[3]), 0  # type: ignore[no-untyped-call]
