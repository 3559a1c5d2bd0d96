"""Reading the Python version of CIFAR-10: pickles, read by an unpickler that can build only arrays and bytes."""

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
    """Decode bytes as Python 3 writes them under protocols up to 2, for Python 2: as latin1 text."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it has bytes written as {encoding}, but Python writes them as latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Return empty bytes; the built-in `bytes` would accept a length and allocate that much memory."""
    return b""


def _from_buffer(buffer: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: Literal["C", "F"]) -> Any:
    """Build an array from the form that protocol 5 writes."""
    return np.frombuffer(buffer, dtype).reshape(shape, order=order).copy()


# The names that a pickled array of bytes uses; numpy's module was called core until version 2.
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
    """An unpickler that refuses all names except arrays and bytes, so that a file cannot call anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array of bytes needs")
        return _ALLOWED[module, name]


def read_batch(path: Path, content: bytes) -> dict[bytes, Any]:
    """Read the dictionary of a batch: lists, numbers, text and arrays of numbers; anything else is refused.

    The published files were written by Python 2, and their keys are bytes. Files that Python 3 saved again, under any
    protocol, are read too. Their keys may be text, if they were read with ``encoding="latin1"`` before.
    """
    try:
        batch = _OnlyArrays(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise any error
        raise BadImageFile(path, f"is not a batch of CIFAR-10 ({error})") from error
    if not isinstance(batch, dict):
        raise BadImageFile(path, f"holds a {type(batch).__name__}, not the dictionary of a batch")
    for value in batch.values():
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise BadImageFile(path, "holds an array of objects")
    return {key.encode() if isinstance(key, str) else key: value for key, value in batch.items()}
