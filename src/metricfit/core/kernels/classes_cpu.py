"""Soft counts of exclusive classes on the CPU, in a few passes over a block of logits: for Linear and for Identity.

All arrays of a block are added, multiplied and compared as a whole, which uses the vector units of the CPU: masks are
floats of 0 and 1, made by comparisons. A block has three arrays, which all blocks share, and its gradient is the
fourth, with one or two more for transposed rows: new memory for each operation would take most of the time. Sorting
takes ten times as long, and gathering and scattering along a class axis that is not the last one too.

Counts are sums over the other classes wherever a difference would cancel: with d = w h/s, a false negative is the sum
of d over the classes that are not the true one. The other formulas are as in ``classes``.

Linear at the dynamic threshold needs less. With u = p/t, b = 3t/2 and beta = (1 - 4 delta)/(2 delta), the masses
are, in units of 2 delta,

    h = u + beta relu(u - 1/2) + [p >= b] (m3 - m2) (p - b),    m2 = (1 + beta)/t,    m3 = 1/(2 (1 - b)).

Only the largest probability can exceed b, because the second largest is at most t. The terms do not cancel: no
probability exceeds 2t. The unit cancels in the decisions h/s.

Up to b the masses depend on p/t only, and so they do not depend on the normalisation of the softmax: with r the
gradient of the masses and q_k = r_k p_k dh_k/dp_k, the gradient of the logits is q_k - share_k p_k/t sum_j q_j, where
share_k is the derivative of t. The one mass h_1 beyond b depends on p_1 and t, with the derivatives m3 and -k, where
k = 3 m3 (1 - p_1)/(2 (1 - b)), and the softmax is normalised: dp_k/dx_j = p_k ([j = k] - p_j), dt/dx_j = p_j (share_j -
t). Together, with the sum over j without that mass,

    q_k + p_k (r_1 (k t - m3 p_1) - share_k (sum_j q_j/t + r_1 k)).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metricfit.core.kernels.binary_cpu import ones
from metricfit.core.kernels.soft_classes import StepAt, in_blocks
from metricfit.core.types import Layout

#: Up to this number of classes, rows are transposed: sums and maxima over a short last axis take most of the time.
FEW = 15
#: Up to this number of classes they are compared in turn to find the two largest probabilities.
FEW_CLASSES = 8

#: float32 counts exactly up to this number.
COUNTABLE = 2**24
#: More logits are faster with torch, on several threads and without arrays of the size of the logits.
SMALL = 2**16

#: An array of NumPy.
Array = Any
#: The layout of transposed rows.
TRANSPOSED = Layout(-2, (-1,))
#: From this number of classes on, the true class of a sample is looked up instead of compared with all classes.
MANY = 64


def counts(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    step: StepAt,
    layout: Layout,
    scratch: Tensor,
    p: Tensor | None = None,
) -> Tensor:
    """Return the counts ``(4, ..., c)``; ``scratch`` has a row per array.

    The probabilities are written over ``p`` and kept there, which only Identity does.
    """
    if _has_short_rows(x, layout):
        x, layout = x.T.contiguous(), TRANSPOSED
    axis = layout.class_axis
    arrays = _views(scratch, x)
    p = torch.softmax(x, axis, out=arrays.pop(0) if p is None else p)
    weight = None if w is None else w.unsqueeze(axis)
    if step.kind == "identity":
        decided = p if weight is None else torch.mul(p, weight, out=arrays.pop(0))
        free, spare = arrays
    else:
        free, (mass, spare) = p, arrays
        decided = write_linear_masses(p, step.number, axis, mass, spare)
        total = decided.sum(axis, keepdim=True)
        decided.mul_(total.reciprocal_() if weight is None else weight / total)
    over = layout.sample_axes
    if _has_rare_classes(x, axis):
        tp, fp, fn, positives = _sum_rows(decided, y, w)
    else:
        true = _find_true(y, free, axis)
        hit = torch.mul(decided, true, out=spare)
        tp = hit.sum(over)
        others = torch.sub(decided, hit, out=hit)
        fp = others.sum(over)
        fn = torch.mul(true, others.sum(axis, keepdim=True), out=others).sum(over)
        positives = (true if weight is None else true.mul_(weight)).sum(over)
    tn = (positives.sum(-1, keepdim=True) - positives - fp).clamp_(min=0)
    return torch.stack([tp, fp, fn, tn])


def _has_short_rows(x: Tensor, layout: Layout) -> bool:
    return layout.class_axis == -1 and x.dim() == 2 and x.shape[1] <= FEW


def _has_rare_classes(x: Tensor, axis: int) -> bool:
    """Return whether it is faster to visit the true class of each sample than to compare all classes with it."""
    return axis == -1 and x.dim() == 2 and x.shape[-1] >= MANY


def _sum_rows(decided: Tensor, y: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return tp, fp, fn and the positives of each class; the decisions for the true classes are overwritten."""
    label = y.unsqueeze(-1)
    hit = decided.gather(-1, label).squeeze(-1)
    others = decided.scatter_(-1, label, 0.0)
    present = torch.ones_like(hit) if w is None else w
    tp, fn, positives = decided.new_zeros(3, decided.shape[-1]).unbind()
    for total, amount in ((tp, hit), (fn, others.sum(-1)), (positives, present)):
        total.scatter_add_(0, y, amount)
    return tp, others.sum(0), fn, positives


