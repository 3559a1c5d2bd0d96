"""CIFAR-10: 60,000 colour images of 32 x 32."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

import numpy as np

from metricfit.data.images.files import BadImageFile, check_labels, folder_with, read_bytes, read_picture
from metricfit.data.images.image_set import Images, ImageSet, Labels, Pixels
from metricfit.data.images.pickled import read_batch

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SOURCE = "CIFAR-10, https://www.cs.toronto.edu/~kriz/cifar.html"
PUBLISHED = 50_000
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
SIDE = 32
PIXELS = 3 * SIDE * SIDE
ACROSS = 100
"""Images in a row, and rows, of a mosaic."""


def cifar10(folder: str | PathLike[str]) -> ImageSet:
    """CIFAR-10 (Krizhevsky 2009) from a folder, in one of three layouts.

    ``cifar-10-batches-py``, where torchvision keeps it: pickles, of which only arrays are read, see
    `metricfit.data.images.pickled`; ``cifar-10-batches-bin``, the binary version; or ``images/cifar10``, mosaics of
    100 x 100 images as lossless WebP, with the labels of all batches in ``labels.npz``. A mosaic that is not there
    leaves its training images out: `ImageSet.whole` tells. Nothing is downloaded.

    >>> cifar10("/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: CIFAR-10 is not in /nowhere: no file data_batch_1 in cifar-10-batches-py; ...
    """
    root = Path(folder)
    for places, ending, read in _LAYOUTS:
        where = folder_with(root, places, BATCHES[0] + ending)
        if where is not None:
            there = [
                name
                for name in BATCHES
                if ending != MOSAIC or name == BATCHES[0] or (where / f"{name}{ending}").is_file()
            ]
            train = [read(where / f"{name}{ending}") for name in there]
            both = Images(np.concatenate([each.pixels for each in train]), np.concatenate([x.labels for x in train]))
            return ImageSet("cifar10", CLASSES, both, read(where / f"test_batch{ending}"), PUBLISHED)
    looked = "; ".join(f"{BATCHES[0]}{ending} in {' or '.join(places)}" for places, ending, _ in _LAYOUTS)
    raise FileNotFoundError(
        f"CIFAR-10 is not in {root}: no file {looked}. Download the Python version of {SOURCE}, and unpack it there"
    )


def _from_pickle(path: Path) -> Images:
    batch = read_batch(path, read_bytes(path, SOURCE))
    data = batch.get(b"data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
        raise BadImageFile(path, f"has no array of bytes b'data' with {PIXELS} columns")
    labels = np.asarray(batch.get(b"labels", []))
    return Images(data.reshape(-1, 3, SIDE, SIDE), check_labels(path, labels, len(data), len(CLASSES)))


def _from_binary(path: Path) -> Images:
    """Each image its label and then its bytes."""
    content = read_bytes(path, SOURCE)
    if not content or len(content) % (1 + PIXELS):
        raise BadImageFile(path, f"has {len(content)} bytes, which are no whole number of {1 + PIXELS}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    labels = check_labels(path, rows[:, 0], len(rows), len(CLASSES))
    return Images(rows[:, 1:].reshape(-1, 3, SIDE, SIDE).copy(), labels)


def _from_mosaic(path: Path) -> Images:
    labels_at = path.with_name("labels.npz")
    if not path.is_file() or not labels_at.is_file():
        missing = labels_at if path.is_file() else path
        raise FileNotFoundError(f"there is no file {missing}; the mosaics of CIFAR-10 need it")
    try:
        with np.load(labels_at, allow_pickle=False) as every:
            labels = _labels_of(path.stem, every)
    except (ValueError, OSError, KeyError) as error:
        raise BadImageFile(labels_at, f"has no labels of {path.stem} ({error})") from error
    pixels = cut(read_picture(path), path)
    return Images(pixels, check_labels(labels_at, labels, len(pixels), len(CLASSES)))


def cut(mosaic: Pixels, path: Path) -> Pixels:
    """The images of a mosaic, row by row."""
    high, wide = mosaic.shape[0] // SIDE, mosaic.shape[1] // SIDE
    if mosaic.shape != (SIDE * high, SIDE * wide, 3) or wide != ACROSS:
        raise BadImageFile(path, f"is {mosaic.shape[1]} x {mosaic.shape[0]} pixels, not {ACROSS} images of 32 across")
    tiles = mosaic.reshape(high, SIDE, wide, SIDE, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(-1, 3, SIDE, SIDE))


def _labels_of(batch: str, every: np.lib.npyio.NpzFile) -> Labels:
    """The batch's labels: ``y_test``, or its fifth of ``y_train``."""
    if batch not in BATCHES:
        return np.asarray(every["y_test"])
    return np.split(np.asarray(every["y_train"]), len(BATCHES))[BATCHES.index(batch)]


MOSAIC = ".webp"
Read = Callable[[Path], Images]
_LAYOUTS: tuple[tuple[tuple[str, ...], str, Read], ...] = (
    (("cifar-10-batches-py",), "", _from_pickle),
    (("cifar-10-batches-bin",), ".bin", _from_binary),
    (("images/cifar10", "cifar10"), MOSAIC, _from_mosaic),
)
