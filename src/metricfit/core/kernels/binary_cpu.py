"""Binary soft counts on the CPU in blocks: O(n) time, and scratch memory of a few blocks for any n.

Plain operations move about twenty arrays of length n through memory. Here the intermediate results of a block are
written in place into scratch memory and stay in the cache. The formulas are those of ``step_formulas``, and tests
compare the two. A block of 2**19 is long enough for torch to split it over threads and short enough for the cache.

In a small batch every operation costs more than the arithmetic in it. There are therefore as few of them as possible,
and the numbers of a step are tensors that are made once: an operation with a Python number takes twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metricfit.core.step_formulas import both_ends, linear_pieces
from metricfit.errors import InvalidValueError

BLOCK = 2**19
LONG = 2**12  # several rows shorter than this are faster in plain operations, all at once
SMALL = 2**14  # up to this size one operation is faster than three


def handles(logits: Tensor) -> bool:
    """Return whether the kernel is for these logits: contiguous on the CPU, one row or long rows."""
    n = logits.shape[-1]
    return (
        logits.device.type == "cpu"
        and logits.is_contiguous()
        and logits.dtype in (torch.float32, torch.float64)
        and (logits.numel() == n or n >= LONG)
    )


def counts(logits: Tensor, target: Tensor, weight: Tensor | None, kind: str, number: float, threshold: float) -> Tensor:
    """Return soft counts ``(4, ...)`` of logits ``(..., n)``; the sums of blocks are added in float64."""
    rows = zip(*_rows(logits, target, weight), strict=True)
    sums = [column_counts(x, y, w, kind, number, threshold) for x, y, w in rows]
    return (sums[0] if len(sums) == 1 else torch.stack(sums, 1)).reshape(4, *logits.shape[:-1])


def as_columns(
    logits: Tensor, target: Tensor, weight: Tensor | None, classes: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return one row ``(n,)`` of contiguous logits, target and weight of one class; otherwise what was passed."""
    if classes > 1 or (logits.dim() == target.dim() == 1 and weight is None):
        return logits, target, weight
    return logits.view(-1), target.view(-1), None if weight is None else weight.view(-1)


def column_counts(x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float) -> Tensor:
    """Return soft counts ``(4,)`` of logits ``(n,)``, or ``(4, c)`` of contiguous logits ``(n, c)``."""
    length = _block_length(x)
    scratch = x.new_empty((4, min(length, len(x)), *x.shape[1:]))
    if len(x) <= length:
        return _block_counts(x, y, w, kind, number, threshold, scratch)
    total = torch.zeros(4, *x.shape[1:], dtype=torch.float64)
    for block in _blocks(len(x), length):
        xs = x[block]
        weights = None if w is None else w[block]
        total += _block_counts(xs, y[block], weights, kind, number, threshold, scratch[:, : len(xs)])
    return total.to(x.dtype)


def _block_counts(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float, scratch: Tensor
) -> Tensor:
    tp, fp, fn, tn = scratch.unbind()
    _masses(x, threshold, kind, number, p=tp, mass=fp, rest=tn, spare=fn)
    for positive, negative in ((tp, fp), (fn, tn)):  # ``negative`` is the amount of all samples at first
        if w is not None:
            negative.mul_(w)
        torch.mul(y, negative, out=positive)
        negative.sub_(positive)
    return scratch.sum(1)


def gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    of_positive: Tensor,
    of_negative: Tensor,
    kind: str,
    number: float,
    threshold: float,
) -> Tensor:
    """Return the gradient of the logits, from the gradients of a positive's and a negative's mass in each row."""
    result = torch.empty_like(logits)
    x_rows, y_rows, w_rows = _rows(logits, target, weight)
    rows = zip(x_rows, y_rows, w_rows, result.view(x_rows.shape), strict=True)
    for (x, y, w, out), a, b in zip(rows, of_positive.reshape(-1), of_negative.reshape(-1), strict=True):
        _fill_gradient(x, y, w, a, b, kind, number, threshold, out)
    return result


def column_gradient(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    of_positive: Tensor,
    of_negative: Tensor,
    kind: str,
    number: float,
    threshold: float,
) -> Tensor:
    """Return the gradient of logits as in ``column_counts``; the gradients of masses are scalars, or ``(c,)``."""
    result = torch.empty_like(x)
    _fill_gradient(x, y, w, of_positive, of_negative, kind, number, threshold, result)
    return result


