"""The whole confusion matrix of a multiclass problem."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from metricfit.core.canonical_batch import Classes
from metricfit.core.kernels.classes import decisions
from metricfit.core.numerics import full_precision
from metricfit.core.steps import Step
from metricfit.core.tasks import canonical
from metricfit.errors import InvalidValueError, quote


def confusion_matrix(
    logits: Tensor,
    target: Tensor,
    *,
    soft: bool = False,
    step: Step | None = None,
    threshold: float | Literal["dynamic"] | None = None,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Count multiclass decisions by true class.

    Args:
        logits: Outputs of the model, ``(n, c, ...)``.
        target: Class numbers ``(n, ...)``, or class shares of the shape of the logits.
        soft: Whether to sum the soft decisions that MetricLoss trains on, differentiably. By default the decision is
            the argmax.
        step: The soft decision; by default ``Linear(0.2)``.
        threshold: The threshold of soft decisions; by default "dynamic".
        weight: One weight per sample, at least 0.
        ignore_index: Samples with this label are not counted.

    Returns:
        A matrix ``(c, c)``: row i, column j holds the samples of class i that are predicted to be of class j. The
        diagonal and the margins are those of ``Counts.hard`` or ``Counts.soft``.

    Raises:
        InvalidValueError: Shapes, labels, weights or the threshold do not fit.

    Example:
        >>> confusion_matrix(torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1]))
        tensor([[1., 0.],
                [1., 1.]], dtype=torch.float64)
    """
    batch = canonical(logits, target, task="multiclass", weight=weight, ignore_index=ignore_index)
    assert isinstance(batch, Classes)
    if isinstance(threshold, str) and threshold != "dynamic":
        raise InvalidValueError(f"a multiclass threshold is a number or 'dynamic', got {quote(threshold)}")
    fixed = None if isinstance(threshold, str) else threshold
    with full_precision(batch.logits.device):
        if soft:
            return batch.confusion(decisions(batch.logits, step or batch.default_step, fixed, batch.layout))
        return batch.exact().confusion(batch.decided())
