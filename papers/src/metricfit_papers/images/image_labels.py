"""Checking the labels of images: one whole number per image, or an error that names the file."""

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
    metricfit_papers.images.image_files.BadImageFile: some.npz has labels that are no whole numbers, such as 0.5; ...
    """
    try:
        given = np.asarray(labels)
    except ValueError as error:
        raise BadImageFile(path, "has labels of different lengths, not one number per image", remedy) from error
    if given.dtype.kind not in "biuf":
        kind = {"U": "text", "S": "bytes"}.get(given.dtype.kind, given.dtype.name)
        raise BadImageFile(path, f"has labels that are {kind}, not numbers", remedy)
    if given.ndim != 1:
        raise BadImageFile(path, f"has labels of the shape {given.shape}, not one number per image", remedy)
    if len(given) != images:
        raise BadImageFile(path, f"has {len(given)} labels for {images} images", remedy)
    broken = given[given != np.floor(given)]  # which not-a-number is, too
    if broken.size:
        raise BadImageFile(path, f"has labels that are no whole numbers, such as {broken[0]}", remedy)
    if images and not (given.min() >= 0 and given.max() < classes):
        raise BadImageFile(path, f"has labels from {given.min()} to {given.max()}, there are {classes} classes", remedy)
    return given.astype(np.int64)


def saved_labels(path: Path, name: str, remedy: str) -> NDArray[Any]:
    """An array of a file that `numpy.savez` wrote, read without pickles.

    What numpy says of a file that it cannot read is not repeated, nor chained: it advises to unpickle it.
    """
    content = path.read_bytes()
    try:
        every = np.load(io.BytesIO(content), allow_pickle=False)
        names = list(every.files)
    except Exception:  # a damaged archive raises what it likes
        what = "is damaged, or is no file of numpy.savez" if content else "is empty"
        raise BadImageFile(path, what, remedy) from None
    if name not in names:
        raise BadImageFile(path, f"has no array {name}, only {', '.join(names) or 'none'}", remedy)
    try:
        return np.asarray(every[name])
    except Exception:  # as above
        raise BadImageFile(path, f"has an array {name} that is damaged, or holds no numbers", remedy) from None
