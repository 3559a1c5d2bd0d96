"""Sums and means over all pairs by sorting: O((m + n) log n) time and O(m + n) memory, instead of O(m n) of both.

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

``hinge_sums`` are these sums. ``violations`` are the sums of one set of scores, in which the points are the queries
moved up by a margin. ``pair_means`` are means over the pairs of a positive and a negative. They are computed together
with their gradient, on the CPU and by the Triton programs of ``triton.pairs`` on CUDA devices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import triton
from metricfit.core.numerics import ratio
from metricfit.core.operators import register
from metricfit.core.tensor_numerics import (
    counting_dtype,
    exact_dtype,
    has_storage,
    is_transformed,
    leading,
    traces_transform,
)
from metricfit.core.validation import check_finite, looks_at_values
from metricfit.errors import InvalidValueError, quote

POWERS = (0, 1, 2, 3)
BINOMIAL = ((1,), (1, 1), (1, 2, 1), (1, 3, 3, 1))


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
    return _sums_in_order(x, y, w, power, sorting_order(x), sorting_order(-y))


def _summing_dtype(queries: Tensor, points: Tensor) -> torch.dtype:
    if queries.is_floating_point() and points.is_floating_point():
        return counting_dtype(torch.promote_types(queries.dtype, points.dtype))
    return exact_dtype(points.device)  # float32 does not distinguish integers from 2**24 on


def _sums_in_order(x: Tensor, y: Tensor, w: Tensor, power: int, rising: Tensor, falling: Tensor) -> Tensor:
    """Return the sums of queries and points whose orders are known."""
    if not y.shape[-1]:
        return 0.0 * x + (y * w).sum(-1, keepdim=True)
    x, y, w = x.gather(-1, rising), y.gather(-1, falling), w.gather(-1, falling)
    above = torch.searchsorted(-y.detach(), -x.detach())
    return _unsort(_sums(x, y, w, power, above), rising)


def _sums(queries: Tensor, points: Tensor, weight: Tensor, power: int, above: Tensor) -> Tensor:
    """Sum over sorted queries and points, of which ``above`` are above each query."""
    if torch.compiler.is_compiling():  # plain operations for a compiler, for the reason given in ``soft_counts``
        return _by_moments(queries, points, weight, power, above)
    sums: Tensor = _HingeSums.apply(queries, points, weight, power, above)  # type: ignore[no-untyped-call]
    return sums


def _by_moments(queries: Tensor, points: Tensor, weight: Tensor, power: int, above: Tensor) -> Tensor:
    exact = exact_dtype(points.device)
    x, y, w = queries.to(exact), points.to(exact), weight.to(exact)
    lowest = (above - 1).clamp(min=0)
    gap = y.gather(-1, lowest) - x
    moments = [moment.gather(-1, lowest) for moment in scan_moments(-y.diff(dim=-1), w, power)]
    sums = torch.where(above > 0, binomial_sum(power, gap, moments), 0.0)
    # 0 times NaN, or infinity, is NaN. Sorting puts NaN at an end.
    ends = torch.stack([y[..., 0], y[..., -1]], -1)
    furthest = torch.relu(ends.amax(-1, keepdim=True) - x) ** power
    sums = sums + 0.0 * sums + 0.0 * x + 0.0 * furthest + (0.0 * ends).sum(-1, keepdim=True)
    return sums.to(queries.dtype)


class _HingeSums(torch.autograd.Function):
    """The sums with closed-form gradients, which are such sums themselves and can be differentiated again.

    Rising queries and falling points keep their orders if they are exchanged and their signs are changed. The gradients
    therefore use the same two sorts and the same search.
    """

    @staticmethod
    def forward(queries: Tensor, points: Tensor, weight: Tensor, power: int, above: Tensor) -> Tensor:
        return _by_moments(queries, points, weight, power, above)

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
        if queries.shape[-1] and (ctx.needs_input_grad[1] or ctx.needs_input_grad[2]):
            below = above.shape[-1] - _queries_below(above, points.shape[-1])
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


def _queries_below(above: Tensor, points: int) -> Tensor:
    """Return the number of queries that do not exceed each point: point j exceeds those with more than j above them."""
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
    f = score.to(exact_dtype(score.device))
    f = f if per == "positive" else -f
    falling = sorting_order(-f)
    # Weights with more leading axes than the scores do not sort them more than once.
    f, w, falling = torch.broadcast_tensors(f, opposite.to(f.dtype), falling)  # type: ignore[no-untyped-call]
    return _sums_in_order(f, f + margin, w, power, falling.flip(-1), falling).to(counting_dtype(score.dtype))


def _takes_triton(score: Tensor) -> bool:
    """Return whether Triton's programs are for these scores: eagerly, float32 or float64 rows on a CUDA device."""
    return (
        triton.runs_on(score)
        and not torch.compiler.is_compiling()
        and score.dtype in (torch.float32, torch.float64)
        and 0 < score.shape[-1] < 2**30
        and 0 < score.numel() < 2**31
        and _is_plain(score)
    )


