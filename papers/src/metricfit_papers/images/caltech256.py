"""Caltech-256: 30,607 pictures of 256 kinds of things and of clutter, one folder per kind."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from metricfit.errors import InvalidValueError
from metricfit_papers.images.image_files import BadImageFile, read_picture
from metricfit_papers.images.image_set import Images, ImageSet, Pixels

PLACES = ("caltech256/256_ObjectCategories", "256_ObjectCategories", ".")
PUBLISHED = 30_607
SOURCE = "Caltech-256, https://data.caltech.edu/records/nyy15-4j048"
PICTURES = (".jpg", ".jpeg", ".png")


def caltech256(folder: str | PathLike[str], *, side: int = 64, test_share: float = 0.2, seed: int = 0) -> ImageSet:
    """Caltech-256 (Griffin et al. 2007) from its folder of folders ``001.ak47`` to ``257.clutter``.

    Every picture is scaled to ``side`` x ``side``, whatever its shape. The origin has no test set: a share of every
    class is drawn as one, from 0 to less than 1, and some of each class are left to train on. **Not run** on the real
    pictures by this project, which did not have them; a test reads a tiny folder of the same layout. All pictures of
    64 x 64 are 376 MB.

    >>> caltech256("/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: Caltech-256 is not in /nowhere: no folders such as 001.ak47 in caltech256/256_ObjectCategories...
    """
    if not 0 <= test_share < 1:
        raise InvalidValueError(
            f"test_share is {test_share}; give a share from 0 to less than 1, the others are trained on"
        )
    if side < 1:
        raise InvalidValueError(f"side is {side}; give the width of the images in pixels, at least 1")
    root = Path(folder)
    folders = next((found for place in PLACES if (found := _classes(root / place))), [])
    if not folders:
        raise FileNotFoundError(
            f"Caltech-256 is not in {root}: no folders such as 001.ak47 in {', '.join(PLACES)}. Download "
            f"256_ObjectCategories.tar of {SOURCE}, and unpack it there"
        )
    paths = [_pictures(each) for each in folders]
    tested = [round(test_share * len(of_class)) for of_class in paths]
    for where, of_class, number in zip(folders, paths, tested, strict=True):
        if number == len(of_class):
            raise InvalidValueError(
                f"test_share {test_share} takes all {number} pictures of {where} and leaves none to train on; give less"
            )
    everything = [path for of_class in paths for path in of_class]
    pixels = np.stack([_scaled(path, side) for path in everything])
    labels = np.repeat(np.arange(len(folders)), [len(of_class) for of_class in paths])
    test = np.zeros(len(labels), dtype=bool)
    rng = np.random.default_rng(seed)
    for label, number in enumerate(tested):
        test[rng.permutation(np.flatnonzero(labels == label))[:number]] = True
    parts = [Images(pixels[rows], labels[rows].astype(np.int64)) for rows in (~test, test)]
    names = tuple(each.name.split(".", 1)[1] for each in folders)
    return ImageSet("caltech256", names, parts[0], parts[1], PUBLISHED - int(test.sum()))


def _classes(folder: Path) -> list[Path]:
    """Folders named with a number, a dot and a name, in order; a folder with only a number among them is an error."""
    if not folder.is_dir():
        return []
    numbered = sorted(each for each in folder.iterdir() if each.is_dir() and each.name.split(".")[0].isdecimal())
    named = [each for each in numbered if each.name.partition(".")[2]]
    for each in numbered if named else ():
        if each not in named:
            raise BadImageFile(each, "is a number without a name", "call it as 001.ak47 is called, or move it away")
    return named


def _pictures(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in PICTURES)
    if not found:
        raise FileNotFoundError(f"{folder} has no pictures ({', '.join(PICTURES)}); it is part of {SOURCE}")
    return found


def _scaled(path: Path, side: int) -> Pixels:
    from PIL import Image  # imported late, as in image_files

    picture = Image.fromarray(read_picture(path)).resize((side, side), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))
