"""CIFAR's Python files, which are pickles: read by an unpickler that can build arrays of bytes and nothing else."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core.multiarray import _reconstruct

from metricfit.data.images.files import BadImageFile

# What a pickled array of bytes names; numpy's own module was called core until version 2.
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _OnlyArrays(pickle.Unpickler):
    """Refuses every name but those of arrays, so that a file cannot call anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array of bytes needs")
        return _ALLOWED[module, name]


def read_batch(path: Path, content: bytes) -> dict[bytes, Any]:
    """The dictionary of a batch: lists, numbers, texts and arrays of numbers; anything else is refused."""
    try:
        found = _OnlyArrays(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises what it likes
        raise BadImageFile(path, f"is not a batch of CIFAR-10 ({error})") from error
    if not isinstance(found, dict):
        raise BadImageFile(path, f"holds a {type(found).__name__}, not the dictionary of a batch")
    for value in found.values():
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise BadImageFile(path, "holds an array of objects")
    return found
