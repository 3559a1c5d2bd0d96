"""SoftAUROCLoss: the area under the ROC curve of soft counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import share
from metricfit.core.steps import Step, check_threshold
from metricfit.core.types import Task
from metricfit.errors import InvalidValueError
from metricfit.losses.base import AdditiveLoss
from metricfit.losses.column_loss import ColumnLoss


class SoftAUROCLoss(ColumnLoss, AdditiveLoss):
    r"""One minus the area under the ROC curve of soft counts at several thresholds. Tsoi et al. 2022, Eq. 18.

    .. math:: L = 1 - \sum_t \tfrac12 (\mathrm{TPR}_t + \mathrm{TPR}_{t+1}) (\mathrm{FPR}_t - \mathrm{FPR}_{t+1})

    The points (0, 0) and (1, 1) are added, and the curve is linear between thresholds. Without positives, or without
    negatives, there is no curve: the loss is 0 with a zero gradient.

    Args:
        thresholds: Probabilities at which the counts are taken.
        step: The soft decision; by default Linear(0.1).
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, sum the counts over the ranks.

    Raises:
        ValueError: If there are no thresholds, or one is not strictly between 0 and 1.

    Example:
        >>> round(SoftAUROCLoss()(torch.tensor([3.0, -3.0]), torch.tensor([1, 0])).item(), 3)
        0.007
    """

    def __init__(
        self,
        thresholds: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        step: Step | None = None,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(sync=sync)
        self.set_target_format(task, ignore_index)
        self.thresholds = tuple(sorted(float(threshold) for threshold in thresholds))
        if not self.thresholds:
            raise InvalidValueError("SoftAUROCLoss needs at least one threshold")
        for threshold in self.thresholds:
            check_threshold(threshold)
        self.step = step

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Counts:
        """Return the soft counts at every threshold."""
        self.columns(logits, target, weight)  # refuses multiclass logits
        return Counts.soft(
            logits,
            target,
            step=self.step,
            threshold=self.thresholds,
            task=self.task,
            weight=weight,
            ignore_index=self.ignore_index,
        )

    def value(self, statistics: Counts) -> Tensor:
        """Return one minus the area; 0 without pairs."""
        counts = statistics
        tpr, fpr = share(counts.tp, counts.fn), share(counts.fp, counts.tn)
        ends = tpr.new_ones(1, tpr.shape[-1])
        tpr, fpr = (torch.cat([ends, rate, torch.zeros_like(ends)]) for rate in (tpr, fpr))
        loss = 1 - torch.trapezoid(tpr.flip(0), fpr.flip(0), dim=0)
        no_pairs = (counts.positives[0] == 0) | (counts.negatives[0] == 0)
        return loss.masked_fill(no_pairs, 0.0).mean()

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"thresholds={self.thresholds}"
