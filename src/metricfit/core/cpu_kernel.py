"""Binary soft counts on the CPU in blocks: O(n) time, a few blocks of scratch whatever n is.

Plain operations stream some twenty arrays of length n through memory; here a block's intermediates stay in the
cache, written in place into scratch. The formulas are those of ``steps.VALUE`` and ``steps.SLOPE``, to which the tests
compare them. A block of 2**19 is long enough for torch to split it over threads and short enough to be cached.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from metricfit.core.steps import linear_pieces

BLOCK = 2**19
LONG = 2**12  # rows shorter than this are better done all at once in plain operations


def handles(logits: Tensor) -> bool:
    """Whether these logits are what the kernel was written for: dense rows on the CPU, one or a few long ones."""
    n = logits.shape[-1]
    return (
        logits.device.type == "cpu"
        and logits.is_contiguous()
        and logits.dtype in (torch.float32, torch.float64)
        and (logits.numel() == n or n >= LONG)
    )


def counts(logits: Tensor, target: Tensor, weight: Tensor | None, kind: str, number: float, threshold: float) -> Tensor:
    """Soft counts ``(4, ...)`` of logits ``(..., n)``; block sums are added in float64."""
    n = logits.shape[-1]
    rows = math.prod(logits.shape[:-1])
    x, y = logits.reshape(rows, n), target.reshape(rows, n)
    w = None if weight is None else weight.reshape(rows, n)
    scratch = logits.new_empty(5, min(BLOCK, n))
    total = torch.zeros(4, len(x), dtype=torch.float64)
    for row in range(len(x)):
        for block in _blocks(x.shape[1]):
            of_block = y[row, block], None if w is None else w[row, block]
            total[:, row] += _block_counts(x[row, block], *of_block, kind, number, threshold, scratch)
    return total.to(logits.dtype).reshape(4, *logits.shape[:-1])


def _block_counts(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float, scratch: Tensor
) -> Tensor:
    p, q, mass, spare, other = scratch[:, : len(x)].unbind()
    _tails(x, p, q)
    _value(p, threshold, kind, number, mass, spare, other)
    if kind == "linear":  # no tail of its is smaller than q, which is 1 - p and so no more exact than this
        rest = torch.sub(1, mass, out=q)
    else:
        rest = other
        _value(q, 1 - threshold, kind, number, rest, spare, p)
    sums = []
    for amount in (mass, rest):
        if w is not None:
            amount.mul_(w)
        sums.append(torch.mul(y, amount, out=spare).sum())  # of positives; what is left of the amount is of negatives
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
    """The gradient with respect to the logits, given that of a positive's and a negative's mass in each row."""
    result = torch.empty_like(logits)
    n = logits.shape[-1]
    rows = math.prod(logits.shape[:-1])
    x, y, out = logits.reshape(rows, n), target.reshape(rows, n), result.view(rows, n)
    w = None if weight is None else weight.reshape(rows, n)
    coefficients = list(zip(of_positive.reshape(rows).tolist(), of_negative.reshape(rows).tolist(), strict=True))
    scratch = logits.new_empty(3, min(BLOCK, n))
    for row in range(rows):
        for block in _blocks(n):
            here = out[row, block]
            p, q, spare = scratch[:, : len(here)].unbind()
            _exact_tails(x[row, block], p, q)
            _slope(p, threshold, kind, number, here, spare)
            here.mul_(p).mul_(q)
            if_positive, if_negative = coefficients[row]
            torch.mul(y[row, block], if_positive, out=p)
            p.sub_(torch.sub(y[row, block], 1, out=spare), alpha=if_negative)  # y a + (1 - y) b, exact for y of 0 and 1
            here.mul_(p)
            if w is not None:
                here.mul_(w[row, block])
    return result


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, n, BLOCK))


def _tails(x: Tensor, p: Tensor, q: Tensor) -> None:
    """Here q is 1 - p: where that rounds to 0 what is lost is below the rounding of the counts."""
    torch.sigmoid(x, out=p)
    torch.sub(1, p, out=q)


def _exact_tails(x: Tensor, p: Tensor, q: Tensor) -> None:
    """``numerics.tails``: the gradient is proportional to q, however small."""
    limit = 700.0 if x.dtype == torch.float64 else 80.0
    torch.clamp(x, -limit, limit, out=q).neg_().exp_()
    torch.add(q, 1, out=p).reciprocal_()
    q.mul_(p)


def _value(p: Tensor, t: float, kind: str, number: float, out: Tensor, spare: Tensor, other: Tensor) -> None:
    if kind == "linear":
        a, b, m1, m2, m3 = linear_pieces(t, number)
        torch.mul(p, m1, out=out)
        if max(m1, m3) <= min(m2, 1):  # then everywhere on [0, 1] it is the middle line kept between the outer two
            middle = torch.add(p.new_tensor(number - m2 * a), p, alpha=m2, out=spare)
            torch.clamp(middle, out, torch.add(p.new_tensor(1 - m3), p, alpha=m3, out=other), out=out)
        else:
            out.add_(torch.sub(p, a, out=spare).relu_(), alpha=m2 - m1)
            out.add_(torch.sub(p, b, out=spare).relu_(), alpha=m3 - m2)
    elif kind == "sigmoid":
        torch.sub(p, t, out=out).mul_(number).sigmoid_()
    elif kind == "identity":
        out.copy_(p)
    else:
        torch.sub(p, t, out=out).div_(number).add_(1).clamp_(0, 2)
        out.sub_(torch.mul(out, math.pi, out=spare).sin_(), alpha=1 / math.pi).div_(2).clamp_(min=0)


def _slope(p: Tensor, t: float, kind: str, number: float, out: Tensor, spare: Tensor) -> None:
    if kind == "linear":
        a, b, m1, m2, m3 = linear_pieces(t, number)
        torch.gt(p, a, out=out).mul_(m2 - m1).add_(m1)
        out.add_(torch.gt(p, b, out=spare), alpha=m3 - m2)
    elif kind == "sigmoid":
        torch.sub(p, t, out=out).mul_(number)
        torch.neg(out, out=spare).sigmoid_()
        out.sigmoid_().mul_(spare).mul_(number)
    elif kind == "identity":
        out.fill_(1)
    else:
        torch.sub(p, t, out=out).div_(number).add_(1).clamp_(0, 2)
        out.mul_(math.pi).cos_().neg_().add_(1).div_(2 * number)