def write_gradient(
    x: Tensor,
    y: Tensor,
    w: Tensor | None,
    grad: Tensor,
    step: StepAt,
    layout: Layout,
    result: Tensor,
    scratch: Tensor,
    p: Tensor | None = None,
) -> None:
    """Write the gradient of the logits into ``result``. ``grad`` has axes of length 1 for the samples."""
    if _has_short_rows(x, layout):
        columns = x.T.contiguous()
        of_columns = torch.empty_like(columns)
        write_gradient(columns, y, w, grad.transpose(-1, -2), step, TRANSPOSED, of_columns, scratch)
        result.copy_(of_columns.T)
        return
    axis = layout.class_axis
    arrays = _views(scratch, x)
    p = torch.softmax(x, axis, out=arrays.pop(0)) if p is None else p
    of_decided = result if result.is_contiguous() else torch.empty_like(p)
    if_other = grad[1] - grad[3]
    if_true = grad[0] - grad[2] - if_other
    if _has_rare_classes(x, axis):
        label = y.unsqueeze(-1)
        of_decided.copy_(if_other.expand_as(x)).scatter_add_(-1, label, if_true.expand_as(x).gather(-1, label))
    else:
        _find_true(y, of_decided, axis).mul_(if_true).add_(if_other)
    weight = None if w is None else w.unsqueeze(axis)
    if step.kind == "identity":  # all masses have the slope 1 and the sum 1
        of_p = of_decided if weight is None else of_decided.mul_(weight)
        torch.ops.aten._softmax_backward_data.out(of_p, p, axis, p.dtype, grad_input=of_p)  # contiguous ones only
        if of_p is not result:
            result.copy_(of_p)
    else:
        write_linear_gradient(p, of_decided, weight, step.number, axis, result, *arrays)


def make_scratch(logits: Tensor, layout: Layout, size: int, arrays: int) -> Tensor:
    """Return memory for the arrays of a block of this size."""
    at_least = logits.shape[layout.class_axis]
    return logits.new_empty((arrays, max(size, at_least) if in_blocks(logits, layout, size) else logits.numel()))


def _views(scratch: Tensor, x: Tensor) -> list[Tensor]:
    return [row[: x.numel()].view(x.shape) for row in scratch.unbind()]


def _find_true(y: Tensor, out: Tensor, axis: int) -> Tensor:
    """Write 1 for the true classes and 0 for the others."""
    numbers = torch.arange(out.shape[axis], dtype=out.dtype)
    return torch.eq(y.to(out.dtype).unsqueeze(axis), numbers if axis == -1 else numbers.unsqueeze(-1), out=out)


class Largest(NamedTuple):
    """The two largest probabilities of each sample."""

    first: Tensor
    second: Tensor

    @property
    def threshold(self) -> Tensor:
        """The dynamic threshold, their mean."""
        return (self.first + self.second).mul_(0.5)

    def mark(self, p: Tensor, axis: int, out: Tensor) -> Tensor:
        """Write 1 for the two largest and 0 for the others, twice the derivatives of the threshold.

        Equal ones have equal shares of what is left for them.
        """
        marks = torch.ge(p, self.second, out=out)
        dtype = p.dtype if p.numel() <= COUNTABLE else torch.float64
        if float(marks.sum(dtype=dtype)) == 2 * self.first.numel():
            return marks
        equal = torch.eq(p, self.second, out=torch.empty_like(p))
        above = marks.sub_(equal)
        return above.add_(equal.mul_((2 - above.sum(axis, keepdim=True)) / equal.sum(axis, keepdim=True)))


def find_two_largest(p: Tensor, axis: int, spare: Tensor) -> Largest:
    """Return the two largest probabilities of each sample, with an axis of length 1 for the classes."""
    if axis == -2 and p.shape[axis] <= FEW_CLASSES:
        return _compare_in_turn(*p.chunk(p.shape[axis], axis))
    first = p.amax(axis, keepdim=True)
    is_first = torch.eq(p, first, out=spare)
    several = is_first.sum(axis, keepdim=True).gt_(1.5)
    second = torch.sub(p, is_first, out=spare).amax(axis, keepdim=True)
    return Largest(first, torch.maximum(second, several.mul_(first)))