def _is_plain(score: Tensor) -> bool:
    """Return whether no transform of torch is active, for which an operation with its own gradient has no rule."""
    return not is_transformed() and has_storage(score)


def pair_means(score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int) -> Tensor:
    """Return the mean of ``max(0, margin - (f_+ - f_-))^power`` over the pairs of each row; 0 without pairs.

    The means are computed together with their gradient, by ``means_and_gradient`` on the CPU and by Triton's programs
    on a CUDA device. Transforms of torch and gradients of the weights take ``violations``, and so does a compiler for
    another device; on the CPU it calls an operator, whose sorts and sums it could not fuse.

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
    if torch.compiler.is_compiling() and _has_operator(score, positive, negative):
        means: Tensor = torch.ops.metricfit.pair_means(score, positive, negative, margin, power)[0]
    elif _is_fused(score, positive, negative):
        means = _FusedMeans.apply(score, positive, negative, margin, power)  # type: ignore[no-untyped-call]
    else:
        means = _plain_means(score, positive, negative, margin, power)
    if looks_at_values(score, None):
        check_finite(means.detach(), score)
    return means


def _plain_means(score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int) -> Tensor:
    positive = positive.to(score.dtype)
    negative = 1 - positive if negative is None else negative
    sums = violations(score, negative, margin, power)
    return ratio((positive * sums).sum(-1), positive.sum(-1) * negative.sum(-1))


def _is_fused(score: Tensor, positive: Tensor, negative: Tensor | None) -> bool:
    """Return whether the means are computed with their gradient: eagerly, with a gradient of the scores only."""
    if torch.compiler.is_compiling() or _have_gradients(positive, negative):
        return False
    return _takes_triton(score) or (score.is_cpu and score.shape[-1] > 0 and _is_plain(score))


def _has_operator(score: Tensor, positive: Tensor, negative: Tensor | None) -> bool:
    """Return whether a compiler calls the operator."""
    return score.is_cpu and not _have_gradients(positive, negative) and not traces_transform()


def _have_gradients(positive: Tensor, negative: Tensor | None) -> bool:
    return positive.requires_grad or (negative is not None and negative.requires_grad)


class _FusedMeans(torch.autograd.Function):
    """The means with the gradient that was computed with them."""

    @staticmethod
    def forward(
        ctx: Any, score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int
    ) -> Tensor:
        if _takes_triton(score):
            from metricfit.core.kernels.triton import pairs

            means, gradient = pairs.means(score, positive, negative, margin, power)
        else:
            means, gradient = means_and_gradient(score, positive, negative, margin, power)
        ctx.save_for_backward(score, positive, negative, gradient)
        ctx.margin, ctx.power = margin, power
        return means

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        score, positive, negative, gradient = ctx.saved_tensors
        if torch.is_grad_enabled() or not has_storage(grad):  # this backward is itself differentiated, or vmapped
            with torch.enable_grad():
                means = _plain_means(score, positive, negative, ctx.margin, ctx.power)
            (of_score,) = torch.autograd.grad(means, score, grad, create_graph=True)
        else:
            of_score = grad.unsqueeze(-1) * gradient
        return of_score, None, None, None, None


def means_and_gradient(
    score: Tensor, positive: Tensor, negative: Tensor | None, margin: float, power: int
) -> tuple[Tensor, Tensor]:
    """Return the means over the pairs of each row, and their gradient: one sort of both classes together.

    The positives, and the negatives moved up by the margin, are merged into one falling order. Let T_k be the moments
    of the negatives down to each place about the score at this place. At a positive T_r is its sum over the negatives,
    so that no search is needed, and -r T_(r-1) is the derivative. For a negative it is r times the moment of order
    r - 1 of the positives from below. A positive stands above a negative at the same score: the pair has no violation,
    and for r = 1 no derivative.

    The arguments are the same as for ``pair_means``. Both results are NaN if a score is not finite, or if a power of a
    difference overflows float64.
    """
    f, p = (tensor.detach().to(torch.float64) for tensor in (score, positive))
    q = 1 - p if negative is None else negative.detach().to(torch.float64)
    pairs = p.sum(-1) * q.sum(-1)
    flaw = 0.0 * f.sum(-1)  # 0 times NaN, or infinity, is NaN
    n, has_both_roles = f.shape[-1], bool((p * q).any())
    if has_both_roles:  # soft labels: each sample is there twice
        nothing = torch.zeros_like(f)
        f, p, q = torch.cat([f, f], -1), torch.cat([p, nothing], -1), torch.cat([nothing, q], -1)
    is_negative = q != 0
    lowered = torch.add(f, is_negative, alpha=margin).neg_().add_(0.0)  # 0.0 and -0.0 become equal
    order = torch.sort(_sorting_keys(lowered).add_(is_negative), dim=-1).indices
    steps, p, q = _select(lowered, order).diff(dim=-1), _select(p, order), _select(q, order)
    above = scan_moments(steps, q, power)
    below = scan_moments(steps.flip(-1), p.flip(-1), power - 1)[-1].flip(-1)
    per_pair = ratio(torch.ones_like(pairs), pairs)
    means = (p * above[power]).sum(-1).mul_(per_pair)
    means = means + (0.0 * means + flaw)
    slopes = q.mul_(below).sub_(p.mul_(above[power - 1])).mul_(power * per_pair.unsqueeze(-1))
    gradient = _unsort(slopes, order)
    if has_both_roles:
        gradient = gradient[..., :n] + gradient[..., n:]
    return means.to(score.dtype), gradient.to(score.dtype).contiguous()


register(
    "pair_means",
    "Tensor score, Tensor positive, Tensor? negative, float margin, int power",
    means_and_gradient,
    kept_axes=1,
)


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


def sorting_order(values: Tensor) -> Tensor:
    """Return the indices that sort the values, the smallest first and NaN at an end.

    On the CPU torch sorts integers by radix: one long row takes a tenth of the time of floating point numbers.
    """
    values = values.detach()
    one_row = values.device.type == "cpu" and values.numel() == values.shape[-1]
    if torch.compiler.is_compiling() or not one_row or not has_storage(values):
        return torch.sort(values, dim=-1).indices
    return torch.sort(_sorting_keys(values)).indices


def _sorting_keys(values: Tensor) -> Tensor:
    """Return integers in the order of floating point numbers.

    The bits of a floating point number, read as an integer, rise with the number above 0 and fall below 0, where all
    bits but the sign are therefore inverted.
    """
    integer = torch.int32 if values.dtype == torch.float32 else torch.int64
    bits = values.contiguous().view(integer)
    return torch.where(bits < 0, bits ^ torch.iinfo(integer).max, bits)


def _select(values: Tensor, index: Tensor) -> Tensor:
    """Return the values of each row at the positions of its index; of one row, by the quickest operation for that."""
    if values.numel() == values.shape[-1]:
        return values.reshape(-1).index_select(0, index.reshape(-1)).reshape(values.shape)
    return values.gather(-1, index)


def _unsort(values: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(values).scatter(-1, order, values)
