"""Sums over all pairs by sorting: O((m + n) log n) time and O(m + n) memory, instead of O(m n) of both.

For queries x_i and weighted points y_j the sums are

    s_i = sum_j w_j max(0, y_j - x_i)^r.

Sort the points in falling order, y_1 >= y_2 >= ..., and let T_k(i) = sum_{j <= i} w_j (y_j - y_i)^k be the moments of
the first i points about the i-th. For the next point, with d = y_i - y_{i+1}, the binomial theorem gives

    T_0(i+1) = T_0(i) + w_{i+1},      T_k(i+1) = T_k(i) + sum_{l < k} binomial(k, l) d^(k-l) T_l(i),

so each T_k is a cumulative sum of terms of the lower ones. Likewise, for a query whose lowest point above it is y_i,

    s = sum_k binomial(r, k) (y_i - x)^(r-k) T_k(i),

and a binary search finds i. With weights of at least 0 every term is at least 0, so nothing cancels, and small sums are
as exact as large ones. (Cumulative sums of w y^k about 0 would lose all digits of a small sum.) The derivatives are
sums of the same kind, with r - 1 instead of r and, for the points, with queries and points exchanged:

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

#: Up to this number of pairs, over all rows and vmapped members, computing all pairs is as fast as sorting (measured on
#: a CPU, forward and backward, for one row and for many). In float64 they take half a megabyte.
FEW = 2**16


def violations(score: Tensor, opposite: Tensor, margin: float, power: int, per: str = "positive") -> Tensor:
    """Return how much each sample violates the order of the classes: ``sum max(0, margin - (f_+ - f_-))^r``.

    With ``per="positive"`` each sample is treated as a positive, and the sum is over the negatives: ``opposite`` is the
    weight of each sample as a negative. With ``per="negative"`` it is the other way round. Scores ``(..., n)`` give
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
    """Return ``sum_j w_j max(0, y_j - x_i)^r`` for each query, ``(..., m)`` for points ``(..., n)``; r is 0 to 3.

    Leading axes broadcast. The sums are computed in float64 and returned in the type of queries and points, at least
    float32; integers give float64. With r = 0 it is the weight of the points above each query, and only the weights
    have a gradient. Without points the sum is 0. Scores must be finite: the sum of a NaN or infinite query is NaN, and
    so are all sums of a row with such a point. A sum is also NaN if it, or the r-th power of the largest gap, overflows
    float64.

    >>> hinge_sums(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 3.0]), torch.ones(2), power=1)
    tensor([4., 1.])
    """
    if power not in POWERS:
        raise InvalidValueError(f"sums over pairs are of powers 0, 1, 2 or 3, got {power}")
    dtype = _summing_dtype(queries, points)
    rows = torch.broadcast_shapes(queries.shape[:-1], points.shape[:-1], weight.shape[:-1])  # type: ignore[no-untyped-call]
    x = queries.to(dtype).expand(*rows, -1)
    y, w = (tensor.to(dtype).expand(*rows, points.shape[-1]) for tensor in (points, weight))
    rising, falling, above = _orders(x.detach(), y.detach())
    if above.shape[-1] == 0:
        return _sums(x, y, w, power, None)
    x, y, w = x.gather(-1, rising), y.gather(-1, falling), w.gather(-1, falling)
    return torch.empty_like(x).scatter(-1, rising, _sums(x, y, w, power, above))


def _summing_dtype(queries: Tensor, points: Tensor) -> torch.dtype:
    if queries.is_floating_point() and points.is_floating_point():
        return counting_dtype(torch.promote_types(queries.dtype, points.dtype))
    return exact_dtype(points.device)  # float32 does not distinguish integers from 2**24 on


Orders = tuple[Tensor, Tensor, Tensor]


def _orders(queries: Tensor, points: Tensor) -> Orders:
    """Return the rising order of queries, the falling order of points, and the number of points above each query.

    All three are empty if there are few pairs. Under a compiler, which sees one member of a vmapped function, this
    means few pairs per member.
    """
    if torch.compiler.is_compiling():
        return _compute_orders(queries, points)
    orders: Orders = _Orders.apply(queries, points)  # type: ignore[no-untyped-call]
    return orders