def _compare_in_turn(p0: Tensor, p1: Tensor, *others: Tensor) -> Largest:
    first, second = torch.maximum(p0, p1), torch.minimum(p0, p1)
    lower = torch.empty_like(first) if others else first
    for p in others:
        torch.maximum(second, torch.minimum(first, p, out=lower), out=second)
        torch.maximum(first, p, out=first)
    return Largest(first, second)


class _Pieces(NamedTuple):
    """What the masses of a sample depend on: t, 1/t, b, m3 and m3 - m2 (see above)."""

    t: Tensor
    inverse: Tensor
    b: Tensor
    m3: Tensor
    bend: Tensor

    @classmethod
    def of(cls, largest: Largest, beta: float) -> _Pieces:
        t = largest.threshold
        inverse, b = t.reciprocal(), 1.5 * t
        m3 = torch.rsub(b, 1.0).reciprocal_().mul_(0.5)
        return cls(t, inverse, b, m3, torch.add(m3, inverse, alpha=-1 - beta))


def write_linear_masses(p: Tensor, delta: float, axis: int, mass: Tensor, spare: Tensor) -> Tensor:
    """Write the masses, in units of 2 delta, over ``mass``."""
    largest, beta = find_two_largest(p, axis, spare), _beta(delta)
    return _write_all_masses(p, largest, _Pieces.of(largest, beta), beta, mass, spare)


def _beta(delta: float) -> float:
    return (1 - 4 * delta) / (2 * delta)


def _write_all_masses(p: Tensor, largest: Largest, pieces: _Pieces, beta: float, mass: Tensor, spare: Tensor) -> Tensor:
    torch.mul(p, pieces.inverse, out=mass)
    mass.add_(torch.ops.aten.softshrink.out(mass, 0.5, out=spare), alpha=beta)  # relu(u - 1/2), because u >= 0
    beyond = (largest.first - pieces.b).relu_().mul_(pieces.bend)
    return mass.addcmul_(torch.ge(p, pieces.b, out=spare), beyond)


def write_linear_gradient(
    p: Tensor,
    of_decided: Tensor,
    weight: Tensor | None,
    delta: float,
    axis: int,
    result: Tensor,
    mass: Tensor,
    spare: Tensor,
) -> None:
    """Write the gradient of the logits from the decisions' gradient, which may be in the memory of ``result``."""
    largest, beta = find_two_largest(p, axis, spare), _beta(delta)
    pieces = _Pieces.of(largest, beta)
    t, inverse, b, m3, bend = pieces
    _write_all_masses(p, largest, pieces, beta, mass, spare)
    of_mass = to_masses(of_decided, mass, weight, axis, spare)
    mass.add_(torch.gt(p, 0.5 * t, out=spare), alpha=0.5 * beta)
    is_beyond = torch.ge(p, b, out=spare)
    p_times_slope = mass.addcmul_(is_beyond, bend.mul_(b))
    of_largest = is_beyond.mul_(of_mass).sum(axis, keepdim=True)  # of the mass beyond b, or 0
    q = p_times_slope.mul_(of_mass)
    steepness = m3 * largest.first
    q_of_others = q.sum(axis, keepdim=True).addcmul_(of_largest, steepness, value=-1)
    of_t = torch.rsub(largest.first, 1.0).mul_(m3).mul_(m3).mul_(3 * of_largest)
    for_all = torch.mul(of_t, t).addcmul_(of_largest, steepness, value=-1)
    for_two = q_of_others.mul_(inverse).add_(of_t)
    marks = largest.mark(p, axis, spare)
    torch.addcmul(q, p, torch.addcmul(for_all, marks, for_two, value=-0.5, out=spare), out=result)


def to_masses(of_decided: Tensor, mass: Tensor, weight: Tensor | None, axis: int, spare: Tensor) -> Tensor:
    """Write the gradient with respect to the masses over the decisions' gradient."""
    total = mass.sum(axis, keepdim=True)
    mean = torch.mul(of_decided, mass, out=spare).sum(axis, keepdim=True).div_(total)
    return of_decided.sub_(mean).mul_(total.reciprocal_() if weight is None else weight / total)


# Small batches are counted by NumPy, whose operations start several times faster than torch's: Linear at the dynamic
# threshold, and Identity. Arrays have one row per class, so that numbers of samples are combined with them in long
# inner loops.