def _fill_gradient(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    of_positive: Tensor,
    of_negative: Tensor,
    kind: str,
    number: float,
    threshold: float,
    out: Tensor,
) -> None:
    settings = kind, number, threshold
    length = _block_length(x)
    scratch = x.new_empty((3, min(length, len(x)), *x.shape[1:]))
    if len(x) <= length:
        return _block_gradient(x, y, w, of_positive, of_negative, *settings, out, scratch)
    for block in _blocks(len(x), length):
        result, weights = out[block], None if w is None else w[block]
        parts = x[block], y[block], weights, of_positive, of_negative
        _block_gradient(*parts, *settings, result, scratch[:, : len(result)])


def _block_gradient(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    of_positive: Tensor,
    of_negative: Tensor,
    kind: str,
    number: float,
    threshold: float,
    out: Tensor,
    scratch: Tensor,
) -> None:
    p, q, slope = scratch.unbind()
    _fill_mixture(y, of_positive, of_negative, out, slope)
    torch.clamp(x, *_LIMITS[x.dtype], out=q)
    torch.sigmoid(q, out=p)
    q.neg_().sigmoid_()  # the gradient is proportional to q, so a small q must be exact
    _fill_slope(p, q, threshold, kind, number, slope)
    out.mul_(slope)
    if w is not None:
        out.mul_(w)


def _fill_mixture(y: Tensor, if_positive: Tensor, if_negative: Tensor, out: Tensor, spare: Tensor) -> None:
    """Write ``y a + (1 - y) b``, exact for y = 0 and y = 1, into ``out``."""
    if out.dim() > 1 or len(out) <= SMALL:
        torch.lerp(if_negative, if_positive, y, out=out)
    else:
        torch.mul(y, float(if_positive), out=out)
        out.sub_(torch.sub(y, 1, out=spare), alpha=float(if_negative))


def _rows(logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Any, Any, Any]:
    """Return logits, target and weight as sequences of rows."""
    shape = math.prod(logits.shape[:-1]), logits.shape[-1]
    x, y = logits.reshape(shape), target.reshape(shape)
    return x, y, [None] * len(x) if weight is None else weight.reshape(shape)


