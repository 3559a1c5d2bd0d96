"""Arrays of either library: NumPy arrays, and torch tensors where the caller has imported torch.

Nothing here imports torch. A value can be a tensor only if somebody else has imported torch before. NumPy and torch
agree on most functions (``where``, ``stack``, ``cumsum`` ...), which code takes from ``namespace(x)``; the functions of
this module are those that the two libraries spell differently.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: A NumPy array or a torch tensor. The types have no common base class whose operators mypy could check.
Array: TypeAlias = Any

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]


class OneNumber(np.ndarray):
    """An array of one number that ``float`` and ``int`` take, as they take a tensor of one number.

    Counts of two classes and values of their metrics have the shape ``(1,)``, which NumPy does not convert.

    Example:
        >>> float(one_number(np.array([0.5])))
        0.5
    """

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(np.asarray(self))


def one_number(values: Any) -> Any:
    """Return an array ``(1,)`` of NumPy as one that converts to a number; anything else as it is."""
    return values.view(OneNumber) if type(values) is np.ndarray and values.shape == (1,) else values


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
    if type(value) is np.ndarray:
        return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Return whether a value is a tensor, a NumPy array, or a number of NumPy, which sums of an array are."""
    return isinstance(value, (np.ndarray, np.generic)) or is_tensor(value)


def namespace(*values: object) -> Any:
    """Return the library of some values: torch if one of them is a tensor, and otherwise NumPy.

    Example:
        >>> namespace([1.0]).__name__
        'numpy'
    """
    return sys.modules["torch"] if any(is_tensor(value) for value in values) else np


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


def in_kind_of(values: Any, like: Any) -> Any:
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
        return to_numpy(values)
    if is_tensor(values):
        return values.to(like.device)
    return sys.modules["torch"].from_numpy(np.ascontiguousarray(values)).to(like.device)


def exact_type(like: Array) -> Any:
    """Return the type of hard counts: float64, exact up to 2**53, if the device of the array has it."""
    if not is_tensor(like):
        return np.float64
    torch = sys.modules["torch"]
    return torch.float32 if like.device.type == "mps" else torch.float64


def counting_type(values: Array) -> Any:
    """Return the type for sums over such numbers: at least float32, because float16 overflows at 65,504."""
    if is_tensor(values):
        torch = sys.modules["torch"]
        return torch.promote_types(values.dtype, torch.float32)
    return np.promote_types(values.dtype, np.float32)


def cast(values: Array, dtype: Any) -> Array:
    """Return an array as another type of its library."""
    return values.to(dtype) if is_tensor(values) else np.asarray(values, dtype)


def exact(values: Array) -> Array:
    """Return an array as the type of hard counts, without its gradient."""
    return values.detach().to(exact_type(values)) if is_tensor(values) else np.asarray(values, np.float64)


def is_floating(values: Array) -> bool:
    """Return whether an array holds floating-point numbers."""
    return bool(values.is_floating_point()) if is_tensor(values) else np.issubdtype(values.dtype, np.floating)


def is_boolean(values: Array) -> bool:
    """Return whether an array holds booleans."""
    return bool(values.dtype == (sys.modules["torch"].bool if is_tensor(values) else np.bool_))


def full(like: Array, shape: tuple[int, ...], value: float, dtype: Any = None) -> Array:
    """Return an array of one number, on the device of another array."""
    if is_tensor(like):
        return like.new_full(shape, value, dtype=dtype)
    return np.full(shape, value, like.dtype if dtype is None else dtype)


def arange(like: Array, start: int, stop: int, dtype: Any = None) -> Array:
    """Return the numbers from ``start`` to ``stop - 1``, on the device of another array."""
    if is_tensor(like):
        return sys.modules["torch"].arange(start, stop, dtype=dtype, device=like.device)
    return np.arange(start, stop, dtype=dtype)


def without_gradient(values: Array) -> AbstractContextManager[Any]:
    """Compute with such numbers without recording gradients, which takes fewer operations."""
    return sys.modules["torch"].no_grad() if is_tensor(values) else nullcontext()