class Kept(NamedTuple):
    """What the gradient needs: probabilities, decisions, sums of masses, labels, their positions, and for Linear more.

    Positions refer to one entry per sample in the raveled arrays.
    """

    p: Array
    decided: Array
    total: Array
    labels: Array
    true: Array
    linear: LinearKept | None = None


class LinearKept(NamedTuple):
    """The slopes, the threshold of each sample, the positions of its two largest probabilities, and a difference.

    The derivative of a decision by the threshold is its slope times -p / t, and for the largest probability of a
    sample, which alone can be on the last piece, ``correction`` more.
    """

    slope: Array
    t: Array
    first: Array
    second: Array
    correction: Array


def handles_few(logits: Tensor, kind: str) -> bool:
    """Return whether the kernel is for these logits ``(n, c)``, which are contiguous on the CPU."""
    return kind in ("linear", "identity") and logits.numel() <= SMALL


def few_counts(logits: Tensor, target: Tensor, kind: str, delta: float) -> tuple[Array, Kept]:
    """Return soft counts ``(4, c)`` in float64, and what ``gradient`` needs."""
    x, labels = logits.detach().numpy(), target.numpy()
    (n, classes), samples = x.shape, _samples(len(x))
    first = x.argmax(1) * n + samples
    p = x.T.copy()
    p -= p.ravel()[first]
    np.exp(p, out=p)
    p /= _sum_classes(p)
    true = labels * n + samples
    kept = Kept(p, p, 1.0, labels, true)
    if kind == "linear":
        kept = _decide_linearly(kept, x, first, delta)
    tp = np.bincount(labels, kept.decided.ravel()[true], classes)  # in float64
    positives = np.bincount(labels, minlength=classes)
    of_others = kept.decided.copy()
    of_others.ravel()[true] = 0.0
    fp = of_others.sum(1)
    fn = np.bincount(labels, _sum_classes(of_others), classes)  # positives - tp would cancel
    tn = np.maximum(n - positives - fp, 0.0)
    return np.array((tp, fp, fn, tn)), kept


def _decide_linearly(kept: Kept, x: Array, first: Array, delta: float) -> Kept:
    p = kept.p
    n = p.shape[1]
    others = x.copy()
    others[_samples(n), first // n] = -np.inf
    second = others.argmax(1) * n + _samples(n)
    largest = p.ravel()[first]
    t = (largest + p.ravel()[second]) / 2.0  # at most 1/2
    a = t / 2.0
    m1, m2 = delta / a, (1.0 - 2.0 * delta) / t
    on_first = p <= a
    mass = p - a
    mass *= m2
    mass += delta
    if delta <= 0.25:  # then m1 <= m2, and the middle line is the larger one from its kink on
        np.maximum(mass, m1 * p, out=mass)
    else:
        mass = np.where(on_first, m1 * p, mass)
    slope = on_first * m1  # a sum of products takes half of the time of np.where, which broadcasts slowly
    slope += ~on_first * m2
    # The last piece starts at 3t/2, so that only the largest probability of a sample can be on it.
    on_last, rest, c = largest >= 1.5 * t, 1.0 - largest, 1.0 - 1.5 * t
    m3 = delta / c
    mass.ravel()[first] = np.where(on_last, 1.0 - m3 * rest, mass.ravel()[first])
    slope.ravel()[first] = np.where(on_last, m3, slope.ravel()[first])
    correction = np.where(on_last, 1.5 * rest / c - largest / t, 0.0)
    total = _sum_classes(mass)
    mass /= total
    return kept._replace(decided=mass, total=total, linear=LinearKept(slope, t, first, second, correction))


def few_gradient(kept: Kept, of_positive: Array, of_negative: Array) -> Array:
    """Return the gradient of the logits, from the gradients of the decisions for true and for other samples."""
    p, linear = kept.p, kept.linear
    of_p = np.empty_like(p)
    of_p[:] = of_negative[:, None]
    of_p.ravel()[kept.true] = of_positive[kept.labels]
    of_p -= _sum_classes(of_p * kept.decided)
    of_p /= kept.total
    if linear is not None:
        of_p *= linear.slope
    mean = _sum_classes(p * of_p)
    if linear is not None:
        of_threshold = (mean / linear.t + linear.correction * of_p.ravel()[linear.first]) / 2.0
        for largest in (linear.first, linear.second):
            of_p.ravel()[largest] -= of_threshold
        mean -= of_threshold * (2.0 * linear.t)
    of_p -= mean
    of_p *= p
    return of_p.T.copy()


def _sum_classes(array: Array) -> Array:
    """Return the sums over the classes, ``(n,)``."""
    return ones(len(array), array.dtype).dot(array)


@lru_cache(maxsize=16)
def _samples(n: int) -> Array:
    return np.arange(n)
