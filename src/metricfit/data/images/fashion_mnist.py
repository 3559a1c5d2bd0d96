"""Fashion-MNIST: 70,000 grey images of 28 x 28."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from metricfit.data.images.files import BadImageFile, check_labels, folder_with, read_idx
from metricfit.data.images.image_set import Images, ImageSet

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
    ``fashion-mnist`` and the folder itself. Nothing is downloaded.

    >>> fashion_mnist("/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: Fashion-MNIST is not in /nowhere: no file train-images-idx3-ubyte or train-images-idx3-ubyte...
    """
    root = Path(folder)
    first = "train-images-idx3-ubyte"
    for ending in (".gz", ""):
        where = folder_with(root, PLACES, first + ending)
        if where is not None:
            train, test = _part(where, "train", ending), _part(where, "t10k", ending)
            return ImageSet("fashion-mnist", CLASSES, train, test, PUBLISHED)
    raise FileNotFoundError(
        f"Fashion-MNIST is not in {root}: no file {first} or {first}.gz in {', '.join(PLACES)}. Download the four "
        f".gz files of {SOURCE} into {root / PLACES[0]}"
    )


def _part(where: Path, part: str, ending: str) -> Images:
    path = where / f"{part}-images-idx3-ubyte{ending}"
    pixels = read_idx(path, 3, SOURCE)
    if pixels.shape[1:] != (28, 28):
        raise BadImageFile(path, f"holds images of {pixels.shape[1]} x {pixels.shape[2]}, not 28 x 28")
    labels_at = where / f"{part}-labels-idx1-ubyte{ending}"
    labels = check_labels(labels_at, read_idx(labels_at, 1, SOURCE), len(pixels), len(CLASSES))
    return Images(pixels[:, None], labels)
