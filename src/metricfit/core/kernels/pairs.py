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

``violations`` is for one set of scores, in which the points are the queries moved up by a margin. It has kernels of its
own: ``pairs_triton`` on CUDA devices, ``pairs_few`` for few pairs, ``pairs_sorted`` otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import pairs_few, pairs_sorted, pairs_triton
from metricfit.core.kernels.pairs_sorted import binomial_sum, queries_below, scan_moments, sorting_order
from metricfit.core.numerics import counting_dtype, exact_dtype, has_storage, leading
from metricfit.errors import InvalidValueError, quote

POWERS = (0, 1, 2, 3)

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
    if per not in ("positive", "negative"):
        raise InvalidValueError(f'per must be "positive" or "negative", got {quote(per)}')
    score, opposite = torch.broadcast_tensors(score, opposite)  # type: ignore[no-untyped-call]
    f = score.to(counting_dtype(score.dtype))
    return _violations(f if per == "positive" else -f, opposite, margin, power)


def _violations(score: Tensor, weight: Tensor, margin: float, power: int) -> Tensor:
    """Return ``sum_j w_j max(0, f_j + m - f_i)^r`` for each score, in the scores' type."""
    # Plain operations for a compiler, for the reason given in ``soft_counts``.
    if torch.compiler.is_compiling() or power == 0 or not score.numel():
        return _plain_violations(score, weight, margin, power)
    sums: Tensor = _Violations.apply(score, weight, margin, power, _kernel(score))[0]  # type: ignore[no-untyped-call]
    return sums


def _plain_violations(score: Tensor, weight: Tensor, margin: float, power: int) -> Tensor:
    f = score.to(exact_dtype(score.device))
    return hinge_sums(f, f + margin, weight, power).to(score.dtype)


def _kernel(score: Tensor) -> Any:
    """Return the module that sums over the pairs of these scores."""
    if pairs_triton.handles(score):
        return pairs_triton
    return pairs_few if score.numel() * score.shape[-1] <= FEW else pairs_sorted


class _Violations(torch.autograd.Function):
    """The sums over pairs of one set of scores, with a closed-form gradient from the same sorted scores."""

    @staticmethod
    def forward(score: Tensor, weight: Tensor, margin: float, power: int, kernel: Any) -> tuple[Tensor, ...]:
        rows = (tensor.reshape(-1, score.shape[-1]) for tensor in (score, weight))
        sums, *rest = kernel.sums(*rows, margin, power)
        return sums.reshape(score.shape), *rest

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        score, weight, ctx.margin, ctx.power, ctx.kernel = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(score, weight, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        score, weight, *sorted_parts = ctx.saved_tensors
        margin, power = ctx.margin, ctx.power
        of_score = of_weight = None
        if grad is None:
            return None, None, None, None, None
        # With gradients enabled this backward is itself differentiated, and for several gradients at once it is
        # vmapped. Both need plain operations.
        if ctx.needs_input_grad[0] and (torch.is_grad_enabled() or not has_storage(grad)):
            as_query = grad * _plain_violations(score, weight, margin, power - 1)
            of_score = power * (weight * _plain_violations(-score, grad, margin, power - 1) - as_query)
        elif ctx.needs_input_grad[0]:
            upstream = grad.reshape(-1, score.shape[-1])
            of_score = ctx.kernel.gradient(upstream, *sorted_parts, margin, power).reshape(score.shape)
        if ctx.needs_input_grad[1]:
            of_weight = _plain_violations(-score, grad, margin, power).to(weight.dtype)
        return of_score, of_weight, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], Any]:
        """Make the vmapped axis a leading one; the kernel is for all members together."""
        score, weight = (
            leading(tensor, dim, info.batch_size) for tensor, dim in zip(inputs[:2], in_dims[:2], strict=True)
        )
        assert score is not None
        outputs = _Violations.apply(score, weight, *inputs[2:4], _kernel(score))  # type: ignore[no-untyped-call]
        return outputs, (0, *(None,) * (len(outputs) - 1))


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
    rising, falling = sorting_order(queries), sorting_order(-points)
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
    gap = y.gather(-1, lowest) - x
    moments = [moment.gather(-1, lowest) for moment in scan_moments(-y.diff(dim=-1), w, power)]
    total = binomial_sum(power, gap, moments)
    return torch.where(above > 0, total, 0.0)


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
            below = None if above is None else above.shape[-1] - queries_below(above, points.shape[-1])
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