def _compute_orders(queries: Tensor, points: Tensor) -> Orders:
    if queries.numel() * points.shape[-1] <= FEW:
        none = torch.empty(*queries.shape[:-1], 0, dtype=torch.int64, device=queries.device)
        return none, none.clone(), none.clone()
    rising, falling = _order(queries), _order(-points)
    return rising, falling, torch.searchsorted(-points.gather(-1, falling), -queries.gather(-1, rising))


class _Orders(torch.autograd.Function):
    """A Function, so that the rule for vmap can count the pairs of all members before anything is sorted."""

    @staticmethod
    def forward(queries: Tensor, points: Tensor) -> Orders:
        return _compute_orders(queries, points)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Orders) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Orders, tuple[int, int, int]]:
        """Make the vmapped axis a leading one."""
        x, y = (leading(tensor, dim, info.batch_size) for tensor, dim in zip(inputs, in_dims, strict=True))
        return _Orders.apply(x, y), (0, 0, 0)  # type: ignore[no-untyped-call]


def _order(values: Tensor) -> Tensor:
    """Return the indices that sort the values, the smallest first and NaN at an end.

    On the CPU torch sorts integers by radix: one long row takes a tenth of the time of floating point numbers. The bits
    of a floating point number, read as an integer, rise with the number above 0 and fall below 0, where all bits but
    the sign are therefore inverted.
    """
    values = values.detach()
    one_row = values.device.type == "cpu" and values.numel() == values.shape[-1]
    if torch.compiler.is_compiling() or not one_row or not has_storage(values):
        return torch.sort(values, dim=-1).indices
    integer = torch.int32 if values.dtype == torch.float32 else torch.int64
    bits = values.reshape(-1).contiguous().view(integer)
    highest = torch.iinfo(integer).max
    return torch.sort(torch.where(bits < 0, bits ^ highest, bits)).indices.reshape(values.shape)


def _sums(queries: Tensor, points: Tensor, weight: Tensor, power: int, above: Tensor | None) -> Tensor:
    """Sum over sorted queries and points, given the number of points above each query; None sums over all pairs."""
    if torch.compiler.is_compiling():  # plain operations for a compiler, for the reason given in ``soft_counts``
        return _forward(queries, points, weight, power, above)
    sums: Tensor = _HingeSums.apply(queries, points, weight, power, above)  # type: ignore[no-untyped-call]
    return sums


def _forward(queries: Tensor, points: Tensor, weight: Tensor, power: int, above: Tensor | None) -> Tensor:
    exact = exact_dtype(points.device)
    x, y, w = queries.to(exact), points.to(exact), weight.to(exact)
    if above is None:
        sums, ends = _all_pairs(x, y, w, power), y
    else:  # sorting puts NaN at an end
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
    """Sum ``binomial(power, k) base^(power - k) moment_k`` over the k of the moments, by Horner's rule."""
    total = BINOMIAL[power][0] * moments[0]
    for k, moment in enumerate(moments[1:], start=1):
        total = total * base + BINOMIAL[power][k] * moment
    return total if len(moments) > power else total * base


def _below(above: Tensor, points: int) -> Tensor:
    """Return how many queries each point exceeds: point j exceeds the queries with more than j points above them."""
    queries_with = above.new_zeros(*above.shape[:-1], points + 1).scatter_add(-1, above, torch.ones_like(above))
    return above.shape[-1] - queries_with.cumsum(-1)[..., :-1]


class _HingeSums(torch.autograd.Function):
    """The sums with closed-form gradients, which are such sums themselves and can be differentiated again.

    Rising queries and falling points keep their orders if they are exchanged and their signs are changed. The gradients
    therefore use the same two sorts and the same search.
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
        """Make the vmapped axis a leading one."""
        x, y, w, power, above = (
            leading(value, dim, info.batch_size) if isinstance(value, Tensor) else value
            for value, dim in zip(inputs, in_dims, strict=True)
        )
        return _HingeSums.apply(x, y, w, power, above), 0  # type: ignore[no-untyped-call]
