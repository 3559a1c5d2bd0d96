"""CIFAR's Python files, which are pickles: read by an unpickler that can build arrays and bytes and nothing else."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy._core.multiarray import _reconstruct

from metricfit_papers.images.image_files import BadImageFile


def _encoded(text: str, encoding: str) -> bytes:
    """Bytes as Python 3 writes them for Python 2, under protocols up to 2: as a text of latin1."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it has bytes written as {encoding}, Python writes them as latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """As `_encoded`, of length 0; `bytes` itself would take a length, and as much memory."""
    return b""


def _from_buffer(buffer: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: Literal["C", "F"]) -> Any:
    """An array as protocol 5 writes it."""
    return np.frombuffer(buffer, dtype).reshape(shape, order=order).copy()


# What a pickled array of bytes names; numpy's own module was called core until version 2.
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encoded,
    ("__builtin__", "bytes"): _no_bytes,
}


class _OnlyArrays(pickle.Unpickler):
    """Refuses every name but those of arrays and bytes, so that a file cannot call anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array of bytes needs")
        return _ALLOWED[module, name]


def read_batch(path: Path, content: bytes) -> dict[bytes, Any]:
    """The dictionary of a batch: lists, numbers, texts and arrays of numbers; anything else is refused.

    The origin's was written by Python 2, and its keys are bytes. One that Python 3 saved again, under any protocol, is
    the same; its keys may be text, as they are where it was read with ``encoding="latin1"``.
    """
    try:
        found = _OnlyArrays(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises what it likes
        raise BadImageFile(path, f"is not a batch of CIFAR-10 ({error})") from error
    if not isinstance(found, dict):
        raise BadImageFile(path, f"holds a {type(found).__name__}, not the dictionary of a batch")
    for value in found.values():
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise BadImageFile(path, "holds an array of objects")
    return {key.encode() if isinstance(key, str) else key: value for key, value in found.items()}
