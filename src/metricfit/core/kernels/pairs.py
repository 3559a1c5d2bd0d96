"""Sums over all pairs by sorting: O((m + n) log n) time and O(m + n) memory where all pairs take m n of both.

For queries x_i and weighted points y_j the sums are

    s_i = sum_j w_j max(0, y_j - x_i)^r.

Sort the points from the largest down, y_1 >= y_2 >= ..., and let T_k(i) = sum_{j <= i} w_j (y_j - y_i)^k be the moments
of the points so far about the last of them. One step down, by d = y_i - y_{i+1}, the binomial theorem gives

    T_0(i+1) = T_0(i) + w_{i+1},      T_k(i+1) = T_k(i) + sum_{l < k} binomial(k, l) d^(k-l) T_l(i),

so each T_k is a cumulative sum of what the lower ones give. A query with y_i the lowest point above it has, likewise,

    s = sum_k binomial(r, k) (y_i - x)^(r-k) T_k(i),

and a binary search finds i. With weights of at least 0 every term is at least 0: nothing cancels, and small sums are as
exact as large ones wherever the scores lie. (Cumulative sums of w y^k, expanded about 0, lose all digits of a small
sum.) The derivatives are sums of the same kind, with r - 1 for r and, for the points, queries and points exchanged:

    ds_i/dx_i = -r sum_j w_j max(0, y_j - x_i)^(r-1)
    sum_i g_i ds_i/dy_j = r w_j sum_i g_i max(0, y_j - x_i)^(r-1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.numerics import counting_dtype, exact_dtype, has_storage, leading
from metricfit.errors import InvalidValueError, quote

POWERS = (0, 1, 2, 3)
BINOMIAL = ((1,), (1, 1), (1, 2, 1), (1, 3, 3, 1))

#: Up to this many pairs, over all rows and vmapped members together, all of them at once are as fast as a sort:
#: measured on a CPU, forward and backward, for one row and for many. In float64 they take half a megabyte.
FEW = 2**16


def violations(score: Tensor, opposite: Tensor, margin: float, power: int, per: str = "positive") -> Tensor:
    """By how much each sample is on the wrong side of the other class: ``sum max(0, margin - (f_+ - f_-))^r``.

    With ``per="positive"`` every sample is taken for a positive and the sum is over the negatives, ``opposite`` being
    how much each sample counts as a negative; with ``per="negative"`` the other way round. Scores ``(..., n)`` give
    ``(..., n)``. The margin is added in float64.

    >>> violations(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), margin=1.0, power=1)
    tensor([2., 1.])
    >>> violations(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), margin=1.0, power=1, per="negative")
    tensor([1., 2.])
    """
    f = score.to(exact_dtype(score.device))
    if per == "positive":
        sums = hinge_sums(f, f + margin, opposite, power)
    elif per == "negative":
        sums = hinge_sums(-(f + margin), -f, opposite, power)
    else:
        raise InvalidValueError(f'per must be "positive" or "negative", got {quote(per)}')
    return sums.to(counting_dtype(score.dtype))


def hinge_sums(queries: Tensor, points: Tensor, weight: Tensor, power: int) -> Tensor:
    """``sum_j w_j max(0, y_j - x_i)^r`` for every query, ``(..., m)`` of points ``(..., n)``; r from 0 to 3.

    Leading axes broadcast. The sums are made in float64 and given in the type of queries and points, at least float32;
    whole numbers give float64. At r = 0 it is the weight of the points above each query, and has no gradient but the
    weights'. No points give 0. Scores must be finite: a NaN or infinite query's sum is NaN, and so are all sums of a
    row with such a point. Where a sum, or the r-th power of the largest gap, is beyond float64, the sum is NaN too.

    >>> hinge_sums(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 3.0]), torch.ones(2), power=1)
    tensor([4., 1.])
    """
    if power not in POWERS:
        raise InvalidValueError(f"sums over pairs are of powers 0, 1, 2 or 3, got {power}")
    dtype = _summing_dtype(queries, points)
    rows = torch.broadcast_shapes(queries.shape[:-1], points.shape[:-1], weight.shape[:-1])  # type: ignore[no-untyped-call]
    x = queries.to(dtype).expand(*rows, -1)
    y, w = (given.to(dtype).expand(*rows, points.shape[-1]) for given in (points, weight))
    rising, falling, above = _orders(x.detach(), y.detach())
    if above.shape[-1] == 0:
        return _sums(x, y, w, power, None)
    x, y, w = x.gather(-1, rising), y.gather(-1, falling), w.gather(-1, falling)
    return torch.empty_like(x).scatter(-1, rising, _sums(x, y, w, power, above))


def _summing_dtype(queries: Tensor, points: Tensor) -> torch.dtype:
    if queries.is_floating_point() and points.is_floating_point():
        return counting_dtype(torch.promote_types(queries.dtype, points.dtype))
    return exact_dtype(points.device)  # float32 tells no whole numbers apart from 2**24 on


Orders = tuple[Tensor, Tensor, Tensor]


def _orders(queries: Tensor, points: Tensor) -> Orders:
    """The rising order of queries, the falling one of points, how many points exceed each query; empty for few pairs.

    A compiler sees one member of a vmapped function alone, and there few means few for each.
    """
    if torch.compiler.is_compiling():
        return _orders_of_all(queries, points)
    orders: Orders = _Orders.apply(queries, points)  # type: ignore[no-untyped-call]
    return orders


def _orders_of_all(queries: Tensor, points: Tensor) -> Orders:
    if queries.numel() * points.shape[-1] <= FEW:
        none = torch.empty(*queries.shape[:-1], 0, dtype=torch.int64, device=queries.device)
        return none, none.clone(), none.clone()
    rising, falling = _order(queries), _order(-points)
    return rising, falling, torch.searchsorted(-points.gather(-1, falling), -queries.gather(-1, rising))


class _Orders(torch.autograd.Function):
    """What to sort is decided in a Function so that vmap's rule can put all members together first."""

    @staticmethod
    def forward(queries: Tensor, points: Tensor) -> Orders:
        return _orders_of_all(queries, points)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Orders) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Orders, tuple[int, int, int]]:
        """A vmapped axis becomes a leading one."""
        x, y = (leading(given, dim, info.batch_size) for given, dim in zip(inputs, in_dims, strict=True))
        return _Orders.apply(x, y), (0, 0, 0)  # type: ignore[no-untyped-call]


