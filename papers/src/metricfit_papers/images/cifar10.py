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
BATCH_SIZE = 10_000
PUBLISHED = BATCH_SIZE * len(BATCHES)
SIDE = 32
PIXELS = 3 * SIDE * SIDE
#: Number of images in a row of a mosaic.
ACROSS = 100
MOSAIC = ".webp"
SAVE_LABELS = f"save whole numbers from 0 to {len(CLASSES) - 1} there: numpy.savez(path, y_train=..., y_test=...)"
Read = Callable[[Path], Images]


def cifar10(folder: str | PathLike[str]) -> ImageSet:
    """Read CIFAR-10 (Krizhevsky 2009) from a folder, in one of three layouts. Nothing is downloaded.

    - ``cifar-10-batches-py``, where torchvision keeps it: pickles, of which only arrays are read (`pickled_batches`);
    - ``cifar-10-batches-bin``, the binary version;
    - ``images/cifar10``: mosaics of 100 x 100 images as lossless WebP, with the labels of all batches in
      ``labels.npz``.

    The published set has 10,000 images in each of six files. A smaller set with the same layout is accepted, and
    `ImageSet.whole` is then False. A file that was cut short is refused: all training batches must have the same number
    of images, and if that is 10,000, so must the test batch. The training images of a missing mosaic are left out.

    Args:
        folder: One of these folders, or the folder that contains it.

    Returns:
        The training and test images.

    Raises:
        FileNotFoundError: The folder does not contain CIFAR-10, or a file is missing.
        BadImageFile: A file is damaged.

    Example:
        >>> cifar10("/nowhere")
        Traceback (most recent call last):
        FileNotFoundError: CIFAR-10 is not in /nowhere: no file data_batch_1 in cifar-10-batches-py; ...
    """
    batch_folder, ending, read = _layout(Path(folder))
    paths = [batch_folder / f"{name}{ending}" for name in BATCHES]
    if ending == MOSAIC:
        paths = [path for path in paths if path.is_file()]
    train = {path: read(path) for path in paths}
    test_path = batch_folder / f"test_batch{ending}"
    test = read(test_path)
    _check_counts({path: len(images) for path, images in train.items()}, test_path, len(test))
    pixels = np.concatenate([images.pixels for images in train.values()])
    labels = np.concatenate([images.labels for images in train.values()])
    return ImageSet("cifar10", CLASSES, Images(pixels, labels), test, PUBLISHED)


def _layout(root: Path) -> tuple[Path, str, Read]:
    """Return the folder of the batches, the ending of its files' names, and the function that reads them.

    A folder with the first batch is preferred, in its usual place rather than in the root; otherwise one with the
    second batch, and so on, so that a missing batch can be reported or left out.
    """
    for name in BATCHES:
        for usual in (True, False):
            for places, ending, read in _LAYOUTS:
                batch_folder = folder_with(root, places if usual else ("",), name + ending)
                if batch_folder is not None:
                    return batch_folder, ending, read
    candidates = "; ".join(f"{BATCHES[0]}{ending} in {' or '.join(places)}" for places, ending, _ in _LAYOUTS)
    raise FileNotFoundError(
        f"CIFAR-10 is not in {root}: no file {candidates}; and none of them in the folder itself. Download the "
        f"Python version of {SOURCE}, and unpack it there, or run: metricfit datasets --fetch cifar10 --data {root}"
    )


def _check_counts(train: dict[Path, int], test_path: Path, test: int) -> None:
    """Refuse batches that do not belong together: a file can be cut between two images and still look complete."""
    fullest, most = max(train.items(), key=lambda item: item[1])
    for path, count in train.items():
        if count != most:
            raise BadImageFile(path, f"holds {count} images, but {fullest.name} {most}: they are not of one set")
    if most == BATCH_SIZE != test:
        raise BadImageFile(test_path, f"holds {test} images, but {fullest.name} {most}: they are not of one set")


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
    """Read a file of images, each of them one byte of label and then the pixels."""
    content = read_bytes(path, SOURCE)
    if not content:
        raise BadImageFile(path, "holds no images")
    if len(content) % (1 + PIXELS):
        raise BadImageFile(path, f"has {len(content)} bytes, which is not a multiple of {1 + PIXELS}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    labels = check_labels(path, rows[:, 0], len(rows), len(CLASSES))
    return Images(rows[:, 1:].reshape(-1, 3, SIDE, SIDE).copy(), labels)


def _from_mosaic(path: Path) -> Images:
    labels_path = path.with_name("labels.npz")
    if not path.is_file() or not labels_path.is_file():
        missing = labels_path if path.is_file() else path
        raise FileNotFoundError(f"there is no file {missing}; the mosaics of CIFAR-10 need it")
    labels = _labels_of(path.stem, labels_path)
    pixels = cut(read_picture(path), path)
    return Images(pixels, check_labels(labels_path, labels, len(pixels), len(CLASSES), SAVE_LABELS))


def cut(mosaic: Pixels, path: Path) -> Pixels:
    """Return the images of a mosaic, row by row."""
    rows, columns = mosaic.shape[0] // SIDE, mosaic.shape[1] // SIDE
    if mosaic.shape != (SIDE * rows, SIDE * columns, 3) or columns != ACROSS:
        raise BadImageFile(path, f"is {mosaic.shape[1]} x {mosaic.shape[0]} pixels, not {ACROSS} images of 32 across")
    tiles = mosaic.reshape(rows, SIDE, columns, SIDE, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(-1, 3, SIDE, SIDE))


def _labels_of(batch: str, path: Path) -> NDArray[Any]:
    """Return the labels of a batch: ``y_test``, or a fifth of ``y_train``."""
    if batch not in BATCHES:
        return saved_labels(path, "y_test", SAVE_LABELS)
    labels = saved_labels(path, "y_train", SAVE_LABELS)
    if labels.ndim == 0 or len(labels) % len(BATCHES):
        problem = f"has y_train of the shape {labels.shape}, which is not {len(BATCHES)} batches of one length"
        raise BadImageFile(path, problem, SAVE_LABELS)
    return np.split(labels, len(BATCHES))[BATCHES.index(batch)]


_LAYOUTS: tuple[tuple[tuple[str, ...], str, Read], ...] = (
    (("cifar-10-batches-py",), "", _from_pickle),
    (("cifar-10-batches-bin",), ".bin", _from_binary),
    (("images/cifar10", "cifar10"), MOSAIC, _from_mosaic),
)
