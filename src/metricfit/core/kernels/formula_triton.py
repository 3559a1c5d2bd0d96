"""Recorded formulas as Triton programs: the sums of a batch's parts, the value and the derivatives in one launch."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from metricfit.core.formula_recording import CannotRecordError, Recording
from metricfit.core.formula_source import EVERYWHERE, write_operand
from metricfit.core.kernels.triton_launch import launch

#: More parts than this are added before the launch; few parts need one warp.
PARTS, FEW_PARTS = 1024, 16

TRITON = EVERYWHERE | {
    "where": "tl.where({}, {}, {})",
    "and": "{} & {}",
    "or": "{} | {}",
    "not": "{} == 0",
    "float": "tl.where({}, 1.0, 0.0)",
    "abs": "tl.abs({})",
    "sqrt": "tl.sqrt_rn({})",
}
HEAD = """@triton.jit
def formula_kernel(Partial, Value, Output, parts, PARTS: tl.constexpr):
    part = tl.arange(0, PARTS)
    inside = part < parts"""
SUM = """
    {name} = tl.load(Partial + {place} * parts + part, mask=inside, other=0.0)
    {name} = tl.sum({name}.to(tl.float64)).to(tl.float32)
    tl.store(Output + {place}, {name})"""

#: A function of partial sums ``(4, ..., parts)`` that returns the value, and four counts and derivatives, ``(8,)``.
Evaluator = Callable[[Tensor], tuple[Tensor, Tensor]]


def as_evaluator(recording: Recording) -> Evaluator:
    """Return a function that evaluates a recorded formula of four counts on a GPU.

    Raises:
        CannotRecordError: The formula has several classes, or further arguments.
    """
    if recording.classes != 1 or len(recording.inputs) != 4:
        raise CannotRecordError("several classes")
    kernel = compile_program(_source(recording))

    def evaluate(partial: Tensor) -> tuple[Tensor, Tensor]:
        if partial.shape[-1] > PARTS:
            partial = partial.sum(-1, keepdim=True, dtype=torch.float64)
        value, output = partial.new_empty((), dtype=torch.float32), partial.new_empty(8, dtype=torch.float32)
        parts = partial.shape[-1]
        few = parts <= FEW_PARTS
        static = {"PARTS": FEW_PARTS if few else PARTS}
        with torch.cuda.device(partial.device):
            launch(kernel, (1, 1, 1), (partial, value, output), (parts,), static, warps=1 if few else 4)
        return value, output

    return evaluate


def _source(recording: Recording) -> str:
    lines = [HEAD]
    lines += [SUM.format(name=name, place=place) for place, name in enumerate(recording.inputs)]
    for result, operation, operands in recording.instructions:
        lines.append(f"    {result} = " + TRITON[operation].format(*map(write_number, operands)))
    value, *slopes = map(write_number, recording.outputs)
    lines += [f"    tl.store(Value, {value})"]
    lines += [f"    tl.store(Output + {place}, {slope})" for place, slope in enumerate(slopes, 4)]
    return "\n".join(lines) + "\n"


def write_number(operand: Any) -> str:
    """Return a variable's name, or a number as Triton reads it."""
    text = operand if isinstance(operand, str) else repr(operand)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else write_operand(operand)


def compile_program(source: str) -> Any:
    """Compile a program; Triton reads its source through ``linecache``, as it reads that of a file."""
    triton = importlib.import_module("triton")
    file = f"<metricfit formula {hash(source):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"triton": triton, "tl": importlib.import_module("triton.language"), "__name__": __name__}
    exec(compile(source, file, "exec"), scope)
    return scope["formula_kernel"]