def _order(given: Tensor) -> Tensor:
    """Where the values stand in the order of their size, the smallest first and NaN at an end.

    Whole numbers torch sorts on the CPU by radix, one long row in a tenth of the time that floating point takes. The
    bits of a floating point number, read as a whole number, rise with it above 0; below 0 they fall, so all but the
    sign are turned over.
    """
    given = given.detach()
    one_row = given.device.type == "cpu" and given.numel() == given.shape[-1]
    if torch.compiler.is_compiling() or not one_row or not has_storage(given):
        return torch.sort(given, dim=-1).indices
    whole = torch.int32 if given.dtype == torch.float32 else torch.int64
    bits = given.reshape(-1).contiguous().view(whole)
    highest = torch.iinfo(whole).max
    return torch.sort(torch.where(bits < 0, bits ^ highest, bits)).indices.reshape(given.shape)


def _sums(queries: Tensor, points: Tensor, weight: Tensor, power: int, above: Tensor | None) -> Tensor:
    """The sums of rising queries and falling points, knowing how many exceed each query; or, of any, by all pairs."""
    if torch.compiler.is_compiling():  # plain operations for a compiler, for the reason given in ``soft_counts``
        return _forward(queries, points, weight, power, above)
    sums: Tensor = _HingeSums.apply(queries, points, weight, power, above)  # type: ignore[no-untyped-call]
    return sums


