"""Files of images: found, or an error that says what to download; sound, or an error that says which is not."""

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
    """A file of images is there, but is not what it should be."""

    def __init__(self, path: Path, why: str, remedy: str = AGAIN) -> None:
        super().__init__(f"{path} {why}; {remedy}")


def folder_with(folder: Path, places: Sequence[str], file: str) -> Path | None:
    """The first of the places in a folder that holds the file."""
    return next((folder / place for place in places if (folder / place / file).is_file()), None)


def read_bytes(path: Path, source: str) -> bytes:
    """A file's content, unpacked where its name ends in .gz."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; it is part of {source}, put it there")
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadImageFile(path, f"is not a whole gzip file ({error})") from error


def read_idx(path: Path, dimensions: int, source: str) -> NDArray[np.uint8]:
    """An array of bytes in the idx format of MNIST: a mark of the type, the sizes of its dimensions, the bytes."""
    content = read_bytes(path, source)
    head = 4 + 4 * dimensions
    if len(content) < head or int.from_bytes(content[:4], "big") != IDX_OF_BYTES + dimensions:
        raise BadImageFile(path, f"is not an idx file of bytes in {dimensions} dimensions")
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, head, 4)]
    if len(content) - head != math.prod(shape):
        raise BadImageFile(path, f"should hold {' x '.join(map(str, shape))} bytes, it has {len(content) - head}")
    array: NDArray[np.uint8] = np.frombuffer(content, np.uint8, offset=head).reshape(shape).copy()
    return array


def read_picture(path: Path) -> NDArray[np.uint8]:
    """A picture as bytes ``(height, width, 3)``."""
    from PIL import Image, UnidentifiedImageError  # imported late: the binary formats do without Pillow

    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise BadImageFile(path, f"cannot be read as a picture ({error})") from error
