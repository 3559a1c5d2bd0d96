"""Fashion-MNIST: 70,000 grey images of 28 x 28."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metricfit_papers.images.image_files import BadImageFile, folder_with, read_idx
from metricfit_papers.images.image_labels import check_labels
from metricfit_papers.images.image_set import Images, ImageSet

CLASSES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
PLACES = ("FashionMNIST/raw", "images/fashion-mnist", "fashion-mnist", ".")
PUBLISHED = 60_000
SOURCE = "Fashion-MNIST, https://github.com/zalandoresearch/fashion-mnist"


def fashion_mnist(folder: str | PathLike[str]) -> ImageSet:
    """Fashion-MNIST (Xiao et al. 2017) from its four idx files, packed with gzip or not.

    They are looked for in ``FashionMNIST/raw``, where torchvision keeps them, ``images/fashion-mnist``,
    ``fashion-mnist`` and the folder itself. A file that is there both packed and not is read packed; if that one is
    damaged, the other is, with a warning. A part of the set is accepted: `ImageSet.whole` tells. Nothing is downloaded.

    >>> fashion_mnist("/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: Fashion-MNIST is not in /nowhere: no file train-images-idx3-ubyte or train-images-idx3-ubyte...
    """
    root = Path(folder)
    first = "train-images-idx3-ubyte"
    for ending in (".gz", ""):
        where = folder_with(root, PLACES, first + ending)
        if where is not None:
            return ImageSet("fashion-mnist", CLASSES, _part(where, "train"), _part(where, "t10k"), PUBLISHED)
    raise FileNotFoundError(
        f"Fashion-MNIST is not in {root}: no file {first} or {first}.gz in {', '.join(PLACES)}. Download the four "
        f".gz files of {SOURCE} into {root / PLACES[0]}"
    )


def _part(where: Path, part: str) -> Images:
    path, pixels = _array(where / f"{part}-images-idx3-ubyte", 3)
    if not len(pixels):
        raise BadImageFile(path, "holds no images")
    if pixels.shape[1:] != (28, 28):
        raise BadImageFile(path, f"holds images of {pixels.shape[1]} x {pixels.shape[2]}, not 28 x 28")
    labels_at, labels = _array(where / f"{part}-labels-idx1-ubyte", 1)
    return Images(pixels[:, None], check_labels(labels_at, labels, len(pixels), len(CLASSES)))


def _array(plain: Path, dimensions: int) -> tuple[Path, NDArray[np.uint8]]:
    """A file's array, and which of its two forms it was read from."""
    packed = plain.with_name(f"{plain.name}.gz")
    if not packed.is_file() and not plain.is_file():
        raise FileNotFoundError(f"there is no file {plain} or {packed.name}; it is part of {SOURCE}, put it there")
    if packed.is_file():
        try:
            return packed, read_idx(packed, dimensions, SOURCE)
        except BadImageFile as error:
            if not plain.is_file():
                raise
            warnings.warn(f"{error}, or remove it; {plain} beside it is read instead", stacklevel=4)
    return plain, read_idx(plain, dimensions, SOURCE)
