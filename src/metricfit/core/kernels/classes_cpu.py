"""Soft counts of exclusive classes on the CPU, in a few passes over a block of logits.

All arrays of a block are added, multiplied and compared as a whole, which uses the vector units of the CPU: masks are
floats of 0 and 1, made by comparisons, and the two largest probabilities are found by two maxima over the classes.
Sorting takes ten times as long, and gathering and scattering along a class axis that is not the last one too.

Linear at the dynamic threshold t, the default, is written with a = t/2 and b = 3t/2 as

    h = m1 p + (m2 - m1) relu(p - a) + (m3 - m2) relu(p - b).

Only the largest probability can exceed b, because the second largest is at most t. The terms do not cancel: no
probability exceeds 2t, so each term is of order 1.

Counts are sums over the other classes wherever a difference would cancel: with d = w h/s, a false negative is the sum
of d over the classes that are not the true one. The rest of the formulas is that of ``classes_blocks``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.kernels.class_layout import Layout, StepAt, block_size, in_blocks
from metricfit.core.step_formulas import SLOPE, THRESHOLD_SLOPE, VALUE, Threshold, both_ends

#: From this number of classes on, the true class of a sample is looked up instead of compared with all classes.
MANY = 64


def counts(x: Tensor, y: Tensor, w: Tensor | None, step: StepAt, layout: Layout, scratch: Tensor) -> Tensor:
    """Return the counts ``(4, ..., c)``; ``scratch`` has a row per array."""
    axis = layout.class_axis
    p, true, decided, spare = _views(scratch, x)
    torch.softmax(x, axis, out=p)
    weight = None if w is None else w.unsqueeze(axis)
    if step.kind == "identity":
        torch.mul(p, 1.0 if weight is None else weight, out=decided)
    else:
        if step.kind == "linear" and step.threshold is None:
            _Pieces.of(_two_largest(p, axis, spare), step.number).masses(p, decided, spare)
        else:
            t: Threshold = _two_largest(p, axis, spare).threshold if step.threshold is None else step.threshold
            decided = VALUE[step.kind](p, 1 - p, *both_ends(t, p.dtype), step.number)
        total = decided.sum(axis, keepdim=True)
        decided.mul_(total.reciprocal_() if weight is None else weight / total)
    over = layout.sample_axes
    if _has_rare_classes(x, axis):
        tp, fp, fn, positives = _sum_rows(decided, y, w)
    else:
        hit = torch.mul(decided, _find_true(y, true, axis), out=spare)
        tp = hit.sum(over)
        others = decided.sub_(hit)
        fp = others.sum(over)
        fn = torch.mul(true, others.sum(axis, keepdim=True), out=hit).sum(over)
        positives = (true if weight is None else true.mul_(weight)).sum(over)
    tn = (positives.sum(-1, keepdim=True) - positives - fp).clamp_(min=0)
    return torch.stack([tp, fp, fn, tn])


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
) -> None:
    """Write the gradient of the logits into ``result``. ``grad`` has axes of length 1 for the samples."""
    axis = layout.class_axis
    p, of_decided, mass, spare = _views(scratch, x)
    torch.softmax(x, axis, out=p)
    if_other = grad[1] - grad[3]
    if_true = grad[0] - grad[2] - if_other
    if _has_rare_classes(x, axis):
        label = y.unsqueeze(-1)
        of_decided.copy_(if_other.expand_as(x)).scatter_add_(-1, label, if_true.expand_as(x).gather(-1, label))
    else:
        _find_true(y, of_decided, axis).mul_(if_true).add_(if_other)
    weight = None if w is None else w.unsqueeze(axis)
    if step.kind == "identity":  # all masses have the slope 1 and the sum 1
        of_p = of_decided.sub_(torch.mul(p, of_decided, out=spare).sum(axis, keepdim=True))
        torch.mul(of_p, p if weight is None else p.mul_(weight), out=result)
    elif step.kind == "linear" and step.threshold is None:
        _linear_gradient(p, of_decided, weight, step.number, axis, result, mass, spare)
    else:
        largest = _two_largest(p, axis, spare) if step.threshold is None else None
        t: Threshold = 0.5 if step.threshold is None else step.threshold
        arguments = p, 1 - p, *both_ends(largest.threshold if largest else t, p.dtype), step.number
        mass = VALUE[step.kind](*arguments)
        of_mass = _of_masses(of_decided, mass, mass.sum(axis, keepdim=True), weight, axis, spare)
        of_p = torch.mul(of_mass, SLOPE[step.kind](*arguments), out=mass)
        if largest is not None:
            of_threshold = of_mass.mul_(THRESHOLD_SLOPE[step.kind](*arguments)).sum(axis, keepdim=True)
            of_p.addcmul_(largest.shares(p, axis, spare), of_threshold)
        torch.mul(of_p.sub_(torch.mul(p, of_p, out=spare).sum(axis, keepdim=True)), p, out=result)


def _linear_gradient(
    p: Tensor,
    of_decided: Tensor,
    weight: Tensor | None,
    delta: float,
    axis: int,
    result: Tensor,
    mass: Tensor,
    spare: Tensor,
) -> None:
    """Write the gradient of the logits for Linear at the dynamic threshold.

    Up to b the step is a function of p/t, so its derivative with respect to t is -slope p/t; beyond b, of one class, it
    is a function of (1 - p)/(1 - b). The backward pass of the softmax subtracts sum_j p_j dL/dp_j = sum_j slope_j p_j
    r_j + t dL/dt, because the shares of the two largest in the threshold add up to t.
    """
    largest = _two_largest(p, axis, spare)
    pieces = _Pieces.of(largest, delta)
    pieces.masses(p, mass, spare)
    of_mass = _of_masses(of_decided, mass, mass.sum(axis, keepdim=True), weight, axis, spare)
    is_beyond = torch.ge(p, pieces.b, out=spare)
    slopes = torch.gt(p, pieces.t / 2, out=mass).mul_(pieces.m2 - pieces.m1).add_(pieces.m1)
    of_p = slopes.addcmul_(is_beyond, pieces.m3 - pieces.m2).mul_(of_mass)
    beyond = is_beyond.mul_(of_p).sum(axis, keepdim=True)
    inner = torch.mul(p, of_p, out=spare).sum(axis, keepdim=True)
    t, first = pieces.t, largest.first
    of_threshold = beyond * (first / t - 1.5 * (1 - first) / (1 - pieces.b)) - inner / t
    of_p.addcmul_(largest.shares(p, axis, spare), of_threshold).sub_(of_threshold.mul_(t).add_(inner))
    torch.mul(of_p, p, out=result)


def _of_masses(
    of_decided: Tensor, mass: Tensor, total: Tensor, weight: Tensor | None, axis: int, spare: Tensor
) -> Tensor:
    """Write the gradient with respect to the masses over that of the decisions."""
    mean = torch.mul(of_decided, mass, out=spare).sum(axis, keepdim=True).div_(total)
    return of_decided.sub_(mean).mul_(total.reciprocal() if weight is None else weight / total)


def make_scratch(logits: Tensor, layout: Layout) -> Tensor:
    """Return memory for the four arrays of a block; new memory for each operation would take most of the time."""
    at_least = logits.shape[layout.class_axis]
    size = max(block_size(logits, layout), at_least) if in_blocks(logits, layout) else logits.numel()
    return logits.new_empty(4, size)


def _views(scratch: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first, second, third, fourth = (row[: x.numel()].view(x.shape) for row in scratch.unbind())
    return first, second, third, fourth


def _find_true(y: Tensor, out: Tensor, axis: int) -> Tensor:
    """Write 1 for the true classes and 0 for the others."""
    numbers = torch.arange(out.shape[axis], dtype=out.dtype)
    return torch.eq(y.to(out.dtype).unsqueeze(axis), numbers if axis == -1 else numbers.unsqueeze(-1), out=out)


class _Largest(NamedTuple):
    """The two largest probabilities of each sample."""

    first: Tensor
    second: Tensor

    @property
    def threshold(self) -> Tensor:
        """The dynamic threshold, their mean."""
        return (self.first + self.second).div_(2)

    def shares(self, p: Tensor, axis: int, out: Tensor) -> Tensor:
        """Write the derivative of the threshold with respect to the probabilities; equal ones have equal shares."""
        shares = torch.ge(p, self.second, out=out)
        if float(shares.sum(dtype=torch.float64)) == 2 * self.first.numel():
            return shares.div_(2)
        equal = torch.eq(p, self.second, out=torch.empty_like(p))
        above = shares.sub_(equal).div_(2)
        return above.add_(equal.mul_((1 - above.sum(axis, keepdim=True)) / equal.sum(axis, keepdim=True)))


def _two_largest(p: Tensor, axis: int, spare: Tensor) -> _Largest:
    first = p.amax(axis, keepdim=True)
    is_first = torch.eq(p, first, out=spare)
    several = is_first.sum(axis, keepdim=True).gt_(1.5)
    second = torch.sub(p, is_first, out=spare).amax(axis, keepdim=True)
    return _Largest(first, torch.maximum(second, several.mul_(first)))


class _Pieces(NamedTuple):
    """Linear at the dynamic threshold t: kinks at t/2 and b = 3t/2, and the slopes of its three pieces."""

    t: Tensor
    b: Tensor
    m1: Tensor
    m2: Tensor
    m3: Tensor
    last_term: Tensor

    @classmethod
    def of(cls, largest: _Largest, delta: float) -> _Pieces:
        t = largest.threshold
        b = 1.5 * t
        m1, m2, m3 = 2 * delta / t, (1 - 2 * delta) / t, delta / (1 - b)
        return cls(t, b, m1, m2, m3, (m3 - m2).mul_((largest.first - b).relu_()))

    def masses(self, p: Tensor, out: Tensor, spare: Tensor) -> None:
        """Write the masses; only the largest probability can be beyond b (see above)."""
        torch.sub(p, self.t / 2, out=out).relu_().mul_(self.m2 - self.m1).addcmul_(p, self.m1)
        out.addcmul_(torch.ge(p, self.b, out=spare), self.last_term)
