"""Triton programs for CUDA devices, under the names of the plain and CPU versions one folder up.

Only the modules in this folder need Triton, which comes with the CUDA builds of torch. Without it, or on another
device, plain operations are used.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

IS_INSTALLED = importlib.util.find_spec("triton") is not None


def runs_on(tensor: Tensor) -> bool:
    """Return whether Triton can be used for a tensor: one on a CUDA device, with Triton installed."""
    return tensor.is_cuda and torch.version.cuda is not None and IS_INSTALLED


#: Compiled programs by what Triton compiles them for.
_compiled: dict[tuple[Any, ...], Any] = {}


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    static: Mapping[str, Any],
    warps: int = 4,
) -> None:
    """Launch a Triton program on the device of its tensors.

    ``kernel[grid]`` finds out in every call what it was compiled for, which takes longer than small programs run. It
    returns the compiled program, ``compiled[grid]`` of which is launched from then on, as in Triton's tutorial of the
    fused softmax. A Triton that takes other arguments there is asked with ``kernel[grid]`` every time.

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
    kinds = tuple([(tensor.dtype, tensor.data_ptr() % 16) for tensor in tensors])
    key = id(kernel), device, warps, *static.values(), *kinds, *map(_specialize, numbers)
    is_current = device == -1 or device == torch.cuda.current_device()  # -1 is the CPU, in Triton's interpreter
    with nullcontext() if is_current else torch.cuda.device(device):
        if compiled := _compiled.get(key):
            try:
                compiled[grid](*tensors, *numbers, *static.values())
            except TypeError:
                _compiled[key] = False
            else:
                return
        compiled = kernel[grid](*tensors, *numbers, **static, num_warps=warps)
        is_ordered = compiled is not None and tuple(static) == tuple(getattr(kernel, "arg_names", ())[-len(static) :])
        _compiled.setdefault(key, compiled if is_ordered else False)


def _specialize(number: float) -> Any:
    """Return what Triton compiles a program for: 1, multiples of 16, and whether 32 bits hold an integer."""
    return (number == 1, number % 16 == 0, abs(number) < 2**31) if isinstance(number, int) else float
