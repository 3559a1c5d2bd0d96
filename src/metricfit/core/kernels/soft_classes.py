"""Soft and hard decisions between exclusive classes, and their counts, in plain operations for any step and target.

For one sample with softmax probabilities p, the threshold is t = (p_1 + p_2)/2, the mean of the two largest, or a
number; h_k = step(p_k, t), and the soft decision is h_k / s with s = sum_k h_k (multiclass soft sets, Eq. 5).
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.kernels.class_layout import Layout
from metricfit.core.numerics import SMALLEST_DIVISOR
from metricfit.core.steps import Step, StraightThrough, is_unchanged

#: Fixed thresholds are moved to at least this distance from 0 and 1. The decisions of a sample are divided by their
#: sum, so nearer thresholds would change only the slopes, which would then overflow in float32.
NEAREST = 1e-6


def decisions(logits: Tensor, step: Step, threshold: float | Tensor | None, layout: Layout) -> Tensor:
    """Return the soft decisions of each sample, which sum to 1 over the classes, in plain operations."""
    axis, threshold = layout.class_axis, move_inside(threshold)
    if is_unchanged(step, StraightThrough):
        soft = decisions(logits, step.step, threshold, layout)
        return hard_decisions(logits, layout, soft.dtype) + (soft - soft.detach())
    p = torch.softmax(logits, axis)
    t = p.gather(axis, top_two(p, axis)).mean(axis, keepdim=True) if threshold is None else threshold
    mass = step(p, t)
    total = mass.sum(axis, keepdim=True)
    empty = total < SMALLEST_DIVISOR[total.dtype]
    return torch.where(empty, p, mass / torch.where(empty, 1.0, total))


def hard_decisions(logits: Tensor, layout: Layout, dtype: torch.dtype) -> Tensor:
    """Return 1 for the argmax, the first of equal ones, and 0 for the other classes; there is no gradient."""
    axis = layout.class_axis
    chosen = logits.detach().argmax(axis, keepdim=True)
    return torch.zeros_like(logits, dtype=dtype, requires_grad=False).scatter(axis, chosen, 1.0)


def sum_decisions(decided: Tensor, target: Tensor, weight: Tensor | None, layout: Layout) -> Tensor:
    """Return the counts ``(4, ..., c)`` of soft or hard decisions of the logits' shape, differentiably."""
    axis, over = layout
    if not target.is_floating_point():
        target = torch.zeros_like(decided, requires_grad=False).scatter(axis, target.unsqueeze(axis), 1.0)
    positive, negative = target, 1 - target
    if weight is not None:
        w = weight.unsqueeze(axis)
        positive, negative = positive * w, negative * w
    rest = 1 - decided
    parts = (positive * decided, negative * decided, positive * rest, negative * rest)
    return torch.stack([part.sum(over) for part in parts])


def move_inside(threshold: float | Tensor | None) -> float | Tensor | None:
    """Move a fixed threshold to a distance of at least ``NEAREST`` from 0 and 1."""
    if isinstance(threshold, Tensor):
        return threshold.clamp(NEAREST, 1 - NEAREST)
    return None if threshold is None else min(max(threshold, NEAREST), 1 - NEAREST)


def top_two(p: Tensor, axis: int) -> Tensor:
    """Return the classes of the two largest probabilities; two maxima are faster than a topk, but on the CPU."""
    if p.device.type == "cpu" and not torch.compiler.is_compiling():
        return p.topk(2, dim=axis).indices
    first = p.detach().argmax(axis, keepdim=True)
    return torch.cat([first, p.detach().scatter(axis, first, -1.0).argmax(axis, keepdim=True)], axis)
