"""Soft counts of exclusive classes with Linear at the dynamic threshold, the default: O(samples x classes) time.

With a = t/2 and b = 3t/2 the mass is
    h = m1 p + (m2 - m1) relu(p - a) + (m3 - m2) relu(p - b).
Only the largest probability can exceed b, because the second largest is at most t. The last term is therefore computed
for one class per sample. The other terms enter only through sums, so that neither h nor h/s is stored. The terms do not
cancel: at the dynamic threshold no probability exceeds 2t, so each term is of order 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.kernels.class_layout import Layout
from metricfit.core.step_formulas import linear_pieces


class _Linear(NamedTuple):
    """What forward and backward need: p, relu(p - a) and, per sample, the slopes, the last term and s (``total``)."""

    p: Tensor
    above: Tensor
    t: Tensor
    b: Tensor
    m1: Tensor
    m2: Tensor
    m3: Tensor
    largest: Tensor
    p1: Tensor
    last_term: Tensor
    total: Tensor

    def mass_at(self, classes: Tensor, axis: int) -> Tensor:
        """Return h of one class per sample."""
        first_terms = self.m1 * self.p.gather(axis, classes) + (self.m2 - self.m1) * self.above.gather(axis, classes)
        return first_terms + (classes == self.largest).to(self.p.dtype) * self.last_term


def _linear(x: Tensor, top: Tensor | None, delta: float, axis: int) -> tuple[_Linear, Tensor]:
    p = torch.softmax(x, axis)
    top = top_two(p, axis) if top is None else top
    t = p.gather(axis, top).mean(axis, keepdim=True)
    pieces = linear_pieces(t, 1 - t)
    m1, m2, m3 = pieces.slopes(delta)
    b = t + pieces.width / 2
    above = (p - pieces.a).relu_()
    largest = top.narrow(axis, 0, 1)
    p1 = p.gather(axis, largest)
    last_term = (m3 - m2) * torch.relu(p1 - b)
    total = m1 + (m2 - m1) * above.sum(axis, keepdim=True) + last_term
    return _Linear(p, above, t, b, m1, m2, m3, largest, p1, last_term, total), top


def counts(x: Tensor, y: Tensor, w: Tensor | None, delta: float, layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the stacked counts, and the classes of each sample's two largest probabilities for the backward pass."""
    axis, over = layout
    soft, top = _linear(x, None, delta, axis)
    true = y.unsqueeze(axis)
    scale = soft.total.reciprocal() if w is None else w.unsqueeze(axis) / soft.total
    hit = torch.minimum(soft.mass_at(true, axis), soft.total)  # the sum of the masses can round below one of them
    missed, hit = (soft.total - hit) * scale, hit * scale
    lead = tuple(size for number, size in enumerate(x.shape, -x.dim()) if number != axis and number not in over)
    flat = (*lead, math.prod(x.shape[number] for number in over))

    def per_class(classes: Tensor, amount: Tensor) -> Tensor:
        empty = x.new_zeros(*lead, x.shape[axis])
        return empty.scatter_add(-1, classes.reshape(flat), amount.reshape(flat))

    tp, fn = per_class(true, hit), per_class(true, missed)
    present = torch.ones_like(hit) if w is None else w.unsqueeze(axis)
    for terms in (soft.p, soft.above):  # sums over the other classes only: a difference of sums would cancel
        terms.scatter_(axis, true, 0.0)
    beyond = scale * soft.last_term * (soft.largest != true).to(x.dtype)
    fp = _sum_over_samples(soft.p, scale * soft.m1, layout) + per_class(soft.largest, beyond)
    fp = (fp + _sum_over_samples(soft.above, scale * (soft.m2 - soft.m1), layout)).clamp(min=0)
    positives = per_class(true, present)
    tn = (positives.sum(-1, keepdim=True) - positives - fp).clamp(min=0)
    return torch.stack([tp, fp, fn, tn]), top


def gradient(
    x: Tensor, y: Tensor, w: Tensor | None, top: Tensor | None, grad: Tensor, delta: float, layout: Layout
) -> Tensor:
    """Return the gradient with respect to the logits; it is written over r, the gradient with respect to the masses.

    Up to b the step is a function of p/t, so its derivative with respect to t is -slope p/t. The backward pass of the
    softmax subtracts sum_j p_j dL/dp_j = sum_j slope_j p_j r_j + t dL/dt, which is 0 if no probability is above b.
    """
    axis = layout.class_axis
    soft, top = _linear(x, top, delta, axis)
    p, true = soft.p, y.unsqueeze(axis)
    of_other = grad[1] - grad[3]
    more_if_true = (grad[0] - grad[2] - of_other).expand(x.shape).gather(axis, true)
    mean = soft.m1 * _sum_over_classes(p, of_other, axis) + (soft.m2 - soft.m1) * _sum_over_classes(
        soft.above, of_other, axis
    )
    mean = mean + soft.last_term * of_other.expand(x.shape).gather(axis, soft.largest)
    mean = (mean + soft.mass_at(true, axis) * more_if_true) / soft.total
    scale = soft.total.reciprocal() if w is None else w.unsqueeze(axis) / soft.total
    r = (of_other - mean).scatter_add_(axis, true, more_if_true)
    beyond = (soft.p1 > soft.b).to(p.dtype) * scale * r.gather(axis, soft.largest)
    slope = soft.above.gt_(0).mul_((soft.m2 - soft.m1) * scale).add_(soft.m1 * scale)
    of_logits = r.mul_(slope).mul_(p)
    inner = of_logits.sum(axis, keepdim=True) - beyond * soft.m2 * soft.p1
    of_threshold = -inner / soft.t - beyond * 1.5 * soft.m3 * (1 - soft.p1) / (1 - soft.b)
    taken_off = inner + beyond * soft.m3 * soft.p1 + of_threshold * soft.t
    of_logits.scatter_add_(axis, soft.largest, beyond * (soft.m3 - soft.m2) * soft.p1)
    of_logits.scatter_add_(axis, top, p.gather(axis, top) * (of_threshold / 2))
    return of_logits.addcmul_(p, taken_off, value=-1)


def _sum_over_classes(terms: Tensor, by_class: Tensor, axis: int) -> Tensor:
    """Sum ``terms`` times one number per class over the classes."""
    if axis == -1:
        return terms @ by_class.transpose(-1, -2)
    return (terms * by_class).sum(axis, keepdim=True)


def _sum_over_samples(terms: Tensor, by_sample: Tensor, layout: Layout) -> Tensor:
    """Sum ``terms`` times one number per sample over the samples."""
    if layout.class_axis == -1:
        return (by_sample.transpose(-1, -2) @ terms).squeeze(-2)
    return (terms * by_sample).sum(layout.sample_axes)


def top_two(p: Tensor, axis: int) -> Tensor:
    """Return the classes of the two largest probabilities; on a GPU and compiled, two maxima are faster than a topk."""
    if p.device.type == "cpu" and not torch.compiler.is_compiling():
        return p.topk(2, dim=axis).indices
    first = p.detach().argmax(axis, keepdim=True)
    return torch.cat([first, p.detach().scatter(axis, first, -1.0).argmax(axis, keepdim=True)], axis)
