"""Launches of Triton programs that look up the compiled program themselves.

``kernel[grid](...)`` binds and inspects all arguments in Python at each call, which takes longer than most of our
programs run. Triton specialises a program on the types of its arguments, on which pointers and integers are divisible
by 16, and on which integers are 1; the same properties are the key here. How a compiled program takes its arguments is
not documented and has changed, so this is done from the version on with which it was tried.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

_COMPILED: dict[tuple[Any, ...], Any] = {}
INT32 = range(-(2**31), 2**31)
#: The version of Triton with which compiled programs were launched directly.
TRIED = (3, 6)


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    static: Mapping[str, Any],
    warps: int = 4,
) -> None:
    """Launch a program on the device of its tensors.

    Args:
        kernel: The function, decorated with ``triton.jit``. Its parameters are the tensors, the numbers, and the
            settings in the order of ``static``.
        grid: Number of programs along three axes.
        tensors: Tensors on one device.
        numbers: Integers and floats.
        static: Settings that the program is compiled for.
        warps: Number of warps of each program.
    """
    device = tensors[0].get_device()
    settings = static.values()
    key = (
        kernel,
        device,
        warps,
        *settings,
        *[tensor.dtype for tensor in tensors],
        *[tensor.data_ptr() % 16 for tensor in tensors],
        _specialisations(*numbers),
    )
    compiled = _COMPILED.get(key)
    if compiled is None or not _was_tried():
        with torch.cuda.device(tensors[0].device):
            # Without the compiler, in Triton's interpreter, there is no compiled program.
            _COMPILED[key] = kernel[grid](*tensors, *numbers, **static, num_warps=warps)
    elif device == torch._C._cuda_getDevice():
        stream = torch._C._cuda_getCurrentRawStream(device)
        # The three arguments without a value are for Triton's profiler.
        handles = compiled.function, compiled.packed_metadata, None, None, None
        compiled.run(*grid, stream, *handles, *tensors, *numbers, *settings)
    else:
        with torch.cuda.device(device):
            launch(kernel, grid, tensors, numbers, static, warps)


@lru_cache(maxsize=4096, typed=True)
def _specialisations(*numbers: float) -> tuple[int | None, ...]:
    """Return what Triton specialises a program on: integers that are 1 or divisible by 16, and large ones."""
    return tuple(
        None if isinstance(number, float) else 1 if number == 1 else 2 * (number % 16 == 0) + 4 * (number in INT32)
        for number in numbers
    )


@cache
def _was_tried() -> bool:
    version = importlib.import_module("triton").__version__
    return tuple(int(part) for part in version.split(".")[:2]) >= TRIED