def _forward(queries: Tensor, points: Tensor, weight: Tensor, power: int, above: Tensor | None) -> Tensor:
    exact = exact_dtype(points.device)
    x, y, w = queries.to(exact), points.to(exact), weight.to(exact)
    if above is None:
        sums, ends = _all_pairs(x, y, w, power), y
    else:  # NaN is sorted to an end
        sums, ends = _by_moments(x, y, w, power, above), torch.stack([y[..., 0], y[..., -1]], -1)
    sums = sums + 0.0 * sums + 0.0 * x  # 0 times NaN, or infinity, is NaN
    if points.shape[-1]:
        furthest = torch.relu(ends.amax(-1, keepdim=True) - x) ** power
        sums = sums + 0.0 * furthest + (0.0 * ends).sum(-1, keepdim=True)
    return sums.to(queries.dtype)


def _all_pairs(x: Tensor, y: Tensor, w: Tensor, power: int) -> Tensor:
    gaps = y.unsqueeze(-2) - x.unsqueeze(-1)
    terms = (gaps > 0).to(gaps.dtype) if power == 0 else torch.relu(gaps) ** power
    return (terms @ w.unsqueeze(-1)).squeeze(-1)


def _by_moments(x: Tensor, y: Tensor, w: Tensor, power: int, above: Tensor) -> Tensor:
    lowest = (above - 1).clamp(min=0)
    steps = -y.diff(dim=-1)
    moments = [w.cumsum(-1)]
    for k in range(1, power + 1):
        gained = _binomial_sum(k, steps, [moment[..., :-1] for moment in moments])
        moments.append(torch.nn.functional.pad(gained.cumsum(-1), (1, 0)))
    gap = y.gather(-1, lowest) - x
    total = _binomial_sum(power, gap, [moment.gather(-1, lowest) for moment in moments])
    return torch.where(above > 0, total, 0.0)


def _binomial_sum(power: int, base: Tensor, moments: list[Tensor]) -> Tensor:
    """The terms of ``sum_k binomial(power, k) base^(power - k) moment_k`` whose moments are given, by Horner's rule."""
    total = BINOMIAL[power][0] * moments[0]
    for k, moment in enumerate(moments[1:], start=1):
        total = total * base + BINOMIAL[power][k] * moment
    return total if len(moments) > power else total * base


def _below(above: Tensor, points: int) -> Tensor:
    """How many queries each point exceeds: the j-th exceeds those with more than j points above them."""
    queries_with = above.new_zeros(*above.shape[:-1], points + 1).scatter_add(-1, above, torch.ones_like(above))
    return above.shape[-1] - queries_with.cumsum(-1)[..., :-1]


class _HingeSums(torch.autograd.Function):
    """The sums with their closed-form gradients, themselves such sums and so differentiable again.

    Queries that rise and points that fall still do when they are exchanged and change signs: one sort of each, and one
    search, serve the gradients too.
    """

    @staticmethod
    def forward(queries: Tensor, points: Tensor, weight: Tensor, power: int, above: Tensor | None) -> Tensor:
        return _forward(queries, points, weight, power, above)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        queries, points, weight, ctx.power, above = inputs
        ctx.save_for_backward(queries, points, weight, above)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, points, weight, above = ctx.saved_tensors
        r = ctx.power
        of_queries = of_points = of_weight = None
        if r and ctx.needs_input_grad[0]:
            of_queries = -r * grad * _sums(queries, points, weight, r - 1, above)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            below = None if above is None else _below(above, points.shape[-1])
            if r and ctx.needs_input_grad[1]:
                of_points = r * weight * _sums(-points, -queries, grad, r - 1, below)
            if ctx.needs_input_grad[2]:
                of_weight = _sums(-points, -queries, grad, r, below)
        return of_queries, of_points, of_weight, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        """A vmapped axis becomes a leading one."""
        x, y, w, power, above = (
            leading(given, dim, info.batch_size) if isinstance(given, Tensor) else given
            for given, dim in zip(inputs, in_dims, strict=True)
        )
        return _HingeSums.apply(x, y, w, power, above), 0  # type: ignore[no-untyped-call]
