"""Binary soft counts on the CPU in blocks: O(n) time, and scratch memory of a few blocks for any n.

Plain operations move about twenty arrays of length n through memory. Here the intermediate results of a block are
written in place into scratch memory and stay in the cache. The formulas are those of ``step_formulas``, and tests
compare the two. A block of 2**18 is long enough for torch to split it over threads and short enough for the cache.

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

from metricfit.core import step_formulas
from metricfit.core.numerics import mix_by_label, tails
from metricfit.core.step_formulas import both_ends, linear_pieces
from metricfit.errors import InvalidValueError

BLOCK = 2**18
LONG = 2**12  # several rows shorter than this are faster in plain operations, all at once
SMALL = 2**14  # up to this size one slow operation is faster than several
SMALL_REST = 1 / 32  # of the weights: a smaller rest has lost five bits or more

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
threshold_backward = torch.ops.aten.threshold_backward.grad_input


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
    scratch = x.new_empty((3, min(length, len(x)), *x.shape[1:]))
    total = torch.zeros(4, *x.shape[1:], dtype=torch.float64, device="cpu")
    for block in _blocks(len(x), length):
        xs, weights = x[block], None if w is None else w[block]
        total += _block_counts(xs, y[block], weights, kind, number, threshold, scratch[:, : len(xs)])
    return total.to(x.dtype)


def _block_counts(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float, scratch: Tensor
) -> Tensor:
    """Return the counts of a block.

    One side of the threshold is summed, and the other one is the rest of the weights. Where little is left, the digits
    of the rest are those that the sum has lost, so that both sides are summed then.
    """
    masses, weights = _block_sums(x, y, w, kind, number, threshold, scratch)
    rest = weights - masses
    if bool((rest < SMALL_REST * weights).any()):
        return _both_sides(x, y, w, kind, number, threshold)
    return torch.cat([rest, masses] if _is_upper(kind, threshold, x.dtype) else [masses, rest])


def _both_sides(x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float) -> Tensor:
    """Return the counts of a block in plain operations, each accurate where it is small."""
    p, q = tails(x)
    sides = step_formulas.masses(kind, p, q, *both_ends(threshold, x.dtype), number)
    positive, negative = (y, 1 - y) if w is None else (w * y, w * (1 - y))
    return torch.stack([(labels * side).sum(0) for side in sides for labels in (positive, negative)])


def _block_sums(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float, scratch: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the masses of positives and negatives on one side of the threshold, and the weights of both."""
    mass, spare, other = scratch.unbind()
    _fill_masses(x, threshold, kind, number, mass, spare, other)
    if w is None:
        positive, negative = y, torch.sub(1, y, out=other)
        positives = positive.sum(0)
        negatives = len(x) - positives
    else:
        positive = torch.mul(w, y, out=spare)
        negative = torch.sub(w, positive, out=other)
        positives, negatives = positive.sum(0), negative.sum(0)
    of_positives, of_negatives = _sum_products(mass, positive, spare), _sum_products(mass, negative, other)
    return torch.stack([of_positives, of_negatives]), torch.stack([positives, negatives])


