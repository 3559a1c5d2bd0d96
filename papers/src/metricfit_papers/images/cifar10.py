"""CIFAR-10: 60,000 colour images of 32 x 32."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit_papers.images.image_files import BadImageFile, folder_with, read_bytes, read_picture
from metricfit_papers.images.image_labels import check_labels, saved_labels
from metricfit_papers.images.image_set import Images, ImageSet, Pixels
from metricfit_papers.images.pickled_batches import read_batch

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SOURCE = "CIFAR-10, https://www.cs.toronto.edu/~kriz/cifar.html"
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
EACH = 10_000
PUBLISHED = EACH * len(BATCHES)
SIDE = 32
PIXELS = 3 * SIDE * SIDE
ACROSS = 100
"""Images in a row, and rows, of a mosaic."""
MOSAIC = ".webp"
SAVE_LABELS = f"save whole numbers from 0 to {len(CLASSES) - 1} there: numpy.savez(path, y_train=..., y_test=...)"
Read = Callable[[Path], Images]


def cifar10(folder: str | PathLike[str]) -> ImageSet:
    """CIFAR-10 (Krizhevsky 2009) from a folder, in one of three layouts.

    ``cifar-10-batches-py``, where torchvision keeps it: pickles, of which only arrays are read, see `pickled_batches`;
    ``cifar-10-batches-bin``, the binary version; or ``images/cifar10``, mosaics of 100 x 100 images as lossless WebP,
    with the labels of all batches in ``labels.npz``. The folder itself may be one of these. Nothing is downloaded.

    The origin has 10,000 images in each of six files. A smaller set of the same layout is accepted, and
    `ImageSet.whole` tells; but a file that was cut short is refused: training batches hold the same number of images
    each, and where that is 10,000 the test batch holds as many. A mosaic that is not there leaves its training images
    out.

    >>> cifar10("/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: CIFAR-10 is not in /nowhere: no file data_batch_1 in cifar-10-batches-py; ...
    """
    root = Path(folder)
    where, ending, read = _layout(root)
    paths = [where / f"{name}{ending}" for name in BATCHES]
    if ending == MOSAIC:
        paths = [path for path in paths if path.is_file()]
    train = {path: read(path) for path in paths}
    test_at = where / f"test_batch{ending}"
    test = read(test_at)
    _check_counts({path: len(images) for path, images in train.items()}, test_at, len(test))
    pixels = np.concatenate([images.pixels for images in train.values()])
    labels = np.concatenate([images.labels for images in train.values()])
    return ImageSet("cifar10", CLASSES, Images(pixels, labels), test, PUBLISHED)


def _layout(root: Path) -> tuple[Path, str, Read]:
    """The folder of batches, the ending of its files' names, and what reads them.

    The folder with the first batch, in its usual place before the root itself; if there is none, one with the second,
    and so on, so that what is missing there can be named, or left out.
    """
    for name in BATCHES:
        for usual in (True, False):
            for places, ending, read in _LAYOUTS:
                where = folder_with(root, places if usual else ("",), name + ending)
                if where is not None:
                    return where, ending, read
    looked = "; ".join(f"{BATCHES[0]}{ending} in {' or '.join(places)}" for places, ending, _ in _LAYOUTS)
    raise FileNotFoundError(
        f"CIFAR-10 is not in {root}: no file {looked}; and none of them in the folder itself. Download the Python "
        f"version of {SOURCE}, and unpack it there"
    )


def _check_counts(train: dict[Path, int], test_at: Path, test: int) -> None:
    """Refuse batches that do not belong together: a file can be cut between two images and still look whole."""
    fullest, most = max(train.items(), key=lambda each: each[1])
    for path, count in train.items():
        if count != most:
            raise BadImageFile(path, f"holds {count} images, but {fullest.name} {most}: they are not of one set")
    if most == EACH != test:
        raise BadImageFile(test_at, f"holds {test} images, but {fullest.name} {most}: they are not of one set")


def _from_pickle(path: Path) -> Images:
    batch = read_batch(path, read_bytes(path, SOURCE))
    data = batch.get(b"data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
        raise BadImageFile(path, f"has no array of bytes b'data' with {PIXELS} columns")
    if not len(data):
        raise BadImageFile(path, "holds no images")
    labels = check_labels(path, batch.get(b"labels", []), len(data), len(CLASSES))
    return Images(data.reshape(-1, 3, SIDE, SIDE), labels)


def _from_binary(path: Path) -> Images:
    """Each image its label and then its bytes."""
    content = read_bytes(path, SOURCE)
    if not content:
        raise BadImageFile(path, "holds no images")
    if len(content) % (1 + PIXELS):
        raise BadImageFile(path, f"has {len(content)} bytes, which are no whole number of {1 + PIXELS}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    labels = check_labels(path, rows[:, 0], len(rows), len(CLASSES))
    return Images(rows[:, 1:].reshape(-1, 3, SIDE, SIDE).copy(), labels)


def _from_mosaic(path: Path) -> Images:
    labels_at = path.with_name("labels.npz")
    if not path.is_file() or not labels_at.is_file():
        missing = labels_at if path.is_file() else path
        raise FileNotFoundError(f"there is no file {missing}; the mosaics of CIFAR-10 need it")
    labels = _labels_of(path.stem, labels_at)
    pixels = cut(read_picture(path), path)
    return Images(pixels, check_labels(labels_at, labels, len(pixels), len(CLASSES), SAVE_LABELS))


def cut(mosaic: Pixels, path: Path) -> Pixels:
    """The images of a mosaic, row by row."""
    high, wide = mosaic.shape[0] // SIDE, mosaic.shape[1] // SIDE
    if mosaic.shape != (SIDE * high, SIDE * wide, 3) or wide != ACROSS:
        raise BadImageFile(path, f"is {mosaic.shape[1]} x {mosaic.shape[0]} pixels, not {ACROSS} images of 32 across")
    tiles = mosaic.reshape(high, SIDE, wide, SIDE, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(-1, 3, SIDE, SIDE))


def _labels_of(batch: str, path: Path) -> NDArray[Any]:
    """The batch's labels: ``y_test``, or its fifth of ``y_train``."""
    if batch not in BATCHES:
        return saved_labels(path, "y_test", SAVE_LABELS)
    every = saved_labels(path, "y_train", SAVE_LABELS)
    if every.ndim == 0 or len(every) % len(BATCHES):
        why = f"has y_train of the shape {every.shape}, which is not {len(BATCHES)} batches of one length"
        raise BadImageFile(path, why, SAVE_LABELS)
    return np.split(every, len(BATCHES))[BATCHES.index(batch)]


_LAYOUTS: tuple[tuple[tuple[str, ...], str, Read], ...] = (
    (("cifar-10-batches-py",), "", _from_pickle),
    (("cifar-10-batches-bin",), ".bin", _from_binary),
    (("images/cifar10", "cifar10"), MOSAIC, _from_mosaic),
)
