"""Recorded formulas as Triton programs: the sums of a batch's parts, the value and the derivatives in one launch."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from metricfit.core.formula_recording import CannotRecordError, Recording
from metricfit.core.formula_source import EVERYWHERE, write_operand
from metricfit.core.kernels import binary_triton
from metricfit.core.kernels.triton_launch import launch

#: More parts than this are added before the launch; few parts need one warp.
PARTS, FEW_PARTS = 1024, 16
#: Up to this number of logits, one program computes everything; its logits per iteration, and its warps.
SMALL_BATCH, BATCH_BLOCK, BATCH_WARPS = 2**16, 4096, 16

TRITON = EVERYWHERE | {
    "where": "tl.where({}, {}, {})",
    "and": "{} & {}",
    "or": "{} | {}",
    "not": "{} == 0",
    "float": "tl.where({}, 1.0, 0.0)",
    "abs": "tl.abs({})",
    "sqrt": "tl.sqrt_rn({})",
}
#: How a program reads an argument that lies on the device, and where it writes what an argument held.
READ = """
    {name} = tl.load(At_{name}).to(tl.float32)"""
WRITE = """
    tl.store(Output + {place}, {name})"""
#: The sums of the parts of a batch, and the lines after the value and its derivatives by the four counts are known.
PARTS_HEAD = """@triton.jit
def formula_kernel(Partial, Value, Output, {pointers}parts, {numbers}PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    inside = part < parts"""
SUM_OF_PARTS = """
    {name} = tl.load(Partial + {place} * parts + part, mask=inside, other=0.0)
    {name} = tl.sum({name}.to(tl.float64)).to(tl.float32)
    tl.store(Output + {place}, {name})"""
PARTS_END = """
    tl.store(Value, {value})
    tl.store(Output + 4, {tp})
    tl.store(Output + 5, {fp})
    tl.store(Output + 6, {fn})
    tl.store(Output + 7, {tn})
"""
#: The same for a whole batch, with the gradient of its logits at once.
BATCH_HEAD = """@triton.jit
def formula_kernel(
    X, Y, W, Value, Output, Result, {pointers}n, c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, {numbers}
    KIND: tl.constexpr, FROM_ONE: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr, GRADIENT: tl.constexpr,
):
    sum0 = tl.zeros([BLOCK], tl.float32)
    sum1, sum2, sum3 = sum0, sum0, sum0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        sum0, sum1, sum2, sum3 = add_masses(
            X, Y, W, column, column < n, sum0, sum1, sum2, sum3,
            c0, c1, c2, c3, c4, c5, c6, KIND, FROM_ONE, WEIGHTED,
        )"""
SUM_OF_BATCH = """
    {name} = tl.sum(sum{place}.to(tl.float64)).to(tl.float32)
    tl.store(Output + {place}, {name})"""
BATCH_END = """
    tl.store(Value, {value})
    if GRADIENT:
        of_positive = {tp} - {fn}
        of_negative = {fp} - {tn}
        for start in range(0, n, BLOCK):
            column = start + tl.arange(0, BLOCK)
            write_gradients(
                X, Y, W, Result, column, column < n, of_positive, of_negative,
                c0, c1, c7, c8, c9, KIND, FROM_ONE, WEIGHTED,
            )
"""


class FormulaOfBinaryBatch:
    """Evaluates a recorded formula of the four counts of a binary batch, and of further numbers, on a GPU.

    Args:
        recording: The recording.
        on_device: For each argument after the counts, whether it lies on the GPU, where the program reads it. The
            others lie on the CPU and are passed by value.

    Raises:
        CannotRecordError: The formula has several classes.
    """

    def __init__(self, recording: Recording, on_device: Sequence[bool] = ()) -> None:
        if recording.classes != 1:
            raise CannotRecordError("several classes")
        self._on_device = on_device
        self._of_parts = compile_program(_source(recording, on_device, PARTS_HEAD, SUM_OF_PARTS, PARTS_END, written=8))
        from metricfit.core.kernels.triton_source import add_masses, write_gradients

        functions = {"add_masses": add_masses, "write_gradients": write_gradients}
        of_batch = _source(recording, on_device, BATCH_HEAD, SUM_OF_BATCH, BATCH_END, written=4)
        self._of_batch = compile_program(of_batch, functions)

    def evaluate_parts(self, partial: Tensor, further: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Return the value, and the counts, derivatives and further arguments, from sums ``(4, ..., parts)``.

        Args:
            partial: The counts of the parts of a batch.
            further: The arguments of the formula after the counts, of one number each.

        Returns:
            The value, and a tensor ``(8 + k,)`` for k further arguments.
        """
        if partial.shape[-1] > PARTS:
            partial = partial.sum(-1, keepdim=True, dtype=torch.float64)
        value = partial.new_empty((), dtype=torch.float32)
        output = partial.new_empty(8 + len(further), dtype=torch.float32)
        parts = partial.shape[-1]
        few = parts <= FEW_PARTS
        static = {"PARTS": FEW_PARTS if few else PARTS}
        pointers, numbers = self._divide(further)
        tensors = partial, value, output, *pointers
        launch(self._of_parts, (1, 1, 1), tensors, (parts, *numbers), static, warps=1 if few else 4)
        return value, output

    def evaluate_batch(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        step: tuple[str, float, float],
        with_gradient: bool,
        further: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the value, the counts and further arguments, and the gradient of the logits, by one program.

        Args:
            logits: Contiguous logits of any shape.
            target: As many labels, contiguous, of any type.
            weight: As many weights, contiguous, or None.
            step: The kind and the number of the step, and the threshold.
            with_gradient: Whether to compute the gradient.
            further: The arguments of the formula after the counts, of one number each.

        Returns:
            The value, a tensor ``(4 + k,)`` for k further arguments, and the gradient or None, all in float32.
        """
        value = logits.new_empty((), dtype=torch.float32)
        output = logits.new_empty(4 + len(further), dtype=torch.float32)
        gradient = torch.empty_like(logits, dtype=torch.float32) if with_gradient else None
        y = binary_triton.readable(target)
        w, result = logits if weight is None else weight, value if gradient is None else gradient
        pointers, numbers = self._divide(further)
        tensors = logits, y, w, value, output, result, *pointers
        numbers = [logits.numel(), *binary_triton.constants(*step), *numbers]
        static = _settings(step[0], step[2], weight is not None, with_gradient)
        launch(self._of_batch, (1, 1, 1), tensors, numbers, static, BATCH_WARPS)
        return value, output, gradient

    def _divide(self, further: Sequence[Tensor]) -> tuple[list[Tensor], list[float]]:
        """Return the arguments on the device, and the numbers of the others."""
        placed = list(zip(further, self._on_device, strict=True))
        return [tensor for tensor, there in placed if there], [float(tensor) for tensor, there in placed if not there]


@lru_cache(maxsize=64)
def _settings(kind: str, threshold: float, is_weighted: bool, with_gradient: bool) -> dict[str, Any]:
    static = binary_triton.settings(kind, threshold, is_weighted)
    del static["LOOPS"]
    return static | {"BLOCK": BATCH_BLOCK, "GRADIENT": with_gradient}


def _source(recording: Recording, on_device: Sequence[bool], head: str, summing: str, end: str, *, written: int) -> str:
    """Write a program whose output begins with ``written`` numbers; the further arguments follow."""
    counts, further = recording.inputs[:4], list(zip(recording.inputs[4:], on_device, strict=True))
    source = head.format(
        pointers="".join(f"At_{name}, " for name, there in further if there),
        numbers="".join(f"{name}, " for name, there in further if not there),
    )
    source += "".join(READ.format(name=name) for name, there in further if there)
    source += "".join(WRITE.format(name=name, place=written + k) for k, (name, _) in enumerate(further))
    source += "".join(summing.format(name=name, place=place) for place, name in enumerate(counts))
    for result, operation, operands in recording.instructions:
        source += f"\n    {result} = " + TRITON[operation].format(*map(write_number, operands))
    value, *slopes = map(write_number, recording.outputs)
    return source + end.format(value=value, **dict(zip(("tp", "fp", "fn", "tn"), slopes, strict=True)))


def write_number(operand: Any) -> str:
    """Return a variable's name, or a number as Triton reads it."""
    text = operand if isinstance(operand, str) else repr(operand)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else write_operand(operand)


def compile_program(source: str, functions: Mapping[str, Any] | None = None) -> Any:
    """Compile a program; Triton reads its source through ``linecache``, as it reads that of a file.

    Args:
        source: A function ``formula_kernel``.
        functions: Functions that it calls, by their names.

    Returns:
        The function, decorated with ``triton.jit``.
    """
    modules = importlib.import_module("triton"), importlib.import_module("triton.language")
    return _compile_once(source, *modules, tuple((functions or {}).items()))


@cache
def _compile_once(source: str, triton: Any, language: Any, functions: tuple[tuple[str, Any], ...]) -> Any:
    """Return one program for all formulas of the same source, such as those of the copies of a loss."""
    file = f"<metricfit formula {hash(source):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"triton": triton, "tl": language, "__name__": __name__, **dict(functions)}
    exec(compile(source, file, "exec"), scope)
    return scope["formula_kernel"]