def _block_length(x: Tensor) -> int:
    return BLOCK if x.dim() == 1 else max(1, BLOCK // x.shape[1])


def _blocks(n: int, length: int) -> Iterator[slice]:
    return (slice(start, start + length) for start in range(0, n, length))


#: Between these the smaller tail of the sigmoid does not underflow.
_LIMITS = {torch.float32: (-80.0, 80.0), torch.float64: (-700.0, 700.0)}


class _LinearNumbers(NamedTuple):
    """The numbers of Linear at a threshold of at most 1/2: kinks a and b, slopes, and tensors that hold one number."""

    a: float
    b: float
    slopes: tuple[float, float, float]
    first_slope: Tensor
    middle_at_0: Tensor
    last_at_0: Tensor
    one: Tensor


@lru_cache(maxsize=64)
def _linear_numbers(t: float, delta: float, dtype: torch.dtype) -> _LinearNumbers:
    pieces = linear_pieces(t, 1 - t)
    m1, m2, m3 = pieces.slopes(delta)
    with torch.inference_mode(False):
        tensors = torch.tensor([m1, delta - m2 * pieces.a, 1 - m3, 1.0], dtype=dtype, device="cpu").unbind()
    return _LinearNumbers(pieces.a, t + pieces.width / 2, (m1, m2, m3), *tensors)


def _masses(
    x: Tensor, t: float, kind: str, number: float, p: Tensor, mass: Tensor, rest: Tensor, spare: Tensor
) -> None:
    """Write the soft decisions into ``mass`` and their complements into ``rest``; ``p`` and ``spare`` are scratch.

    A complement may round to 0 here: the loss is below the rounding error of the counts.
    """
    if kind == "linear":
        t, u = both_ends(t, x.dtype)
        if t <= u:
            numbers = _linear_numbers(t, number, x.dtype)
            _linear(torch.sigmoid(x, out=p), t, number, numbers, mass, spare, rest)
            torch.sub(numbers.one, mass, out=rest)
        else:  # the step is odd about its threshold; sigmoid(-x) keeps digits that 1 - sigmoid(x) loses
            numbers = _linear_numbers(u, number, x.dtype)
            _linear(torch.neg(x, out=p).sigmoid_(), u, number, numbers, rest, spare, mass)
            torch.sub(numbers.one, rest, out=mass)
        return
    if kind == "identity":
        torch.sub(1, torch.sigmoid(x, out=mass), out=rest)
        return
    torch.sigmoid(x, out=p)
    if kind == "sigmoid":
        torch.sub(p, t, out=mass).mul_(number)
        torch.neg(mass, out=rest).sigmoid_()
        mass.sigmoid_()
    elif kind == "raised_cosine":
        torch.sub(p, t, out=mass).div_(number).add_(1).clamp_(0, 2)
        torch.sub(2, mass, out=rest)
        for side in (mass, rest):
            side.sub_(torch.mul(side, math.pi, out=spare).sin_(), alpha=1 / math.pi).div_(2).clamp_(0, 1)
    else:
        raise InvalidValueError(f"the CPU kernel has no step of the kind {kind!r}")


def _linear(
    p: Tensor, t: float, delta: float, numbers: _LinearNumbers, out: Tensor, spare: Tensor, other: Tensor
) -> None:
    """Write the value of Linear, in [0, 1], at a threshold of at most 1/2 into ``out``.

    No digits cancel: the middle line is used where it is of order 1, and the other two start from 0 and from 1.
    """
    m1, m2, m3 = numbers.slopes
    if delta <= 0.25:  # then m1, m3 <= m2 and m3 <= 1: the middle line is clamped between the outer two
        torch.mul(p, numbers.first_slope, out=out)
        if m1 > 1:
            out.clamp_(max=delta)
        middle = torch.add(numbers.middle_at_0, p, alpha=m2, out=spare)
        torch.clamp(middle, out, torch.add(numbers.last_at_0, p, alpha=m3, out=other), out=out)
    else:  # three ramps
        pieces = linear_pieces(t, 1 - t)
        torch.sub(p, numbers.b, out=other).div_(pieces.c).clamp_(0, 1)
        torch.div(p, pieces.a, out=out).clamp_(max=1).add_(other).mul_(delta)
        out.add_(torch.sub(p, pieces.a, out=spare).div_(pieces.width).clamp_(0, 1), alpha=1 - 2 * delta)


def _fill_slope(p: Tensor, q: Tensor, t: float, kind: str, number: float, out: Tensor) -> None:
    """Write ``step'(p) p q``, the derivative of the step with respect to the logit, into ``out``; p and q are lost."""
    if kind == "linear":
        return _fill_linear_slope(p, q, *both_ends(t, p.dtype), number, out)
    if kind == "identity":
        torch.mul(p, q, out=out)
        return None
    if kind == "sigmoid":
        torch.sub(p, t, out=out).mul_(number)
        p.mul_(q)
        torch.neg(out, out=q).sigmoid_()
        out.sigmoid_().mul_(q).mul_(number)
    elif kind == "raised_cosine":
        torch.sub(p, t, out=out).div_(number).add_(1).clamp_(0, 2)
        p.mul_(q)
        out.mul_(math.pi).cos_().neg_().add_(1).div_(2 * number)
    else:
        raise InvalidValueError(f"the CPU kernel has no step of the kind {kind!r}")
    out.mul_(p)


def _fill_linear_slope(p: Tensor, q: Tensor, t: float, u: float, delta: float, out: Tensor) -> None:
    near, end = (p, t) if t <= u else (q, u)
    numbers = _linear_numbers(end, delta, p.dtype)
    m1, m2, m3 = numbers.slopes
    if m1 == m3:  # at the threshold 1/2: p q, and more of it where it is let through between the kinks
        torch.mul(p, q, out=out)
        torch.ops.aten.hardtanh_backward.grad_input(out, p, numbers.a, numbers.b, grad_input=q)
        out.mul_(numbers.first_slope).add_(q, alpha=m2 - m1)
        return
    torch.gt(near, numbers.a, out=out)
    torch.add(numbers.first_slope, out, alpha=m2 - m1, out=out)
    after = out.new_empty(out.shape)
    torch.gt(near, numbers.b, out=after)
    # Set to 0 before m3 is added, because m2 + (m3 - m2) would cancel at thresholds near 0 and 1.
    out.addcmul_(out, after, value=-1).add_(after, alpha=m3).mul_(p).mul_(q)
