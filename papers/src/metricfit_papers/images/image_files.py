"""Reading files of images; errors name the file that is missing or damaged, and what to download."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import MetricfitError

IDX_OF_BYTES = 0x0800
AGAIN = "download it again"


class BadImageFile(MetricfitError, ValueError):
    """A file of images is damaged, or is not the file that it should be.

    Args:
        path: The file.
        problem: What is wrong with it.
        remedy: What to do about it.

    Example:
        >>> raise BadImageFile(Path("labels.npz"), "is empty")
        Traceback (most recent call last):
        metricfit_papers.images.image_files.BadImageFile: labels.npz is empty; download it again
    """

    def __init__(self, path: Path, problem: str, remedy: str = AGAIN) -> None:
        super().__init__(f"{path} {problem}; {remedy}")


def folder_with(folder: Path, places: Sequence[str], file: str) -> Path | None:
    """Return the first of the places in a folder that contains the file, or None."""
    return next((folder / place for place in places if (folder / place / file).is_file()), None)


def read_bytes(path: Path, source: str) -> bytes:
    """Return the content of a file, decompressed if its name ends in .gz."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; it is part of {source}, put it there")
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadImageFile(path, f"is not a whole gzip file ({error})") from error


def read_idx(path: Path, dimensions: int, source: str) -> NDArray[np.uint8]:
    """Read an array of bytes in the idx format of MNIST: a code of the type, the sizes of the axes, the bytes."""
    content = read_bytes(path, source)
    head = 4 + 4 * dimensions
    if len(content) < head or int.from_bytes(content[:4], "big") != IDX_OF_BYTES + dimensions:
        raise BadImageFile(path, f"is not an idx file of bytes in {dimensions} dimensions")
    shape = [int.from_bytes(content[start : start + 4], "big") for start in range(4, head, 4)]
    if len(content) - head != math.prod(shape):
        raise BadImageFile(path, f"should hold {' x '.join(map(str, shape))} bytes, but has {len(content) - head}")
    array: NDArray[np.uint8] = np.frombuffer(content, np.uint8, offset=head).reshape(shape).copy()
    return array


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Read a picture as bytes ``(height, width, 3)``."""
    from PIL import Image, UnidentifiedImageError  # imported here, because the binary formats do not need Pillow

    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise BadImageFile(path, f"cannot be read as a picture ({error})") from error
