"""Recorded formulas as Triton programs: the value of a formula over counts and its gradient in one launch.

On a CUDA device each of the fifty small operations of a formula and its derivative costs a launch, which takes longer
than most losses. The program is written from the recording (``core.formula_recording``), line by line; one program
holds all classes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.formula_recording import CannotRecordError, FormulaKey, Operand, Recording, record
from metricfit.core.kernels.classes_triton import AVAILABLE
from metricfit.core.kernels.formula_triton import TRITON, compile_program, write_number
from metricfit.core.kernels.triton_launch import launch
from metricfit.core.numerics import has_storage

#: More classes are evaluated with tensors, whose time then no longer consists of launches.
MOST_CLASSES = 2**14

CLASSES = TRITON | {
    "sum": "tl.sum(tl.where(inside, {}, 0.0))",
    "pick": "tl.sum(tl.where(number == {1}, {0}, 0.0))",
    "place": "tl.where(number == {1}, {0}, 0.0)",
}

#: A function of counts that returns one number.
Formula = Callable[[Counts], Tensor]


class FormulaOnDevice:
    """Evaluates formulas over counts on a CUDA device, each by one Triton program.

    A formula is recorded at its first call for each number of classes. A derivative that is itself differentiated is
    computed with tensors.
    """

    def __init__(self) -> None:
        self._programs: dict[Hashable, tuple[FormulaKey, Any]] = {}

    def __reduce__(self) -> tuple[type[FormulaOnDevice], tuple[()]]:
        """Copies record their formulas again."""
        return FormulaOnDevice, ()

    def __call__(self, formula: Formula, counts: Counts, key: FormulaKey) -> Tensor:
        """Evaluate a formula.

        Args:
            formula: A function of Counts that returns one number, and computes the same whenever it is called.
            counts: The counts.
            key: What identifies the formula.

        Returns:
            The value, differentiable with respect to the counts.
        """
        if not _is_ordinary(counts):
            return formula(counts)
        if (program := self.program(formula, len(counts.tp), counts.exclusive, key)) is None:
            return formula(counts)
        value: Tensor = _Value.apply(*counts, formula, counts.exclusive, program)  # type: ignore[no-untyped-call]
        return value

    def program(self, formula: Formula, classes: int, exclusive: bool, key: FormulaKey) -> Any:
        """Return the Triton program of a formula, or None if it has to be evaluated with tensors."""
        case = id(key[0]), key[1], classes, exclusive
        if case not in self._programs:
            self._programs[case] = key, make_program(formula, classes, exclusive)
        return self._programs[case][1]


def _is_ordinary(counts: Counts) -> bool:
    tp = counts.tp
    return (
        tp.device.type == "cuda"
        and tp.dtype == torch.float32
        and tp.dim() == 1
        and len(tp) > 0
        and AVAILABLE
        and torch.version.cuda is not None
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and has_storage(tp)
    )


class _Value(torch.autograd.Function):
    """From four counts to the value of a formula, and back."""

    @staticmethod
    def forward(
        ctx: Any, tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, formula: Formula, exclusive: bool, program: Any
    ) -> Tensor:
        value, slopes = evaluate(program, torch.stack((tp, fp, fn, tn)))
        ctx.save_for_backward(tp, fp, fn, tn, slopes)
        ctx.formula, ctx.exclusive = formula, exclusive
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *cells, slopes = ctx.saved_tensors
        if torch.is_grad_enabled():  # this backward pass is itself differentiated
            value = ctx.formula(Counts(*cells, exclusive=ctx.exclusive))
            given = torch.autograd.grad(value, cells, grad, create_graph=True, allow_unused=True)
            return *given, None, None, None
        return *(slopes * grad).unbind(), None, None, None


def evaluate(program: Any, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value of a formula at stacked counts ``(4, c)``, and its derivatives, of the same shape."""
    value, slopes = counts.new_empty(()), torch.empty_like(counts)
    classes = counts.shape[1]
    block = 1 << (classes - 1).bit_length()
    static = {"C": classes, "BLOCK": block}
    launch(program, (1, 1, 1), (counts, value, slopes), (), static, warps=max(1, min(16, block // 128)))
    return value, slopes


def make_program(formula: Formula, classes: int, exclusive: bool) -> Any:
    """Return the Triton program of a formula, or None if it has to be evaluated with tensors."""
    if classes > MOST_CLASSES:
        return None
    examples = torch.linspace(1, 2, 4 * classes, device="cpu").view(4, -1)

    def of_cells(*cells: Tensor) -> Tensor:
        return formula(Counts(*cells, exclusive=exclusive))

    try:
        return compile_program(write_program(record(of_cells, [*examples])))
    except CannotRecordError:
        return None


def write_program(recording: Recording) -> str:
    """Write the source of a program: counts to value and slopes.

    It consists of the templates of this module and of numbers; no text of a user gets into it.
    """
    lines = ["number = tl.arange(0, BLOCK)", "inside = number < C"]
    lines += [
        f"{name} = tl.load(Counts + {row} * C + number, mask=inside, other=1.0)"
        for row, name in enumerate(recording.inputs)
    ]
    if recording.classes == 1:  # numbers, not tensors of one element
        lines += [f"{name} = tl.sum({name})" for name in recording.inputs]
    for result, operation, operands in recording.instructions:
        lines.append(f"{result} = " + CLASSES[operation].format(*map(_text, operands)))
    value, *slopes = map(_text, recording.outputs)
    lines.append(f"tl.store(Value, {value})")
    lines += [
        f"tl.store(Slopes + {row} * C + number, tl.zeros((BLOCK,), tl.float32) + {slope}, mask=inside)"
        for row, slope in enumerate(slopes)
    ]
    header = "@triton.jit\ndef formula_kernel(Counts, Value, Slopes, C: tl.constexpr, BLOCK: tl.constexpr):"
    return "\n    ".join([header, *lines]) + "\n"


def _text(operand: Operand) -> str:
    if isinstance(operand, tuple):
        if len(set(operand)) > 1:
            raise CannotRecordError("different numbers per class")
        operand = operand[0]
    return write_number(operand)
