"""The loss of exclusive classes as one operator of torch, which ``torch.compile`` calls on a CUDA device.

A compiled function spends more time on starting each of its kernels than the kernels of a formula take. The operator
does what ``core.class_loss`` does eagerly: counts, formula and derivatives forward, and one launch backward. Its
arguments name the metric, so that a compiled function means the same in another process. Under ``vmap`` and ``grad`` of
torch.func the compiler gets plain operations: operators with a registered backward do not support these transforms.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from metricfit.core.class_formula import MOST_CLASSES, make_program
from metricfit.core.class_loss import ClassSettings, evaluate_batch, gradient_of_batch, is_class_batch, read_step
from metricfit.core.counts import Counts
from metricfit.core.kernels.class_layout import StepAt
from metricfit.core.kernels.classes_operator import define_operators, is_transformed
from metricfit.core.kernels.classes_triton import kept_size
from metricfit.core.types import Average
from metricfit.errors import InvalidValueError
from metricfit.metrics.average import loss_of_counts
from metricfit.metrics.metric import Metric, get_metric

#: A number of classes to try with whether a formula can be recorded.
ANY_CLASSES = 3


def evaluate_compiled(
    metric: Metric, average: Average, logits: Tensor, target: Tensor, weight: Tensor | None, settings: ClassSettings
) -> Tensor | None:
    """Compute the loss of a batch within a compiled function.

    Args:
        metric: A metric that is found by its name.
        average: The average over the classes.
        logits: The outputs of the model.
        target: The labels.
        weight: One weight per sample, or None.
        settings: How to count.

    Returns:
        The loss, or None if this is not a batch for the operator.
    """
    if is_transformed() or metric.of_one_class or not is_class_batch(logits, target, weight, settings):
        return None
    step = read_step(settings)
    if step is None or logits.shape[1] > MOST_CLASSES or not _can_be_recorded(metric.name, average):
        return None
    operator = torch.ops.metricfit.class_loss
    value: Tensor = operator(logits, target, weight, metric.name, average, *step, settings.ignore_index)
    return value


@lru_cache(maxsize=256)
def _program(name: str, average: Average, classes: int) -> Any:
    metric = get_metric(name)

    def loss(counts: Counts) -> Tensor:
        return loss_of_counts(metric, counts, average)

    return make_program(loss, classes, exclusive=True)


def _can_be_recorded(name: str, average: Average) -> bool:
    """Return whether the loss has a program, whatever the number of classes, which a compiler may not know yet."""
    try:
        return _program(name, average, ANY_CLASSES) is not None
    except InvalidValueError:  # a metric with a parameter per class
        return False


# What torch.compiler.assume_constant_result does; calling it would import the compiler together with this package.
_can_be_recorded._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _class_loss_forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    metric: str,
    average: Average,
    kind: str,
    number: float,
    threshold: float | None,
    ignore_index: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    program, step = _program(metric, average, logits.shape[1]), StepAt(kind, number, threshold)
    return evaluate_batch(program, logits, target, weight, step, ignore_index)[:3]


def _empty_loss(logits: Tensor, target: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, threshold, _ = settings
    classes = logits.shape[1]
    shapes: tuple[list[Any], ...] = [], [4, classes], [kept_size(target.numel(), classes, threshold)]
    value, slopes, kept = (logits.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return value, slopes, kept


def _class_loss_gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    slopes: Tensor,
    kept: Tensor,
    grad: Tensor,
    kind: str,
    number: float,
    threshold: float | None,
    ignore_index: int | None,
) -> Tensor:
    step = StepAt(kind, number, threshold)
    return gradient_of_batch(logits, target, weight, slopes, kept, step, ignore_index, grad).contiguous()


def _empty_gradient(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


class _ClassLoss(torch.autograd.Function):
    """The loss from the two operators that stay in a compiled graph."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, weight: Tensor | None, *settings: Any) -> Tensor:
        value, *rest = torch.ops.metricfit.class_loss_forward(logits, target, weight, *settings)
        ctx.save_for_backward(logits, target, weight, *rest)
        ctx.settings = settings[2:]
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return torch.ops.metricfit.class_loss_gradient(*ctx.saved_tensors, grad, *ctx.settings), *(None,) * 8


def _class_loss(*arguments: Any) -> Tensor:
    value: Tensor = _ClassLoss.apply(*arguments)  # type: ignore[no-untyped-call]
    return value


_BATCH = "Tensor logits, Tensor target, Tensor? weight"
_SETTINGS = "str kind, float number, float? threshold, int? ignore_index"
_FORWARD = f"{_BATCH}, str metric, str average, {_SETTINGS}"
_BACKWARD = f"{_BATCH}, Tensor slopes, Tensor kept, Tensor grad, {_SETTINGS}"
_LIBRARY = define_operators(
    {
        f"class_loss_forward({_FORWARD}) -> (Tensor, Tensor, Tensor)": (_class_loss_forward, _empty_loss),
        f"class_loss_gradient({_BACKWARD}) -> Tensor": (_class_loss_gradient, _empty_gradient),
    }
)
# Of this operator a compiled graph holds the two others: an operator with a registered backward passes through several
# functions of torch in Python whenever it is called.
_LIBRARY.define(f"class_loss({_FORWARD}) -> Tensor")  # type: ignore[no-untyped-call]
_LIBRARY.impl("class_loss", _class_loss, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
