"""Exclusive classes in plain operations for any step and target; and what all their kernels are called with.

For one sample with softmax probabilities p, the threshold is t = (p_1 + p_2)/2, the mean of the two largest, or a
number; h_k = step(p_k, t), and the soft decision is h_k / s with s = sum_k h_k (multiclass soft sets, Eq. 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.step_formulas import VALUE, Threshold, both_ends
from metricfit.core.steps import Step, StraightThrough, is_unchanged
from metricfit.core.tensor_numerics import SMALLEST_DIVISOR
from metricfit.core.types import Layout

#: Number of logits per block on one thread.
BLOCK = 2**18

#: Fixed thresholds are moved to at least this distance from 0 and 1. The decisions of a sample are divided by their
#: sum, so nearer thresholds would change only the slopes, which would then overflow in float32.
NEAREST = 1e-6


class StepAt(NamedTuple):
    """A closed-form step at a threshold; None is the dynamic one."""

    kind: str
    number: float
    threshold: float | None

    def __call__(self, p: Tensor, threshold: Threshold) -> Tensor:
        """Return the soft decisions, as the step itself does."""
        return VALUE[self.kind](p, 1 - p, *both_ends(threshold, p.dtype), self.number)


def keeps_images(logits: Tensor, layout: Layout) -> bool:
    """Return whether counts are per image, so that the axis of images is kept."""
    return -min(layout.sample_axes) < logits.dim()


def block_size(logits: Tensor, layout: Layout, step: StepAt) -> int:
    """Return the number of logits per block.

    It is doubled for rows of many classes, which have few samples. It is larger on several threads, which every
    operation has to start and to wait for.
    """
    size = BLOCK
    if torch.get_num_threads() > 1:
        size *= 4 if step.kind == "identity" else 2
    return 2 * size if layout.class_axis == -1 and logits.shape[-1] >= 64 else size


def has_blocks(step: StepAt) -> bool:
    """Return whether the CPU has a kernel for the step."""
    return step.kind == "identity" or (step.kind == "linear" and step.threshold is None)


def in_blocks(logits: Tensor, layout: Layout, size: int) -> bool:
    """Return whether the logits are one batch, without leading axes, that is larger than a block of this size."""
    plain = logits.dim() == (2 if layout.class_axis == -1 else 3)
    return plain and logits.numel() > size


def blocks(
    logits: Tensor, target: Tensor, weight: Tensor | None, layout: Layout, size: int
) -> Iterator[tuple[tuple[slice, ...], Tensor, Tensor, Tensor | None]]:
    """Yield blocks of samples, or of images and of their pixels, of at most ``size`` logits.

    Yields:
        The slices of a block in the logits, and the logits, the target and the weight that they select.
    """
    classes = logits.shape[layout.class_axis]
    if layout.class_axis == -1:
        rows = max(1, size // classes)
        for start in range(0, logits.shape[0], rows):
            block: tuple[slice, ...] = (slice(start, start + rows),)
            yield block, logits[block], target[block], None if weight is None else weight[block]
        return
    images, pixels = logits.shape[0], logits.shape[-1]
    images_at_once = max(1, size // (classes * pixels))
    pixels_at_once = max(1, size // classes)
    for first in range(0, images, images_at_once):
        for start in range(0, pixels, pixels_at_once):
            image_slice, pixel_slice = slice(first, first + images_at_once), slice(start, start + pixels_at_once)
            block, samples = (image_slice, slice(None), pixel_slice), (image_slice, pixel_slice)
            yield block, logits[block], target[samples], None if weight is None else weight[samples]


def decisions(logits: Tensor, step: Step | StepAt, threshold: float | Tensor | None, layout: Layout) -> Tensor:
    """Return the soft decisions of each sample, which sum to 1 over the classes, in plain operations."""
    axis, threshold = layout.class_axis, move_inside(threshold)
    if isinstance(step, Step) and is_unchanged(step, StraightThrough):
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
