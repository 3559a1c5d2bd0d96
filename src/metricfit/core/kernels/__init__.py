"""Kernels: plain torch operations, blocks on the CPU, and Triton programs on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: Sequence[Tensor],
    numbers: Sequence[float],
    static: Mapping[str, Any],
    warps: int = 4,
) -> None:
    """Launch a Triton program on the device of its tensors.

    Args:
        kernel: The function, decorated with ``triton.jit``. Its parameters are the tensors, the numbers, and the
            settings in the order of ``static``.
        grid: Number of programs along three axes.
        tensors: Tensors on one device.
        numbers: Integers and floats.
        static: Settings that the program is compiled for.
        warps: Number of warps of each program.
    """
    with torch.cuda.device(tensors[0].device):
        kernel[grid](*tensors, *numbers, **static, num_warps=warps)
