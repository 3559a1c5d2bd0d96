"""From logits, or labels, to Counts: settle the task, decide softly or hard, sum over the samples."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Batch, Classes
from metricfit.core.class_shares import TargetJudge
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING, exact_dtype, full_precision
from metricfit.core.ordinary_batch import read_ordinary
from metricfit.core.steps import Step
from metricfit.core.tasks import canonical
from metricfit.core.threshold_reading import read_thresholds
from metricfit.core.types import Task, Thresholds
from metricfit.core.validation import check_finite, check_nan_logits, looks_at_values
from metricfit.errors import InvalidValueError


def count_soft(
    logits: Tensor,
    target: Tensor,
    *,
    task: Task | None = None,
    step: Step | None = None,
    threshold: Thresholds = None,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    per_image: bool = False,
    group: Tensor | None = None,
    groups: int | None = None,
    validate: bool | None = None,
    judge: TargetJudge | None = None,
    matrix: bool = False,
) -> Counts:
    """Count soft decisions, differentiably.

    The arguments are those of ``Counts.soft``, ``judge``: what a loss has seen of its targets so far, and ``matrix``:
    whether counts of exclusive classes must hold the whole confusion matrix. Binary counts are a matrix as they are.
    """
    judge = judge or TargetJudge()
    if ignore_index is None and group is None and groups is None and not (per_image or matrix):
        ordinary = read_ordinary(
            logits, target, task=task, step=step, threshold=threshold, weight=weight, validate=validate, judge=judge
        )
        if ordinary is not None:
            return ordinary.counts()
    batch = canonical(
        logits,
        target,
        task=task,
        weight=weight,
        ignore_index=ignore_index,
        per_image=per_image,
        group=group,
        groups=groups,
        validate=validate,
        judge=judge,
        keep_types=not torch.compiler.is_compiling(),
    )
    step = batch.default_step if step is None else step
    thresholds = read_thresholds(threshold, batch, soft=True)
    with full_precision(batch.logits.device):
        if matrix and isinstance(batch, Classes):
            return _count_soft_matrix(batch, step, thresholds, validate)
        if isinstance(thresholds, list):
            stacked = torch.stack([batch.soft(step, number) for number in thresholds], dim=1)
        else:
            stacked = batch.soft(step, thresholds)
    if looks_at_values(batch.logits, validate):
        check_finite(stacked.detach(), batch.logits)
    return Counts(*stacked.unbind(), exclusive=batch.exclusive)


def _count_soft_matrix(
    batch: Classes, step: Step, thresholds: float | Tensor | list[float | Tensor] | None, validate: bool | None
) -> ConfusionMatrix:
    if isinstance(thresholds, list):
        matrix = torch.stack([batch.soft_matrix(step, number) for number in thresholds])
    else:
        matrix = batch.soft_matrix(step, thresholds)
    if looks_at_values(batch.logits, validate):
        check_finite(matrix.detach(), batch.logits)
    return ConfusionMatrix(matrix)


def count_hard(
    logits: Tensor,
    target: Tensor,
    *,
    task: Task | None = None,
    threshold: Thresholds = None,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    per_image: bool = False,
    group: Tensor | None = None,
    groups: int | None = None,
    validate: bool | None = None,
    matrix: bool = False,
) -> Counts:
    """Count hard decisions, exactly and without gradient.

    The arguments are those of ``Counts.hard``, and ``matrix`` as in ``count_soft``.
    """
    batch = canonical(
        logits.detach() if isinstance(logits, Tensor) else logits,
        target,
        task=task,
        weight=weight,
        ignore_index=ignore_index,
        per_image=per_image,
        group=group,
        groups=groups,
        validate=validate,
        judge=TargetJudge(),
    )
    if looks_at_values(batch.logits, validate):
        check_nan_logits(batch.logits)
    thresholds = read_thresholds(threshold, batch, soft=False)
    with full_precision(batch.logits.device):
        if isinstance(thresholds, list):
            return Counts.stack([count_batch(batch, number, matrix=matrix) for number in thresholds])
        return count_batch(batch, thresholds, matrix=matrix)


def count_batch(batch: Batch, threshold: float | Tensor | None, *, matrix: bool = False) -> Counts:
    """Count the hard decisions of a batch in its final shape at one threshold; ``matrix`` as in ``count_soft``."""
    if matrix and isinstance(batch, Classes):
        return ConfusionMatrix(batch.hard_matrix())
    return Counts(*batch.hard(threshold), exclusive=batch.exclusive)


def count_labels(
    predicted: Tensor,
    target: Tensor,
    *,
    num_classes: int | None = None,
    weight: Tensor | None = None,
    matrix: bool = False,
) -> Counts:
    """Count labels against labels.

    The arguments are those of ``Counts.from_labels``, and ``matrix`` as in ``count_soft``.
    """
    predicted, target = torch.as_tensor(predicted), torch.as_tensor(target)
    if predicted.dim() > 1 and predicted.shape[1:].numel() != 1:
        raise InvalidValueError(
            f"labels must have shape (n,) or (n, 1), got {tuple(predicted.shape)}; flatten pixels first"
        )
    predicted, target = predicted.reshape(-1), target.reshape(-1)
    if predicted.shape != target.shape:
        raise InvalidValueError(f"{len(predicted)} predicted labels for {len(target)} targets")
    exact = exact_dtype(target.device)
    weights = torch.ones_like(target, dtype=exact) if weight is None else torch.as_tensor(weight).reshape(-1).to(exact)
    if weights.shape != target.shape:
        raise InvalidValueError(f"{len(weights)} weights for {len(target)} targets")
    if not bool(((weights >= 0) & weights.isfinite()).all()):
        raise InvalidValueError("weights must be finite and at least 0")
    classes = 2 if num_classes is None else num_classes
    _check_range(predicted, "predicted", classes, num_classes is None)
    _check_range(target, "target", classes, num_classes is None)
    predicted, target = predicted.long(), target.long()
    if matrix and num_classes is not None:
        empty = torch.zeros(classes * classes, dtype=exact, device=target.device)
        return ConfusionMatrix(empty.index_add_(0, target * classes + predicted, weights).reshape(classes, classes))
    right = predicted == target
    tp, fn, fp = (
        torch.zeros(classes, dtype=exact, device=target.device).index_add_(0, index, weights * chosen)
        for index, chosen in ((target, right), (target, ~right), (predicted, ~right))
    )
    rest = weights.sum() - tp - fn - fp
    counts = Counts(tp, fp, fn, torch.where(rest > ROUNDING * weights.sum(), rest, 0.0), exclusive=True)
    return counts.map(lambda cell: cell[1:]) if num_classes is None else counts


def _check_range(labels: Tensor, name: str, classes: int, binary: bool) -> None:
    if labels.is_floating_point() and bool((labels != labels.round()).any()):
        raise InvalidValueError(f"{name} must hold labels, got fractions; threshold scores first, or use Counts.hard")
    if labels.numel() and bool((labels.min() < 0) | (labels.max() >= classes)):
        low, high = float(labels.min()), float(labels.max())
        hint = "; give num_classes= for more than two classes" if binary else ""
        raise InvalidValueError(f"{name} labels must lie in 0..{classes - 1}, got {low:g} to {high:g}{hint}")
