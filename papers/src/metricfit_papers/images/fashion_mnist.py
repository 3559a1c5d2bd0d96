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
    """Read Fashion-MNIST (Xiao et al. 2017) from its four idx files, compressed with gzip or not.

    The files are searched in ``FashionMNIST/raw``, raw_folder torchvision keeps them, in ``images/fashion-mnist`` and
    ``fashion-mnist``, and in the folder itself. If a file exists in both forms, the compressed one is read; if that is
    damaged, the other one is read, with a warning. A part of the set is accepted, and `ImageSet.whole` is then False.
    Nothing is downloaded.

    Args:
        folder: The folder with the files, or a folder around it.

    Returns:
        The training and test images.

    Raises:
        FileNotFoundError: A file is missing.
        BadImageFile: A file is damaged.

    Example:
        >>> fashion_mnist("/nowhere")
        Traceback (most recent call last):
        FileNotFoundError: Fashion-MNIST is not in /nowhere: no file train-images-idx3-ubyte or train-images-idx3-ub...
    """
    root = Path(folder)
    first = "train-images-idx3-ubyte"
    for ending in (".gz", ""):
        raw_folder = folder_with(root, PLACES, first + ending)
        if raw_folder is not None:
            return ImageSet("fashion-mnist", CLASSES, _part(raw_folder, "train"), _part(raw_folder, "t10k"), PUBLISHED)
    raise FileNotFoundError(
        f"Fashion-MNIST is not in {root}: no file {first} or {first}.gz in {', '.join(PLACES)}. Download the four "
        f".gz files of {SOURCE} into {root / PLACES[0]}, or run: metricfit datasets --fetch fashion_mnist --data {root}"
    )


def _part(raw_folder: Path, part: str) -> Images:
    path, pixels = _array(raw_folder / f"{part}-images-idx3-ubyte", 3)
    if not len(pixels):
        raise BadImageFile(path, "holds no images")
    if pixels.shape[1:] != (28, 28):
        raise BadImageFile(path, f"holds images of {pixels.shape[1]} x {pixels.shape[2]}, not 28 x 28")
    labels_path, labels = _array(raw_folder / f"{part}-labels-idx1-ubyte", 1)
    return Images(pixels[:, None], check_labels(labels_path, labels, len(pixels), len(CLASSES)))


def _array(plain: Path, dimensions: int) -> tuple[Path, NDArray[np.uint8]]:
    """Return the path that was read, compressed or not, and its array."""
    compressed = plain.with_name(f"{plain.name}.gz")
    if not compressed.is_file() and not plain.is_file():
        raise FileNotFoundError(f"there is no file {plain} or {compressed.name}; it is part of {SOURCE}, put it there")
    if compressed.is_file():
        try:
            return compressed, read_idx(compressed, dimensions, SOURCE)
        except BadImageFile as error:
            if not plain.is_file():
                raise
            warnings.warn(f"{error}, or remove it; {plain} beside it is read instead", stacklevel=4)
    return plain, read_idx(plain, dimensions, SOURCE)
