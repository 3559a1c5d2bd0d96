"""Binary soft counts on the CPU in blocks: O(n) time, and scratch memory of a few blocks for any n.

Plain operations move about twenty arrays of length n through memory. Here the intermediate results of a block are
written in place into scratch memory and stay in the cache. The formulas are the same as in ``step_formulas``, and tests
compare the two. A block is long enough for torch to split it over threads and short enough for the cache.

Up to ``FEW`` logits an operation costs more than its arithmetic, and NumPy counts them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metricfit.core.numerics import is_positive
from metricfit.core.step_formulas import both_ends, linear_pieces
from metricfit.core.tensor_numerics import mix_by_label

BLOCK = 2**19
LONG = 2**12  # several rows shorter than this are faster in plain operations, all at once
#: The largest number of logits for which NumPy is faster than torch.
FEW = 2**13
#: The distance of the threshold from 0 and 1 from which float32 holds all numbers of a step.
INSIDE = 1e-3
#: Beyond this the smaller tail of the sigmoid is of no importance.
LIMIT = 80.0
SMALL_REST = 1 / 32  # of the weights: a smaller rest has lost five bits or more
SMALL_SHARE = 1 / 4  # of the masses: a smaller share of the negatives would lose two bits, and its rest more

#: An array of NumPy.
Array = Any

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input


def handles(logits: Tensor) -> bool:
    """Return whether the kernel is for these logits: contiguous on the CPU, one row or long rows."""
    n = logits.shape[-1]
    return (
        logits.device.type == "cpu"
        and logits.is_contiguous()
        and logits.dtype in (torch.float32, torch.float64)
        and (logits.numel() == n or n >= LONG)
    )


def as_columns(
    logits: Tensor, target: Tensor, weight: Tensor | None, classes: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return one row ``(n,)`` of contiguous logits, target and weight of one class; otherwise what was passed."""
    if classes > 1 or (logits.dim() == target.dim() == 1 and weight is None):
        return logits, target, weight
    return logits.view(-1), target.view(-1), None if weight is None else weight.view(-1)


def counts(x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float) -> Tensor:
    """Return soft counts ``(4,)`` of logits ``(n,)``, or ``(4, c)`` of contiguous logits ``(n, c)``."""
    cells = sums(x, y, w, kind, number, threshold)
    return torch.stack(cells).to(x.dtype) if x.dim() > 1 else torch.tensor(cells, dtype=x.dtype, device="cpu")


def sums(x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float) -> list[Any]:
    """Return the same counts as four numbers, or as four tensors ``(c,)`` in float64.

    One side of the threshold is summed, and the other one is the rest of the weights. Where little is left, the digits
    of the rest are those that the sum has lost, so that the other side is summed too.
    """
    batch, settings = (x, y, w), (kind, number, threshold)
    complement = _sums_complement(kind, threshold, x.dtype)
    masses, weights = _side_sums(*batch, *settings, complement)
    rest = [weight - mass for weight, mass in zip(weights, masses, strict=True)]
    if any(_any(left < SMALL_REST * weight) for left, weight in zip(rest, weights, strict=True)):
        rest, _ = _side_sums(*batch, *settings, not complement)
    return rest + masses if complement else masses + rest


def _side_sums(
    x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float, complement: bool
) -> tuple[list[Any], list[Any]]:
    """Return the masses of positives and negatives on one side of the threshold, and the weights of both.

    Args:
        x: The logits.
        y: The labels.
        w: The weights, or None.
        kind: The kind of the step.
        number: The number of the step.
        threshold: The threshold.
        complement: Sum the complements of the decisions.
    """
    total: list[Any] = [0.0] * 4
    for xs, ys, ws, (mass, spare, other) in _blocks(x, y, w):
        _fill_masses(xs, threshold, kind, number, complement, mass, spare, other)
        total = [old + new for old, new in zip(total, _sum_labels(mass, ys, ws, spare, other), strict=True)]
    return total[:2], total[2:]


def _sum_labels(mass: Tensor, y: Tensor, w: Tensor | None, spare: Tensor, other: Tensor) -> list[Any]:
    """Return the masses of the positives and negatives of a block, and the weights of both.

    They are numbers if there is one class, because operations of tensors with one element take longer.
    """
    read = Tensor.item if mass.dim() == 1 else Tensor.double
    if w is not None:
        positive = torch.mul(w, y, out=spare)
        negative = torch.sub(w, positive, out=other)
        weights = positive.sum(0), negative.sum(0)
        return [*map(read, (_sum_products(mass, positive, spare), _sum_products(mass, negative, other), *weights))]
    of_all, of_positives, positives = map(read, (mass.sum(0), _sum_products(mass, y, spare), y.sum(0)))
    of_negatives = of_all - of_positives
    if _any(of_negatives < SMALL_SHARE * of_all):
        of_negatives = read(_sum_products(mass, torch.sub(1, y, out=other), other))
    return [of_positives, of_negatives, positives, len(y) - positives]


