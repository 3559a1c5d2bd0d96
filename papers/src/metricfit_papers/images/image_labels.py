"""Checks of the labels of images: one whole number per image; errors name the file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit_papers.images.image_files import AGAIN, BadImageFile


def check_labels(path: Path, labels: Any, images: int, classes: int, remedy: str = AGAIN) -> NDArray[np.int64]:
    """Return the labels as whole numbers, one per image, after checking that each of them is a class.

    >>> check_labels(Path("some.npz"), [2.0, 0.0], images=2, classes=3)
    array([2, 0])
    >>> check_labels(Path("some.npz"), [0.5, 0.0], images=2, classes=3)
    Traceback (most recent call last):
    metricfit_papers.images.image_files.BadImageFile: some.npz has labels that are not whole numbers, such as 0.5; ...
    """
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise BadImageFile(path, "has labels of different lengths, not one number per image", remedy) from error
    if array.dtype.kind not in "biuf":
        kind = {"U": "text", "S": "bytes"}.get(array.dtype.kind, array.dtype.name)
        raise BadImageFile(path, f"has labels that are {kind}, not numbers", remedy)
    if array.ndim != 1:
        raise BadImageFile(path, f"has labels of the shape {array.shape}, not one number per image", remedy)
    if len(array) != images:
        raise BadImageFile(path, f"has {len(array)} labels for {images} images", remedy)
    broken = array[array != np.floor(array)]  # NaN among them
    if broken.size:
        raise BadImageFile(path, f"has labels that are not whole numbers, such as {broken[0]}", remedy)
    if images and not (array.min() >= 0 and array.max() < classes):
        raise BadImageFile(path, f"has labels from {array.min()} to {array.max()}, but {classes} classes", remedy)
    return array.astype(np.int64)


def saved_labels(path: Path, name: str, remedy: str) -> NDArray[Any]:
    """Read one array from a file that `numpy.savez` wrote, without unpickling.

    numpy's message about a file that it cannot read is not repeated, because it recommends to unpickle the file.
    """
    content = path.read_bytes()
    try:
        arrays = np.load(io.BytesIO(content), allow_pickle=False)
        names = list(arrays.files)
    except Exception:  # a damaged archive can raise any error
        problem = "is damaged, or was not written by numpy.savez" if content else "is empty"
        raise BadImageFile(path, problem, remedy) from None
    if name not in names:
        raise BadImageFile(path, f"has no array {name}, only {', '.join(names) or 'none'}", remedy)
    try:
        return np.asarray(arrays[name])
    except Exception:  # as above
        raise BadImageFile(path, f"has an array {name} that is damaged, or holds no numbers", remedy) from None
