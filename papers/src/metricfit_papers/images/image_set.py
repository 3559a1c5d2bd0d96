"""Images and ImageSet, which all loaders of images return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Images:
    """Images and their labels.

    Args:
        pixels: Bytes ``(n, channels, height, width)``.
        labels: The number of the class of each image.

    Raises:
        ValueError: The pixels are not bytes of four axes, or there is not one label per image.

    Example:
        >>> len(Images(np.zeros((2, 1, 4, 4), np.uint8), np.array([0, 1])))
        2
    """

    pixels: Pixels
    labels: Labels

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            raise InvalidValueError(
                f"pixels are bytes (n, channels, height, width), got {self.pixels.dtype} {self.pixels.shape}"
            )
        if self.labels.shape != self.pixels.shape[:1]:
            raise InvalidValueError(
                f"{len(self.pixels)} images have labels of shape {self.labels.shape}; give one per image"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ImageSet:
    """A set of images for training and test.

    The networks of this package take ``torch.from_numpy(images.train.pixels)`` after the layer
    `metricfit_papers.models.Centred`, which converts bytes to numbers.

    Args:
        name: Name of the set.
        classes: Names of the classes.
        train: Training images.
        test: Test images.
        published: Number of training images that the publisher distributes.

    Example:
        >>> few = Images(np.zeros((2, 1, 4, 4), np.uint8), np.array([0, 1]))
        >>> ImageSet("stripes", ("rows", "columns"), few, few, published=2)
        ImageSet('stripes', 2 + 2 images of 1 x 4 x 4, 2 classes)
        >>> ImageSet("stripes", ("rows", "columns"), few, few, published=60).whole
        False
    """

    name: str
    classes: tuple[str, ...]
    train: Images
    test: Images
    published: int

    @property
    def whole(self) -> bool:
        """Whether all published training images are present."""
        return len(self.train) == self.published

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.train.pixels.shape[1:]))
        part = "" if self.whole else f" of {self.published}"
        sizes = f"{len(self.train)}{part} + {len(self.test)} images of {shape}"
        return f"ImageSet({self.name!r}, {sizes}, {len(self.classes)} classes)"
