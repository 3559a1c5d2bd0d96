"""The loss of a binary batch as one operation of a function that ``torch.compile`` makes.

At each call a compiled function checks everything that was read while it was traced. Tracing the way from logits to the
loss reads some 180 settings, functions and modules, and checking these takes 70 us on the host of an H200, as long as
most losses. ``torch.compile`` therefore takes this function as a whole, and reads its arguments only; what it contains
is compiled all the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Columns
from metricfit.core.counts import Counts
from metricfit.core.kernels.binary import closed_counts
from metricfit.core.kernels.classes_operator import is_transformed
from metricfit.core.numerics import differentiates_forward, full_precision
from metricfit.core.steps import Step, closed_form
from metricfit.core.types import Average, Task, Thresholds
from metricfit.metrics.average import loss_of_counts
from metricfit.metrics.metric import get_metric


def evaluate_compiled_binary(
    metric: str,
    average: Average,
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    task: Task | None,
    step: Step | None,
    threshold: Thresholds,
) -> Tensor | None:
    """Compute the loss of a binary batch within a compiled function.

    Args:
        metric: The name of a metric.
        average: The average over the classes, of which there is one.
        logits: The outputs of the model.
        target: The labels.
        weight: One weight per sample, or None.
        task: The task, if the shapes do not determine it.
        step: The soft decision; None for the default.
        threshold: The threshold; None for the default.

    Returns:
        The loss, or None if this is not a batch for the function.
    """
    shape = logits.shape
    is_column = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
    if task not in (None, "binary") or target.shape != shape or not is_column:
        return None
    if not logits.is_floating_point() or target.is_complex() or target.requires_grad:
        return None
    if weight is not None and (weight.shape != shape or weight.requires_grad or not weight.is_floating_point()):
        return None
    if not (threshold is None or isinstance(threshold, float)) or is_transformed() or differentiates_forward():
        return None
    kind, number = _default_step() if step is None else _read_step(step)
    if kind is None:
        return None
    _tell_compiler()
    return loss_of_batch(logits, target, weight, metric, average, kind, number, 0.5 if threshold is None else threshold)


def _read_step(step: Step) -> tuple[str | None, float]:
    """Return the kind and the number of a step; None and 0 if it has no closed form."""
    closed = closed_form(step)
    return (None, 0.0) if closed is None else (closed.kind, closed.number)


def _default_step() -> tuple[str | None, float]:
    return _read_step(Columns.default_step)


def loss_of_batch(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    metric: str,
    average: Average,
    kind: str,
    number: float,
    threshold: float,
) -> Tensor:
    """Compute the loss from tensors of one shape and from constants."""
    x, y, w = logits.reshape(1, -1), target.reshape(1, -1), None if weight is None else weight.reshape(1, -1)
    with full_precision(logits.device):
        stacked = closed_counts(x, y, w, kind, number, threshold)
    return loss_of_counts(get_metric(metric), Counts(*stacked.unbind(), exclusive=True), average)


def _tell_compiler() -> None:
    """Have the compiler take ``loss_of_batch`` as one operation; it runs this function while it traces."""
    torch.compiler.allow_in_graph(loss_of_batch)  # type: ignore[no-untyped-call]


# What torch.compiler.assume_constant_result does; calling it would import the compiler together with this package.
_tell_compiler._dynamo_marked_constant = True  # type: ignore[attr-defined]
_default_step._dynamo_marked_constant = True  # type: ignore[attr-defined]
