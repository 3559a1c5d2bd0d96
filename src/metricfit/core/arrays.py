"""Arrays of either library: NumPy arrays, and torch tensors where the caller has imported torch.

Nothing here imports torch. A value can be a tensor only if somebody else has imported torch before.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: A NumPy array or a torch tensor. The types have no common base class whose operators mypy could check.
Array: TypeAlias = Any

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]


def is_tensor(value: object) -> bool:
    """Return whether a value is a torch tensor.

    Args:
        value: Anything.

    Returns:
        Whether it is a tensor.

    Example:
        >>> is_tensor(np.zeros(2))
        False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(values: Any, dtype: Any = None) -> np.ndarray:
    """Return a NumPy array of the values, without a copy where that is possible.

    Args:
        values: A tensor on any device, an array, a number or a sequence of numbers.
        dtype: The type of the array; None for the type of the values. Tensors in bfloat16 become float32.

    Returns:
        The array.

    Example:
        >>> to_numpy([1, 2], float)
        array([1., 2.])
    """
    if is_tensor(values):
        values = values.detach().cpu()
        values = values.float().numpy() if str(values.dtype) == "torch.bfloat16" else values.numpy()
    return np.asarray(values, dtype)


def in_kind_of(values: np.ndarray, like: Any) -> Any:
    """Return an array as the kind of another value: a tensor on its device, or the array itself.

    Args:
        values: The array.
        like: A tensor, or anything else.

    Returns:
        A tensor on the device of ``like`` if that is a tensor, and otherwise the array.

    Example:
        >>> in_kind_of(np.ones(2), [0.0])
        array([1., 1.])
    """
    if not is_tensor(like):
        return values
    return sys.modules["torch"].from_numpy(np.ascontiguousarray(values)).to(like.device)
