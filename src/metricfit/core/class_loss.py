"""A formula over the counts of exclusive classes, from logits on a CUDA device to its value, and back.

Counting takes two launches, the formula one, and the way back two. Logits in half precision and ignored labels are
read by the kernels as they are. Everything else is counted by ``core.counting.count_soft``, and tests compare the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Classes
from metricfit.core.class_formula import Formula, FormulaOnDevice, evaluate
from metricfit.core.counting import count_soft
from metricfit.core.formula_recording import FormulaKey
from metricfit.core.kernels import classes_triton
from metricfit.core.kernels.class_layout import Layout, StepAt
from metricfit.core.kernels.soft_classes import move_inside
from metricfit.core.numerics import has_storage, is_transformed
from metricfit.core.steps import Step, closed_form
from metricfit.core.types import Task, Thresholds

_PLAIN_TYPES = frozenset((Tensor, nn.Parameter))
ROWS, PIXELS = Layout(-1, (-2,)), Layout(-2, (-3, -1))


class ClassSettings(NamedTuple):
    """How to count, as in ``Counts.soft``."""

    task: Task | None
    step: Step | None
    threshold: Thresholds
    ignore_index: int | None
    validate: bool | None


def evaluate_classes(
    formulas: FormulaOnDevice,
    formula: Formula,
    key: FormulaKey,
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    settings: ClassSettings,
) -> tuple[Tensor, Tensor] | None:
    """Evaluate a formula of the counts of a batch of exclusive classes.

    Returns:
        The value with its gradient, and the counts ``(4, c)``; None if this is not such a batch on a CUDA device.
    """
    if not _is_batch_on_device(logits, target, weight, settings):
        return None
    if (step := read_step(settings)) is None:
        return None
    classes = logits.shape[1]
    if (program := formulas.program(formula, classes, True, key)) is None:
        return None
    call = _Call(formula, program, step, settings)
    value: Tensor = _LossOfClasses.apply(logits, target, weight, call)  # type: ignore[no-untyped-call]
    assert call.counts is not None
    return value, call.counts


class _Call:
    """What one evaluation needs besides the batch, and the counts that it found."""

    def __init__(self, formula: Formula, program: Any, step: StepAt, settings: ClassSettings) -> None:
        self.formula, self.program, self.step, self.settings = formula, program, step, settings
        self.counts: Tensor | None = None

    def differentiable_value(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Compute the value with tensors, for a backward pass that is itself differentiated."""
        return self.formula(count_soft(logits, target, weight=weight, **self.settings._asdict()))


class _LossOfClasses(torch.autograd.Function):
    """A ``forward`` with ctx saves torch the inspection of its signature in every call."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, call: _Call) -> Tensor:
        value, slopes, kept, call.counts = evaluate_batch(
            call.program, logits, target, weight, call.step, call.settings.ignore_index
        )
        ctx.save_for_backward(logits, target, weight, slopes, kept)
        ctx.call = call
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, slopes, kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            value = ctx.call.differentiable_value(logits, target, weight)
            return torch.autograd.grad(value, logits, grad, create_graph=True)[0], None, None, None
        settings = slopes, kept, ctx.call.step, ctx.call.settings.ignore_index
        if has_storage(grad):
            result = gradient_of_batch(logits, target, weight, *settings, scale=grad)
        else:  # vmapped over several gradients
            result = gradient_of_batch(logits, target, weight, *settings) * grad
        return result, None, None, None


def evaluate_batch(
    program: Any, logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, ignore_index: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Evaluate a formula of a batch on a CUDA device.

    Returns:
        The value, its derivatives by the counts ``(4, c)``, what the counting keeps for the gradient, and the counts.
    """
    x, y, w, layout = _flat(logits, target, weight)
    counts, kept = classes_triton.counts_and_kept(x, y, w, step, layout, ignore_index)
    return *evaluate(program, counts), kept, counts


def gradient_of_batch(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    slopes: Tensor,
    kept: Tensor,
    step: StepAt,
    ignore_index: int | None,
    scale: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the logits from what ``evaluate_batch`` returned, multiplied by ``scale``."""
    x, y, w, layout = _flat(logits, target, weight)
    return classes_triton.gradient(x, y, w, slopes, step, layout, ignore_index, scale, kept).reshape(logits.shape)


def _flat(logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, Layout]:
    if logits.dim() == 2:
        return logits, target, weight, ROWS
    return logits.flatten(2), target.flatten(1), None if weight is None else weight.flatten(1), PIXELS


def _is_batch_on_device(logits: Tensor, target: Tensor, weight: Tensor | None, settings: ClassSettings) -> bool:
    if torch.compiler.is_compiling() or type(logits) not in _PLAIN_TYPES or type(target) is not Tensor:
        return False
    if not (weight is None or type(weight) is Tensor):
        return False
    return is_class_batch(logits, target, weight, settings) and not is_transformed()


def is_class_batch(logits: Tensor, target: Tensor, weight: Tensor | None, settings: ClassSettings) -> bool:
    """Return whether this is a batch of exclusive classes that the programs can read."""
    shape = logits.shape
    return (
        settings.task in (None, "multiclass")
        and not settings.validate
        and len(shape) > 1
        and shape[1] > 1
        and target.shape == shape[:1] + shape[2:]
        and target.dtype in (torch.int64, torch.int32, torch.int16, torch.uint8)
        and target.device == logits.device
        and (weight is None or _is_plain_weight(weight, target))
        and classes_triton.handles(logits)
    )


def _is_plain_weight(weight: Tensor, target: Tensor) -> bool:
    return (
        weight.shape == target.shape
        and weight.device == target.device
        and weight.dtype == torch.float32
        and not weight.requires_grad
    )


def read_step(settings: ClassSettings) -> StepAt | None:
    """Return the step for the kernels, or None if they do not have it."""
    closed = closed_form(Classes.default_step if settings.step is None else settings.step)
    if closed is None:
        return None
    if closed.kind == "identity":
        return StepAt(closed.kind, closed.number, 0.5)
    if settings.threshold is None or settings.threshold == "dynamic":
        return StepAt(closed.kind, closed.number, None)
    if type(settings.threshold) is not float or closed.kind != "linear":
        return None
    threshold = move_inside(settings.threshold)
    assert isinstance(threshold, float)
    return StepAt(closed.kind, closed.number, threshold)
