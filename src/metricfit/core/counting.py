"""From logits to soft Counts: settle the task, decide softly, sum over the samples."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.batch_counts import BatchCounts, read_ordinary
from metricfit.core.canonical_batch import Classes
from metricfit.core.class_shares import TargetJudge
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.settings import DEFAULT, CountSettings
from metricfit.core.steps import CLASSES_STEP, COLUMNS_STEP
from metricfit.core.tasks import canonical
from metricfit.core.tensor_numerics import full_precision
from metricfit.core.thresholds import thresholds_of_batch
from metricfit.core.validation import check_finite, looks_at_values


def count_soft(
    logits: Tensor,
    target: Tensor,
    settings: CountSettings = DEFAULT,
    *,
    weight: Tensor | None = None,
    group: Tensor | None = None,
    judge: TargetJudge | None = None,
    matrix: bool = False,
    lazily: bool = False,
) -> Counts:
    """Count soft decisions, differentiably.

    Args:
        logits: The outputs of the model.
        target: The labels.
        settings: How to count.
        weight: One weight per sample.
        group: One group number per row.
        judge: What a loss has seen of its targets so far.
        matrix: Whether counts of exclusive classes must hold the whole confusion matrix. Binary counts are one.
        lazily: Whether the counts may be ``BatchCounts``.

    Returns:
        The counts, as ``Counts.soft`` returns them.
    """
    judge = judge or TargetJudge()
    if group is None and not matrix:
        ordinary = read_ordinary(logits, target, weight, settings, judge)
        if ordinary is not None:
            return BatchCounts(ordinary) if lazily else ordinary.counts()
    kept = not torch.compiler.is_compiling()
    batch = canonical(logits, target, settings, weight=weight, group=group, judge=judge, keep_types=kept)
    default = CLASSES_STEP if isinstance(batch, Classes) else COLUMNS_STEP
    step = default if settings.step is None else settings.step
    thresholds = thresholds_of_batch(settings.threshold, batch, soft=True)
    matrix = matrix and isinstance(batch, Classes)  # binary counts are a matrix
    count = batch.soft_matrix if matrix and isinstance(batch, Classes) else batch.soft
    with full_precision(batch.logits.device):
        if isinstance(thresholds, list):
            parts = [count(step, number) for number in thresholds]
            stacked = torch.stack(parts, dim=0 if matrix else 1)
        else:
            stacked = count(step, thresholds)
    if looks_at_values(batch.logits, settings.validate):
        check_finite(stacked.detach(), batch.logits)
    return ConfusionMatrix(stacked) if matrix else Counts(*stacked.unbind(), exclusive=batch.exclusive)