def _sum_products(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    return torch.dot(a, b) if a.dim() == 1 else torch.mul(a, b, out=out).sum(0)


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
    smaller, spare, other = scratch.unbind()
    if x.dim() > 1 or len(x) <= SMALL:
        torch.lerp(of_negative, of_positive, y, out=out)
    else:
        mix_by_label(y, float(of_negative), float(of_positive), out=out)
    torch.abs(x, out=smaller).neg_().sigmoid_()  # the smaller tail: p (1-p) is s (1-s), and a small s is exact
    sigmoid_backward(out, smaller, grad_input=out)
    _multiply_by_slope(out, x, smaller, threshold, kind, number, spare, other)
    if w is not None:
        out.mul_(w)


def _rows(logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Any, Any, Any]:
    """Return logits, target and weight as sequences of rows."""
    shape = math.prod(logits.shape[:-1]), logits.shape[-1]
    x, y = logits.reshape(shape), target.reshape(shape)
    return x, y, [None] * len(x) if weight is None else weight.reshape(shape)


def _block_length(x: Tensor) -> int:
    return BLOCK if x.dim() == 1 else max(1, BLOCK // x.shape[1])


def _blocks(n: int, length: int) -> Iterator[slice]:
    return (slice(start, start + length) for start in range(0, n, length))


class _LinearNumbers(NamedTuple):
    """The numbers of Linear at a threshold of at most 1/2: kinks a and b, slopes, and tensors that hold one number."""

    a: float
    b: float
    slopes: tuple[float, float, float]
    first_slope: Tensor
    middle_at_0: Tensor
    last_at_0: Tensor
    ramp_at_0: Tensor


@lru_cache(maxsize=64)
def _linear_numbers(t: float, delta: float, dtype: torch.dtype) -> _LinearNumbers:
    pieces = linear_pieces(t, 1 - t)
    m1, m2, m3 = pieces.slopes(delta)
    with torch.inference_mode(False):
        tensors = torch.tensor(
            [m1, delta - m2 * pieces.a, 1 - m3, (m1 - m2) * pieces.a], dtype=dtype, device="cpu"
        ).unbind()
    return _LinearNumbers(pieces.a, t + pieces.width / 2, (m1, m2, m3), *tensors)


def _is_upper(kind: str, t: float, dtype: torch.dtype) -> bool:
    """Return whether ``_fill_masses`` writes the complements of the decisions.

    Linear is odd about its threshold, and sigmoid(-x) keeps digits that 1 - sigmoid(x) loses.
    """
    lower, upper = both_ends(t, dtype)
    return kind == "linear" and lower > upper


def _fill_masses(x: Tensor, t: float, kind: str, number: float, mass: Tensor, spare: Tensor, other: Tensor) -> None:
    """Write the soft decisions, or their complements if ``_is_upper``, into ``mass``."""
    if kind == "linear":
        near, end = _near(x, t, mass)
        _fill_linear(near, end, number, spare, other)
        return
    torch.sigmoid(x, out=mass)
    if kind == "sigmoid":
        mass.sub_(t).mul_(number).sigmoid_()
    elif kind == "raised_cosine":
        mass.sub_(t).div_(number).add_(1).clamp_(0, 2)
        mass.sub_(torch.mul(mass, math.pi, out=spare).sin_(), alpha=1 / math.pi).div_(2).clamp_(0, 1)
    elif kind != "identity":
        raise InvalidValueError(f"the CPU kernel has no step of the kind {kind!r}")


def _near(x: Tensor, t: float, out: Tensor) -> tuple[Tensor, float]:
    """Return the probabilities of the side that is nearer to the threshold, in ``out``, and its distance from it."""
    t, u = both_ends(t, x.dtype)
    return (torch.sigmoid(x, out=out), t) if t <= u else (torch.neg(x, out=out).sigmoid_(), u)


def _fill_linear(p: Tensor, t: float, delta: float, spare: Tensor, other: Tensor) -> None:
    """Replace probabilities by the value of Linear, in [0, 1], at a threshold of at most 1/2.

    No digits cancel: the middle line is used where it is of order 1, and the other two start from 0 and from 1.
    """
    numbers = _linear_numbers(t, delta, p.dtype)
    m1, m2, m3 = numbers.slopes
    if t == 0.5:  # then m1 = m3: a line of this slope, and a ramp between the kinks for the rest of the rise
        ramp = torch.add(numbers.ramp_at_0, p, alpha=m2 - m1, out=spare)
        ramp.clamp_(*sorted((0.0, (m2 - m1) * (numbers.b - numbers.a))))
        p.mul_(numbers.first_slope).add_(ramp)
    elif delta <= 0.25:  # then m1, m3 <= m2 and m3 <= 1: the middle line is clamped between the outer two
        middle = torch.add(numbers.middle_at_0, p, alpha=m2, out=spare)
        last = torch.add(numbers.last_at_0, p, alpha=m3, out=other)
        p.mul_(numbers.first_slope)
        if m1 > 1:
            p.clamp_(max=delta)
        torch.clamp(middle, p, last, out=p)
    else:  # three ramps
        pieces = linear_pieces(t, 1 - t)
        torch.sub(p, numbers.b, out=other).div_(pieces.c).clamp_(0, 1)
        torch.sub(p, pieces.a, out=spare).div_(pieces.width).clamp_(0, 1)
        p.div_(pieces.a).clamp_(max=1).add_(other).mul_(delta).add_(spare, alpha=1 - 2 * delta)


def _multiply_by_slope(
    out: Tensor, x: Tensor, smaller: Tensor, t: float, kind: str, number: float, spare: Tensor, other: Tensor
) -> None:
    """Multiply by the derivative of the step with respect to the probability."""
    if kind == "linear":
        _multiply_by_linear_slope(out, x, smaller, t, number, spare, other)
    elif kind == "sigmoid":
        torch.sigmoid(x, out=spare).sub_(t).mul_(number)
        spare.abs_().neg_().sigmoid_()
        sigmoid_backward(out, spare, grad_input=out)
        out.mul_(number)
    elif kind == "raised_cosine":
        torch.sigmoid(x, out=spare).sub_(t).div_(number).add_(1).clamp_(0, 2)
        spare.mul_(math.pi).cos_().neg_().add_(1).div_(2 * number)
        out.mul_(spare)
    elif kind != "identity":
        raise InvalidValueError(f"the CPU kernel has no step of the kind {kind!r}")


def _multiply_by_linear_slope(
    out: Tensor, x: Tensor, smaller: Tensor, t: float, delta: float, spare: Tensor, other: Tensor
) -> None:
    if t == 0.5:  # the slope is a function of the smaller tail
        numbers = _linear_numbers(t, delta, x.dtype)
        m1, m2, _ = numbers.slopes
        inner = threshold_backward(out, smaller, numbers.a, grad_input=spare)  # what lies between the kinks
        out.mul_(numbers.first_slope).add_(inner, alpha=m2 - m1)
        return
    near, end = _near(x, t, spare)
    numbers = _linear_numbers(end, delta, x.dtype)
    m1, m2, m3 = numbers.slopes
    slope = torch.gt(near, numbers.a, out=other)
    torch.add(numbers.first_slope, slope, alpha=m2 - m1, out=slope)
    after = torch.gt(near, numbers.b, out=smaller)
    # Set to 0 before m3 is added, because m2 + (m3 - m2) would cancel at thresholds near 0 and 1.
    slope.addcmul_(slope, after, value=-1).add_(after, alpha=m3)
    out.mul_(slope)
