"""What every loader of images returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Images:
    """Images ``(n, channels, height, width)`` of bytes, and the number of each one's class."""

    pixels: Pixels
    labels: Labels

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            raise InvalidValueError(
                f"pixels are bytes (n, channels, height, width), got {self.pixels.dtype} {self.pixels.shape}"
            )
        if self.labels.shape != self.pixels.shape[:1]:
            raise InvalidValueError(f"{len(self.pixels)} images have {self.labels.shape} labels; give one each")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ImageSet:
    """A set of images: those to train on, those to test on, and what its classes are called.

    ``torch.from_numpy(images.train.pixels)`` is what networks of this library take after a layer that makes numbers of
    bytes, `metricfit_papers.models.augmentation.Centred`. `published` says how many training images the origin has.

    >>> few = Images(np.zeros((2, 1, 4, 4), np.uint8), np.array([0, 1]))
    >>> ImageSet("stripes", ("rows", "columns"), few, few, published=2)
    ImageSet('stripes', 2 + 2 images of 1 x 4 x 4, 2 classes)
    >>> ImageSet("stripes", ("rows", "columns"), few, few, published=60)  # a part of them, and not `whole`
    ImageSet('stripes', 2 of 60 + 2 images of 1 x 4 x 4, 2 classes)
    """

    name: str
    classes: tuple[str, ...]
    train: Images
    test: Images
    published: int

    @property
    def whole(self) -> bool:
        """Whether all training images of the origin are there."""
        return len(self.train) == self.published

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.train.pixels.shape[1:]))
        part = "" if self.whole else f" of {self.published}"
        sizes = f"{len(self.train)}{part} + {len(self.test)} images of {shape}"
        return f"ImageSet({self.name!r}, {sizes}, {len(self.classes)} classes)"
