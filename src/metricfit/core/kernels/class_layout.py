"""What the kernels of exclusive classes are called with: step and layout; and the division into blocks of samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

#: Number of logits per block, by type of device; on the CPU for one thread.
BLOCK = {"cpu": 2**18, "cuda": 2**26}


class Layout(NamedTuple):
    """The class axis, and the axes of the samples to be summed, both counted from the end."""

    class_axis: int
    sample_axes: tuple[int, ...]


class StepAt(NamedTuple):
    """A closed-form step at a threshold; None is the dynamic one."""

    kind: str
    number: float
    threshold: float | None


def keeps_images(logits: Tensor, layout: Layout) -> bool:
    """Return whether counts are per image, so that the axis of images is kept."""
    return -min(layout.sample_axes) < logits.dim()


def block_size(logits: Tensor, layout: Layout, step: StepAt) -> int:
    """Return the number of logits per block.

    It is doubled for rows of many classes, which have few samples. On several threads, which every operation has to
    start and to wait for, it is larger for the steps whose kernels need little memory.
    """
    size = BLOCK.get(logits.device.type, BLOCK["cpu"])
    if logits.device.type == "cpu" and is_lean(step) and torch.get_num_threads() > 1:
        size *= 4 if step.kind == "identity" else 2
    return 2 * size if layout.class_axis == -1 and logits.shape[-1] >= 64 else size


def is_lean(step: StepAt) -> bool:
    """Return whether the CPU has a kernel for the step that writes all arrays of a block into the same memory."""
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
