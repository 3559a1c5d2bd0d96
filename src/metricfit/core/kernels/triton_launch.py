"""Launches of Triton programs that look up the compiled program themselves.

``kernel[grid](...)`` binds and inspects all arguments in Python at each call, which takes longer than most of our
programs run. Triton specialises a program on the types of its arguments, on which pointers and integers are divisible
by 16, and on which integers are 1; the same properties are the key here. How a compiled program takes its arguments is
not documented and has changed, so this is done from the version on with which it was tried.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

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
    """Launch a program on the current device.

    Args:
        kernel: The function, decorated with ``triton.jit``. Its parameters are the tensors, the numbers, and the
            settings in the order of ``static``.
        grid: Number of programs along three axes.
        tensors: Tensors on the current device.
        numbers: Integers and floats.
        static: Settings that the program is compiled for.
        warps: Number of warps of each program.
    """
    key = (
        kernel,
        tensors[0].device.index,
        warps,
        *static.values(),
        *((tensor.dtype, tensor.data_ptr() % 16) for tensor in tensors),
        *map(_specialisation, numbers),
    )
    compiled = _COMPILED.get(key)
    if compiled is None or not _was_tried():
        # Without the compiler, in Triton's interpreter, there is no compiled program.
        _COMPILED[key] = kernel[grid](*tensors, *numbers, **static, num_warps=warps)
    else:
        compiled[grid](*tensors, *numbers, *static.values())


def _specialisation(number: float) -> object:
    if isinstance(number, float):
        return None
    return 1 if number == 1 else (number % 16 == 0, number in INT32)


@cache
def _was_tried() -> bool:
    version = importlib.import_module("triton").__version__
    return tuple(int(part) for part in version.split(".")[:2]) >= TRIED