def sort_falling(values: Array) -> tuple[Array, Array]:
    """Sort along the last axis, the largest first, and return the order too. NaN comes first."""
    if is_tensor(values):
        return values.sort(dim=-1, descending=True)
    order = np.flip(np.argsort(values, -1), -1)
    return np.take_along_axis(values, order, -1), order


def sort_with_flags(values: Array, flags: Array) -> tuple[Array, Array]:
    """Sort values, the largest first, and their flags with them, which become bytes or numbers 0 and 1.

    Arrays of values with and without a flag are sorted separately and merged, because NumPy sorts values several times
    as fast as it finds their order.
    """
    if is_tensor(values):
        falling, order = values.sort(descending=True)
        return falling, flags.view(sys.modules["torch"].uint8).gather(-1, order)
    without, with_flag = (np.sort(values.take(np.flatnonzero(chosen))) for chosen in (~flags, flags))
    both = np.concatenate([without, with_flag])
    order = np.flip(np.argsort(both, kind="stable"))  # a stable sort merges sorted parts in linear time
    return both[order], (order >= len(without)).astype(np.float64)


def take_along(values: Array, places: Array) -> Array:
    """Take the values at some places of the last axis."""
    return values.gather(-1, places) if is_tensor(values) else np.take_along_axis(values, places, -1)


def argmax(flags: Array) -> Array:
    """Return the first place of the last axis that is true; 0 if none is."""
    if not is_tensor(flags):
        return flags.argmax(-1)
    return flags.view(sys.modules["torch"].uint8).argmax(-1)  # as bytes, because torch has no argmax of booleans


def sum_at(places: Array, weights: Array, size: int) -> Array:
    """Add up the weights of each place: ``result[k]`` is the sum of the weights whose place is k."""
    if not is_tensor(places):
        return np.bincount(places, weights, minlength=size)
    return weights.new_zeros(size).index_add_(0, places, weights)


def move_axis(values: Array, source: int, place: int) -> Array:
    """Move an axis to another place."""
    return values.movedim(source, place) if is_tensor(values) else np.moveaxis(values, source, place)


def sum_groups(values: Array, group: Array, groups: int) -> Array:
    """Add up the values ``(..., n)`` of each group; the result is ``(..., groups)``."""
    if is_tensor(values):
        return values.new_zeros(*values.shape[:-1], groups).index_add(-1, group, values)
    rows = values.reshape(-1, values.shape[-1])
    return np.stack([np.bincount(group, row, groups) for row in rows]).reshape(*values.shape[:-1], groups)


def largest_along(values: Array, axis: int) -> Array:
    """Return the place of the largest value along an axis, the first of equal ones."""
    return values.max(axis).indices if is_tensor(values) else values.argmax(axis)  # on a CPU faster than torch's argmax


def running_max(values: Array) -> Array:
    """Return the largest value up to each place of the last axis."""
    return values.cummax(-1).values if is_tensor(values) else np.maximum.accumulate(values, -1)


def pad_last(values: Array, *, before: float | bool | None = None, after: float | bool | None = None) -> Array:
    """Put one number before, or after, the others along the last axis."""
    shape, dtype = (*values.shape[:-1], 1), values.dtype
    ends = [None if number is None else full(values, shape, number, dtype) for number in (before, after)]
    return namespace(values).concatenate([part for part in (ends[0], values, ends[1]) if part is not None], -1)


def split_masses(mass: Array, rest: Array, target: Array, weight: Array | None) -> list[Array]:
    """Split each sample into a true and a false positive, and a false and a true negative.

    Args:
        mass: How much of the sample is predicted positive.
        rest: How much of it is predicted negative.
        target: How much of it is positive.
        weight: Its weight, or None.
    """
    positive, negative = target, 1 - target
    if weight is not None:
        positive, negative = weight * positive, weight * negative
    return [label * decided for decided in (mass, rest) for label in (positive, negative)]


def sum_masses(mass: Array, rest: Array, target: Array, weight: Array | None) -> Array:
    """Return the four counts of samples along the last axis, ``(4, ...)``."""
    return namespace(mass).stack([part.sum(-1) for part in split_masses(mass, rest, target, weight)])
