"""Caltech-256: 30,607 pictures of 256 kinds of objects and of clutter, one folder per kind."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from metricfit.errors import InvalidValueError
from metricfit_papers.images.image_files import BadImageFile, read_picture
from metricfit_papers.images.image_set import Images, ImageSet, Pixels

PLACES = ("caltech256/256_ObjectCategories", "256_ObjectCategories", ".")
PUBLISHED = 30_607
#: The last class, of pictures of nothing in particular.
CLUTTER = "257.clutter"
CLUTTERED = 827
SOURCE = "Caltech-256, https://data.caltech.edu/records/nyy15-4j048"
PICTURES = (".jpg", ".jpeg", ".png")


def caltech256(
    folder: str | PathLike[str], *, side: int = 64, test_share: float = 0.2, seed: int = 0, clutter: bool = True
) -> ImageSet:
    """Read Caltech-256 (Griffin et al. 2007) from its folders ``001.ak47`` to ``257.clutter``.

    Every picture is scaled to ``side`` x ``side``, whatever its shape. The publisher defines no test set, so a share of
    every class is drawn at random. This function was **not run** on the real pictures, which this project did not have;
    a test reads a tiny folder with the same layout. All pictures at 64 x 64 take 376 MB.

    Args:
        folder: The folder that contains the folders of the classes, or a folder around it.
        side: Width and height of the images in pixels.
        test_share: Share of every class that becomes test images, from 0 to less than 1.
        seed: Seed of the draw of the test images.
        clutter: Whether the pictures of clutter are a class too; the other 256 classes are kinds of objects.

    Returns:
        The training and test images.

    Raises:
        FileNotFoundError: The folder contains no folders of classes, or a class has no pictures.
        BadImageFile: A picture cannot be read, or a folder has a number without a name.
        ValueError: ``side`` or ``test_share`` is out of range, or no training image of a class would be left.

    Example:
        >>> caltech256("/nowhere")
        Traceback (most recent call last):
        FileNotFoundError: Caltech-256 is not in /nowhere: no folders such as 001.ak47 in caltech256/256_ObjectCateg...
    """
    if not 0 <= test_share < 1:
        raise InvalidValueError(
            f"test_share must be from 0 to less than 1, because the other images are for training; got {test_share}"
        )
    if side < 1:
        raise InvalidValueError(f"side is the width of the images in pixels, at least 1; got {side}")
    root = Path(folder)
    folders = next((classes for place in PLACES if (classes := _class_folders(root / place))), [])
    if not folders:
        raise FileNotFoundError(
            f"Caltech-256 is not in {root}: no folders such as 001.ak47 in {', '.join(PLACES)}. Download "
            f"256_ObjectCategories.tar of {SOURCE}, and unpack it there, "
            f"or run: metricfit datasets --fetch caltech256 --data {root}"
        )
    folders = [class_folder for class_folder in folders if clutter or class_folder.name != CLUTTER]
    paths = [_pictures(class_folder) for class_folder in folders]
    test_sizes = [round(test_share * len(class_paths)) for class_paths in paths]
    for class_folder, class_paths, size in zip(folders, paths, test_sizes, strict=True):
        if size == len(class_paths):
            raise InvalidValueError(
                f"test_share {test_share} takes all {size} pictures of {class_folder}, so none is left for training; "
                "choose a smaller share"
            )
    pixels = np.stack([_scaled(path, side) for class_paths in paths for path in class_paths])
    labels = np.repeat(np.arange(len(folders)), [len(class_paths) for class_paths in paths])
    test = np.zeros(len(labels), dtype=bool)
    rng = np.random.default_rng(seed)
    for label, size in enumerate(test_sizes):
        test[rng.permutation(np.flatnonzero(labels == label))[:size]] = True
    parts = [Images(pixels[rows], labels[rows].astype(np.int64)) for rows in (~test, test)]
    names = tuple(class_folder.name.split(".", 1)[1] for class_folder in folders)
    return ImageSet(
        "caltech256", names, parts[0], parts[1], PUBLISHED - (0 if clutter else CLUTTERED) - int(test.sum())
    )


def _class_folders(folder: Path) -> list[Path]:
    """Return the folders whose name is a number, a dot and a name; one with only a number among them is an error."""
    if not folder.is_dir():
        return []
    numbered = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.split(".")[0].isdecimal())
    named = [path for path in numbered if path.name.partition(".")[2]]
    for path in numbered if named else ():
        if path not in named:
            raise BadImageFile(path, "is a number without a name", "give it a name such as 001.ak47, or move it away")
    return named


def _pictures(folder: Path) -> list[Path]:
    pictures = sorted(path for path in folder.iterdir() if path.suffix.lower() in PICTURES)
    if not pictures:
        raise FileNotFoundError(f"{folder} has no pictures ({', '.join(PICTURES)}); it is part of {SOURCE}")
    return pictures


def _scaled(path: Path, side: int) -> Pixels:
    from PIL import Image  # imported late, as in image_files

    picture = Image.fromarray(read_picture(path)).resize((side, side), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))
