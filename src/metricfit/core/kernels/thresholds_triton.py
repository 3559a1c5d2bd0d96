"""The best of all thresholds on a CUDA device: a sort, three programs, and one wait; 41 bytes per score.

The first program looks up the sorted labels and adds those of each block. The second is written from the recorded
formula of a metric (``core.formula_recording``): each of its programs adds the positives of the blocks before its own,
counts within its block, and evaluates the formula at each threshold in float64. The third finds the first of the best
values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.formula_recording import CannotRecordError, Operand, Recording
from metricfit.core.kernels.binary_triton import triton_available
from metricfit.core.kernels.formula_triton import TRITON, compile_program, write_number
from metricfit.core.kernels.triton_launch import launch
from metricfit.core.numerics import LARGEST, ROUNDING

#: Thresholds per program, and sums of blocks that are added at once.
BLOCK, CHUNK = 1024, 1024
#: The largest number of scores.
MOST_SCORES = 2**24

FLOAT64 = TRITON | {"sqrt": "tl.sqrt({})"}
HEAD = """@triton.jit(do_not_specialize=["n", "blocks"])
def formula_kernel(
    Falling, Labels, Sums, Values, Highest, n, blocks, sign, BLOCK: tl.constexpr, CHUNK: tl.constexpr
):
    block = tl.program_id(0)
    place, positives, all_positives = count_positives(Labels, Sums, block, blocks, n, BLOCK, CHUNK)
    {tp} = positives.to(tl.float64)
    {fp} = (place - positives).to(tl.float64)
    {fn} = (all_positives - positives).to(tl.float64)
    {tn} = (n - all_positives - place + positives).to(tl.float64)
"""
LINE = "    {} = {}\n"
END = "    write_values(Falling, Values, Highest, block, place, sign * {value} + tl.zeros((BLOCK,), tl.float64), n)\n"


def handles(scores: Tensor) -> bool:
    """Return whether the programs are for these scores: one column on a CUDA device."""
    return (
        scores.device.type == "cuda"
        and 0 < scores.numel() <= MOST_SCORES
        and torch.version.cuda is not None
        and triton_available()
    )


def make_program(recording: Recording) -> Any:
    """Return the program of a formula of four counts that was recorded in float64, without its derivatives.

    Raises:
        CannotRecordError: The formula has several classes, or further arguments.
    """
    if recording.classes != 1 or len(recording.inputs) != 4:
        raise CannotRecordError("several classes")
    from metricfit.core.kernels.thresholds_triton_source import count_positives, write_values

    source = HEAD.format(**dict(zip(("tp", "fp", "fn", "tn"), recording.inputs, strict=True)))
    for result, operation, operands in recording.instructions:
        source += LINE.format(result, FLOAT64[operation].format(*map(_number, operands)))
    source += END.format(value=_number(recording.outputs[0]))
    return compile_program(source, {"count_positives": count_positives, "write_values": write_values})


def _number(operand: Operand) -> str:
    """Return a variable's name, or a number in float64; Triton would read most numbers as float32."""
    if isinstance(operand, (str, bool)):
        return str(operand)
    return f"tl.full((), {write_number(operand)}, tl.float64)"


def search(scores: Tensor, target: Tensor, program: Any, *, minimize: bool) -> list[float]:
    """Find the best threshold, and wait for it.

    Args:
        scores: Contiguous scores ``(n,)`` of a floating type.
        target: One label per score, contiguous, of any real type.
        program: What ``make_program`` returned.
        minimize: Whether lower values are better.

    Returns:
        The threshold, the value there (negative if lower values are better), the largest and the smallest score, which
        are NaN or infinite if any is, and the number of labels other than 0 and 1.
    """
    from metricfit.core.kernels.thresholds_triton_source import choose_kernel, sorted_labels_kernel

    n = scores.numel()
    falling, order = torch.sort(scores, descending=True)
    blocks = n // BLOCK + 1
    labels, sums = scores.new_empty(n + 1, dtype=torch.int8), scores.new_empty(2 * blocks, dtype=torch.int32)
    values, highest = (scores.new_empty(size, dtype=torch.float64) for size in (n + 1, blocks))
    output = scores.new_empty(5, dtype=torch.float64)
    y = target.view(torch.uint8) if target.dtype == torch.bool else target
    launch(sorted_labels_kernel, (blocks, 1, 1), (y, order, labels, sums), (n, blocks), {"BLOCK": BLOCK})
    sizes, static = (n, blocks), {"BLOCK": BLOCK, "CHUNK": CHUNK}
    tensors = falling, labels, sums, values, highest
    launch(program, (blocks, 1, 1), tensors, (*sizes, -1.0 if minimize else 1.0), static)
    tensors = falling, values, highest, sums, output
    launch(choose_kernel, (1, 1, 1), tensors, sizes, {"ROUNDING": ROUNDING, "LARGEST": LARGEST} | static)
    return output.tolist()
