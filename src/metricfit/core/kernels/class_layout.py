"""Where classes and samples lie in a tensor of logits, and how it is taken in blocks of samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

BLOCK = {"cpu": 2**18, "cuda": 2**26}


class Layout(NamedTuple):
    """Where the class axis is and which axes hold samples to be summed, both counted from the end."""

    class_axis: int
    sample_axes: tuple[int, ...]


def keeps_images(logits: Tensor, layout: Layout) -> bool:
    """Whether the images' axis is kept."""
    return -min(layout.sample_axes) < logits.dim()


def two_classes(x: Tensor, axis: int) -> tuple[int, ...]:
    """The shape of two entries a sample."""
    shape = list(x.shape)
    shape[axis] = 2
    return tuple(shape)


def in_blocks(logits: Tensor, layout: Layout) -> bool:
    """Whether the logits are one batch, with no leading axes, of more than a block."""
    plain = logits.dim() == (2 if layout.class_axis == -1 else 3)
    return plain and logits.numel() > BLOCK.get(logits.device.type, BLOCK["cpu"])


def blocks(
    logits: Tensor, target: Tensor, weight: Tensor | None, layout: Layout
) -> Iterator[tuple[tuple[slice, ...], Tensor, Tensor, Tensor | None]]:
    """Slices of samples, or of images and then of their pixels, of about a block's size, with what they select."""
    size = BLOCK.get(logits.device.type, BLOCK["cpu"])
    classes = logits.shape[layout.class_axis]
    if layout.class_axis == -1:
        rows = max(1, size // classes)
        for start in range(0, logits.shape[0], rows):
            at: tuple[slice, ...] = (slice(start, start + rows),)
            yield at, logits[at], target[at], None if weight is None else weight[at]
        return
    images, pixels = logits.shape[0], logits.shape[-1]
    images_at_once = max(1, size // (classes * pixels))
    pixels_at_once = max(1, size // classes)
    for first in range(0, images, images_at_once):
        for start in range(0, pixels, pixels_at_once):
            of_images, of_pixels = slice(first, first + images_at_once), slice(start, start + pixels_at_once)
            at, samples = (of_images, slice(None), of_pixels), (of_images, of_pixels)
            yield at, logits[at], target[samples], None if weight is None else weight[samples]
