"""Binary soft counts on the CPU in blocks: O(n) time, and scratch memory of a few blocks for any n.

Plain operations move about twenty arrays of length n through memory. Here the intermediate results of a block are
written in place into scratch memory and stay in the cache. The formulas are those of ``step_formulas``, and tests
compare the two. A block of 2**19 is long enough for torch to split it over threads and short enough for the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from metricfit.core.step_formulas import both_ends, linear_pieces
from metricfit.errors import InvalidValueError

BLOCK = 2**19
LONG = 2**12  # rows shorter than this are faster in plain operations, all at once


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
    n = logits.shape[-1]
    rows = math.prod(logits.shape[:-1])
    x, y = logits.reshape(rows, n), target.reshape(rows, n)
    w = None if weight is None else weight.reshape(rows, n)
    scratch = logits.new_empty(4, min(BLOCK, n))
    total = torch.zeros(4, len(x), dtype=torch.float64)
    for row in range(len(x)):
        for block in _blocks(x.shape[1]):
            labels, weights = y[row, block], None if w is None else w[row, block]
            total[:, row] += _block_counts(x[row, block], labels, weights, kind, number, threshold, scratch)
    return total.to(logits.dtype).reshape(4, *logits.shape[:-1])


def _block_counts(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float, scratch: Tensor
) -> Tensor:
    p, mass, rest, spare = scratch[:, : len(x)].unbind()
    _masses(x, threshold, kind, number, p, mass, rest, spare)
    sums = []
    for amount in (mass, rest):
        if w is not None:
            amount.mul_(w)
        sums.append(torch.mul(y, amount, out=spare).sum())  # positives; the rest of the amount belongs to negatives
        sums.append(amount.sub_(spare).sum())
    tp, fp, fn, tn = sums
    return torch.stack([tp, fp, fn, tn])


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
    n = logits.shape[-1]
    rows = math.prod(logits.shape[:-1])
    x, y, out = logits.reshape(rows, n), target.reshape(rows, n), result.view(rows, n)
    w = None if weight is None else weight.reshape(rows, n)
    coefficients = list(zip(of_positive.reshape(rows).tolist(), of_negative.reshape(rows).tolist(), strict=True))
    scratch = logits.new_empty(3, min(BLOCK, n))
    for row in range(rows):
        for block in _blocks(n):
            slope = out[row, block]
            p, q, spare = scratch[:, : len(slope)].unbind()
            _exact_tails(x[row, block], p, q)
            _slope(p, q, threshold, kind, number, slope, spare)
            slope.mul_(p).mul_(q)
            if_positive, if_negative = coefficients[row]
            torch.mul(y[row, block], if_positive, out=p)
            p.sub_(
                torch.sub(y[row, block], 1, out=spare), alpha=if_negative
            )  # y a + (1 - y) b, exact for y = 0 and y = 1
            slope.mul_(p)
            if w is not None:
                slope.mul_(w[row, block])
    return result


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, n, BLOCK))


def _exact_tails(x: Tensor, p: Tensor, q: Tensor) -> None:
    """Write ``numerics.tails`` into ``p`` and ``q``. The gradient is proportional to q, so a small q must be exact."""
    limit = 700.0 if x.dtype == torch.float64 else 80.0
    torch.clamp(x, -limit, limit, out=q).neg_().exp_()
    torch.add(q, 1, out=p).reciprocal_()
    q.mul_(p)


def _masses(
    x: Tensor, t: float, kind: str, number: float, p: Tensor, mass: Tensor, rest: Tensor, spare: Tensor
) -> None:
    """Write the soft decisions into ``mass`` and their complements into ``rest``; ``p`` and ``spare`` are scratch.

    A complement may round to 0 here: the loss is below the rounding error of the counts.
    """
    if kind == "linear":
        t, u = both_ends(t, x.dtype)
        if t <= u:
            _linear(torch.sigmoid(x, out=p), t, number, mass, spare, rest)
            torch.sub(1, mass, out=rest)
        else:  # the step is odd about its threshold; sigmoid(-x) keeps digits that 1 - sigmoid(x) loses
            _linear(torch.neg(x, out=p).sigmoid_(), u, number, rest, spare, mass)
            torch.sub(1, rest, out=mass)
        return
    torch.sigmoid(x, out=p)
    if kind == "identity":
        mass.copy_(p)
        torch.sub(1, p, out=rest)
    elif kind == "sigmoid":
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


def _linear(p: Tensor, t: float, delta: float, out: Tensor, spare: Tensor, other: Tensor) -> None:
    """Write the value of Linear, in [0, 1], at a threshold of at most 1/2 into ``out``.

    No digits cancel: the middle line is used where it is of order 1, and the other two start from 0 and from 1.
    """
    pieces = linear_pieces(t, 1 - t)
    m1, m2, m3 = pieces.slopes(delta)
    if delta <= 0.25:  # then m1, m3 <= m2 and m3 <= 1: the middle line is clamped between the outer two
        torch.mul(p, m1, out=out)
        if m1 > 1:
            out.clamp_(max=delta)
        middle = torch.add(p.new_tensor(delta - m2 * pieces.a), p, alpha=m2, out=spare)
        torch.clamp(middle, out, torch.add(p.new_tensor(1 - m3), p, alpha=m3, out=other), out=out)
    else:  # three ramps
        torch.sub(p, t + pieces.width / 2, out=other).div_(pieces.c).clamp_(0, 1)
        torch.div(p, pieces.a, out=out).clamp_(max=1).add_(other).mul_(delta)
        out.add_(torch.sub(p, pieces.a, out=spare).div_(pieces.width).clamp_(0, 1), alpha=1 - 2 * delta)


def _slope(p: Tensor, q: Tensor, t: float, kind: str, number: float, out: Tensor, spare: Tensor) -> None:
    """Write the derivative with respect to p into ``out``; ``spare`` is scratch memory."""
    if kind == "linear":
        t, u = both_ends(t, p.dtype)
        near, end = (p, t) if t <= u else (q, u)
        pieces = linear_pieces(end, 1 - end)
        m1, m2, m3 = pieces.slopes(number)
        torch.gt(near, pieces.a, out=out)
        torch.add(out.new_tensor(m1), out, alpha=m2 - m1, out=out)
        torch.gt(near, end + pieces.width / 2, out=spare)
        # Set to 0 before m3 is added, because m2 + (m3 - m2) would cancel at thresholds near 0 and 1.
        out.addcmul_(out, spare, value=-1).add_(spare, alpha=m3)
    elif kind == "sigmoid":
        torch.sub(p, t, out=out).mul_(number)
        torch.neg(out, out=spare).sigmoid_()
        out.sigmoid_().mul_(spare).mul_(number)
    elif kind == "identity":
        out.fill_(1)
    elif kind == "raised_cosine":
        torch.sub(p, t, out=out).div_(number).add_(1).clamp_(0, 2)
        out.mul_(math.pi).cos_().neg_().add_(1).div_(2 * number)
    else:
        raise InvalidValueError(f"the CPU kernel has no step of the kind {kind!r}")