def _any(flags: Tensor | bool) -> bool:
    return bool(flags.any()) if isinstance(flags, Tensor) else flags


def _sum_products(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Return the sums of products; ``torch.dot`` adds in few parts, and loses four digits if all products are alike."""
    return torch.mul(a, b, out=out).sum(0)


def gradient(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    of_positive: Any,
    of_negative: Any,
    kind: str,
    number: float,
    threshold: float,
) -> Tensor:
    """Return the gradient of logits as in ``counts``; the gradients of masses are numbers, or ``(c,)``."""
    out = torch.empty_like(x)
    if x.dim() == 1:
        of_positive, of_negative = (_in_range(float(number), x.dtype) for number in (of_positive, of_negative))
    for (xs, ys, ws, scratch), result in zip(_blocks(x, y, w), torch.split(out, _block_length(x)), strict=True):
        if x.dim() == 1:
            mix_by_label(ys, of_negative, of_positive, out=result)
        else:
            torch.lerp(of_negative, of_positive, ys, out=result)
        _multiply_by_slope(result, xs, threshold, kind, number, *scratch)
        if ws is not None:
            result.mul_(ws)
    return out


def _in_range(number: float, dtype: torch.dtype) -> float:
    """Return a number, or infinity if it is too large: torch refuses numbers that its type cannot hold."""
    return number if not abs(number) > torch.finfo(dtype).max / 4 else math.copysign(math.inf, number)


def _block_length(x: Tensor) -> int:
    return BLOCK if x.dim() == 1 else max(1, BLOCK // x.shape[1])


def _blocks(x: Tensor, y: Tensor, w: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Sequence[Tensor]]]:
    """Yield blocks of logits, labels and weights, with three arrays of their shape to compute in."""
    length = max(1, min(_block_length(x), len(x)))
    scratch: Sequence[Tensor] = x.new_empty((3, length, *x.shape[1:])).unbind()
    labels, weights = torch.split(y, length), repeat(None) if w is None else torch.split(w, length)
    for xs, ys, ws in zip(torch.split(x, length), labels, weights, strict=False):
        if len(xs) < length:
            scratch = [array[: len(xs)] for array in scratch]
        yield xs, ys, ws, scratch


class _LinearNumbers(NamedTuple):
    """Kinks and slopes of Linear at a threshold of at most 1/2."""

    a: float
    b: float
    first: float
    middle: float
    last: float


@lru_cache(maxsize=64)
def _linear_numbers(t: float, delta: float) -> _LinearNumbers:
    pieces = linear_pieces(t, 1 - t)
    return _LinearNumbers(pieces.a, t + pieces.width / 2, *pieces.slopes(delta))


@lru_cache(maxsize=64)
def _sums_complement(kind: str, t: float, dtype: torch.dtype) -> bool:
    """Return whether to sum the complements first, which is faster for Linear at a threshold above 1/2."""
    from_zero, from_one = both_ends(t, dtype)
    return kind == "linear" and from_zero > from_one


def _fill_masses(
    x: Tensor, t: float, kind: str, number: float, complement: bool, mass: Tensor, spare: Tensor, other: Tensor
) -> None:
    """Write the soft decisions, or their complements if ``complement``, into ``mass``."""
    if kind == "linear":
        _fill_linear_masses(x, t, number, complement, mass, spare, other)
        return
    if kind == "identity":
        _tail(x, complement, mass)
        return
    torch.sigmoid(x, out=mass).sub_(t)
    if kind == "sigmoid":
        mass.mul_(-number if complement else number).sigmoid_()
    else:
        mass.div_(-number if complement else number).add_(1).clamp_(0, 2)
        mass.sub_(torch.mul(mass, math.pi, out=spare).sin_(), alpha=1 / math.pi).div_(2).clamp_(0, 1)


def _fill_linear_masses(
    x: Tensor, t: float, delta: float, complement: bool, mass: Tensor, spare: Tensor, other: Tensor
) -> None:
    """Write the values of Linear, or their complements if ``complement``, into ``mass``."""
    lower_end, upper_end = both_ends(t, x.dtype)
    if lower_end == upper_end:  # Linear is odd about its threshold
        _fill_linear(_tail(x, complement, mass), lower_end, delta, spare, other)
        return
    near, end = _near(x, t, mass)
    if complement == (lower_end > upper_end):
        _fill_linear(near, end, delta, spare, other)
        return
    # The side of the farther end: its last piece begins at 0, the other two are what is left of the nearer end's.
    pieces = linear_pieces(end, 1 - end)
    torch.sub(near, pieces.a, out=spare).div_(pieces.width).clamp_(0, 1)
    near.div_(pieces.a).clamp_(max=1).neg_().add_(1)
    near.add_(_tail(x, complement, other).div_(pieces.c).clamp_(max=1)).mul_(delta)
    near.add_(spare.neg_().add_(1), alpha=1 - 2 * delta)


def _tail(x: Tensor, complement: bool, out: Tensor) -> Tensor:
    """Return the probabilities of the positive class, or of the negative one if ``complement``, in ``out``."""
    return torch.neg(x, out=out).sigmoid_() if complement else torch.sigmoid(x, out=out)


def _near(x: Tensor, t: float, out: Tensor) -> tuple[Tensor, float]:
    """Return the probabilities of the side that is nearer to the threshold, in ``out``, and its distance from it."""
    t, u = both_ends(t, x.dtype)
    return _tail(x, t > u, out), min(t, u)


def _fill_linear(p: Tensor, t: float, delta: float, spare: Tensor, other: Tensor) -> None:
    """Replace probabilities by the value of Linear, in [0, 1], at a threshold of at most 1/2.

    No digits cancel: the ramps start from 0.
    """
    if t == 0.5:  # then m1 = m3: a line of this slope, and a ramp between the kinks for the rest of the rise
        a, b, outer, middle, _ = _linear_numbers(t, delta)
        steeper = middle - outer
        ramp = torch.add(p.new_tensor(-steeper * a), p, alpha=steeper, out=spare)
        ramp.clamp_(*sorted((0.0, steeper * (b - a))))
        torch.add(ramp, p, alpha=outer, out=p)
    else:  # three ramps
        pieces = linear_pieces(t, 1 - t)
        torch.sub(p, t + pieces.width / 2, out=other).div_(pieces.c).clamp_(0, 1)
        torch.sub(p, pieces.a, out=spare).div_(pieces.width).clamp_(0, 1)
        p.div_(pieces.a).clamp_(max=1).add_(other).mul_(delta).add_(spare, alpha=1 - 2 * delta)


def _multiply_by_slope(
    out: Tensor, x: Tensor, t: float, kind: str, number: float, smaller: Tensor, spare: Tensor, other: Tensor
) -> None:
    """Multiply by the derivative of the step with respect to the logit; the last three arrays are overwritten."""
    torch.abs(x, out=smaller).neg_().sigmoid_()  # the smaller tail: p (1-p) is s (1-s), and a small s is exact
    sigmoid_backward(out, smaller, grad_input=out)
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


def _multiply_by_linear_slope(
    out: Tensor, x: Tensor, smaller: Tensor, t: float, delta: float, spare: Tensor, other: Tensor
) -> None:
    if t == 0.5:  # the slope is a function of the smaller tail
        a, _, outer, middle, _ = _linear_numbers(t, delta)
        between_kinks = smaller.gt_(a)
        out.mul_(torch.add(x.new_tensor(outer), between_kinks, alpha=middle - outer, out=smaller))
        return
    near, end = _near(x, t, spare)
    a, b, first, middle, last = _linear_numbers(end, delta)
    slope = torch.gt(near, a, out=other)
    torch.add(x.new_tensor(first), slope, alpha=middle - first, out=slope)
    after = torch.gt(near, b, out=smaller)
    # Set to 0 before the last slope is added: middle + (last - middle) would cancel at thresholds near 0 and 1.
    slope.addcmul_(slope, after, value=-1).add_(after, alpha=last)
    out.mul_(slope)


# Small batches are counted by NumPy, whose operations start several times faster than torch's.


def handles_few(logits: Tensor, threshold: float) -> bool:
    """Return whether NumPy is faster for these logits, which are contiguous on the CPU."""
    return logits.numel() <= FEW and INSIDE <= threshold <= 1 - INSIDE


def are_few_bits(y: Tensor) -> bool:
    """Return whether these are at most ``FEW`` floating labels, and each is 0 or 1; False says nothing."""
    if y.numel() > FEW:
        return False
    labels = y.numpy().ravel()
    product = labels * (1.0 - labels)
    return bool(product.dot(product) == 0.0)


def few_counts(x: Tensor, y: Tensor, w: Tensor | None, kind: str, number: float, threshold: float) -> tuple[Any, Array]:
    """Return soft counts and what ``gradient`` needs: four numbers for logits ``(n,)``, ``(4, c)`` for ``(n, c)``."""
    mass, rest, slope = _decide_few(x.detach().numpy(), kind, number, threshold)
    labels = _split_labels(y.numpy(), None if w is None else w.numpy())
    return _sum_decisions(mass, rest, *labels), (*labels, slope)


def _split_labels(positive: Array, weight: Array | None) -> tuple[Array, Array]:
    """Return the weight of each sample as a positive and as a negative."""
    negative = 1.0 - positive
    return (positive, negative) if weight is None else (positive * weight, negative * weight)


def _sum_decisions(mass: Array, rest: Array, positive: Array, negative: Array) -> Any:
    if positive.ndim == 1:
        dot, dot_of_rest = mass.dot, rest.dot
        return [float(dot(positive)), float(dot(negative)), float(dot_of_rest(positive)), float(dot_of_rest(negative))]
    products = np.empty((4, *positive.shape), positive.dtype)
    for product, amount, labels in zip(products, (mass, mass, rest, rest), (positive, negative) * 2, strict=True):
        np.multiply(amount, labels, out=product)
    return (ones(len(positive), positive.dtype) @ products).astype(np.float64)


@lru_cache(maxsize=16)
def ones(n: int, dtype: Any) -> Array:
    """Return an array of ones, a product with which is faster than a sum along an axis."""
    return np.ones(n, dtype)


def hard_counts(x: Tensor, y: Tensor, w: Tensor | None, threshold: float) -> Array:
    """Return the counts ``(4, c)`` of the decisions ``sigmoid(x) >= threshold``, exactly."""
    positive = is_positive(x.numpy(), threshold) if x.numel() <= FEW else is_positive(x, threshold).numpy()
    decided, labels = positive.astype(np.float64), y.numpy().astype(np.float64)
    weight = None if w is None else w.numpy().astype(np.float64)
    return np.array(_sum_decisions(decided, 1.0 - decided, *_split_labels(labels, weight))).reshape(4, -1)


def few_gradient(kept: tuple[Array, Array, Array], of_positive: Any, of_negative: Any) -> Array:
    """Return the gradient of the logits, from the gradients of a positive's and a negative's mass in each column."""
    positive, negative, slope = kept
    if positive.ndim > 1:
        of_positive, of_negative = (part.astype(positive.dtype) for part in (of_positive, of_negative))
    result = positive * of_positive
    result += negative * of_negative
    result *= slope
    return result


def _decide_few(x: Array, kind: str, number: float, t: float) -> tuple[Array, Array, Array]:
    """Return the soft decisions, their complements, and the derivatives of the decisions by the logits."""
    q = np.negative(x)
    np.minimum(q, LIMIT, out=q)
    np.exp(q, out=q)
    p = q + 1.0
    np.reciprocal(p, out=p)
    q *= p
    if kind == "linear":
        return _decide_few_linearly(p, q, number, t)
    if kind == "identity":
        return p, q, p * q
    above = p - t if t <= 0.5 else (1 - t) - q
    if kind == "sigmoid":
        above *= -number
        above.clip(-LIMIT, LIMIT, out=above)
        odds_against = np.exp(above)
        mass = 1.0 / (1.0 + odds_against)
        rest = odds_against * mass
        return mass, rest, mass * rest * (p * q * number)
    v = (above / number + 1.0).clip(0.0, 2.0)
    mass, rest = (((side - np.sin(math.pi * side) / math.pi) / 2.0).clip(0.0, 1.0) for side in (v, 2.0 - v))
    return mass, rest, (1.0 - np.cos(math.pi * v)) / (2.0 * number) * (p * q)


def _decide_few_linearly(p: Array, q: Array, delta: float, t: float) -> tuple[Array, Array, Array]:
    near, end = (p, t) if t <= 0.5 else (q, 1 - t)  # the step is odd about its threshold
    numbers = _linear_numbers(end, delta)
    if t == 0.5:  # then the outer lines are one line, and a ramp between the kinks is the rest of the rise
        steeper, top = numbers.middle - numbers.first, 1.0 - 2.0 * delta - 0.5 * numbers.first
        line = p * steeper
        line -= steeper * numbers.a
        ramp = np.maximum(line, min(0.0, top))
        np.minimum(ramp, max(0.0, top), out=ramp)
        slope = (ramp == line) * p.dtype.type(steeper)  # np.where takes five times as long
        slope += numbers.first
        slope *= p
        slope *= q
        mass = p * numbers.first
        mass += ramp
        return mass, 1.0 - mass, slope
    corners = (0.0, numbers.a, numbers.b, 1.0), (0.0, delta, 1 - delta, 1.0)
    mass = np.interp(near, *corners).astype(p.dtype)
    rest = 1.0 - mass
    slope = (near > numbers.a) * (numbers.middle - numbers.first)
    slope = slope.astype(p.dtype)
    slope += numbers.first
    np.copyto(slope, numbers.last, where=near >= numbers.b)
    slope *= p
    slope *= q
    return (mass, rest, slope) if t <= 0.5 else (rest, mass, slope)
