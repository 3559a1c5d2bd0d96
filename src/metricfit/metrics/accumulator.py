"""Accumulator: a metric of the decisions on a stream of batches, from counts that add up."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.confusion import unstack
from metricfit.core.counting import count_hard
from metricfit.core.counts import Counts
from metricfit.core.distributed import fill_missing
from metricfit.core.tasks import check_task
from metricfit.core.threshold_vectors import PerLabel
from metricfit.core.types import Average, Task, Thresholds
from metricfit.errors import InvalidStateError, InvalidValueError
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts


class Accumulator(LateBuffers):
    """The metric of all batches of a stream, in memory of the size of the counts.

    Counts of hard decisions are summed, so that the value is that of all rows together, which the mean of the values
    of the batches is not. The sum is a buffer: ``.to()`` and ``state_dict`` include it.

    Args:
        metric: A Metric, its name or a function of Counts.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two of them.
        threshold: The threshold of binary and multilabel decisions; by default 0.5. ``metrics.PerLabel([...])`` has one
            per label, kept in a buffer; with ``metrics.ThresholdGrid([...])`` there is one value per threshold.
        average: The average over several classes; None for one value per class.
        ignore_index: Samples with this label are not counted.

    Raises:
        InvalidValueError: There is no such metric, task or average.

    Example:
        >>> quality = Accumulator("f1")
        >>> quality.update(torch.tensor([2.0, -1.0]), torch.tensor([1, 1]))
        >>> quality.update(torch.tensor([3.0, -2.0]), torch.tensor([1, 0]))
        >>> quality.compute()
        tensor(0.8000, dtype=torch.float64)
    """

    late: ClassVar[tuple[str, ...]] = ("total",)
    total: Tensor | None
    threshold: Thresholds

    def __init__(
        self,
        metric: str | Metric | Formula,
        *,
        task: Task | None = None,
        threshold: Thresholds = None,
        average: Average = "macro",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__()
        self.metric = check_of_counts(get_metric(metric))
        check_average(self.metric, average)
        check_task(task)
        self.task, self.average, self.ignore_index = task, average, ignore_index
        self.per_label = isinstance(threshold, PerLabel)
        if isinstance(threshold, PerLabel):
            self.register_buffer("threshold", threshold.numbers.detach().clone())
        else:
            self.threshold = threshold
        self._exclusive: bool | None = None

    @torch.no_grad()
    def update(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> None:
        """Count the decisions of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.
            group: One group number per sample, for a gap between groups such as ``"recall.gap(2)"``.

        Raises:
            InvalidValueError: The shapes do not fit each other or the earlier batches, or ``group`` is missing for a
                gap or was passed for another metric.
        """
        counts = self.count(logits, target, weight, group=group)
        stacked = torch.stack(counts.tensors)
        self.made("total", stacked).add_(stacked)
        self._exclusive = counts.exclusive

    def count(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> Counts:
        """Return the counts of a batch without adding them.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.
            group: One group number per sample, for a gap between groups.

        Returns:
            The counts of hard decisions.

        Raises:
            InvalidValueError: The shapes do not fit each other, or ``group`` is missing for a gap or was passed for
                another metric.
        """
        groups = self.metric.groups if isinstance(self.metric, GroupGap) else None
        if (groups is None) != (group is None):
            remedy = "pass group=, one number per row" if group is None else "leave group out, it has no groups"
            raise InvalidValueError(f"Accumulator({self.metric.name!r}): {remedy}")
        threshold = self.threshold
        return count_hard(
            logits,
            target,
            task=self.task,
            threshold=threshold.unsqueeze(-1) if isinstance(threshold, Tensor) and self.per_label else threshold,
            weight=weight,
            ignore_index=self.ignore_index,
            group=group,
            groups=groups,
            matrix=self.metric.needs_matrix,
        )

    def forward(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> None:
        """Count the decisions of a batch, as ``update`` does.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.
            group: One group number per sample, for a gap between groups.
        """
        self.update(logits, target, weight, group=group)

    @property
    def counts(self) -> Counts:
        """The counts of all batches so far."""
        if self.total is None:
            raise InvalidStateError("the Accumulator has seen no batch: call update(logits, target) first")
        return unstack(self.total, exclusive=self._exclusive)

    def compute(self) -> Tensor:
        """Compute the metric of all batches so far.

        Returns:
            The value, a scalar; with ``average=None`` one value per class.

        Raises:
            InvalidStateError: There was no batch.
        """
        return averaged(self.metric, self.counts, self.average)

    def sync(self) -> None:
        """Add the counts of all processes of a distributed run. Every process calls it once, at the end of the stream.

        A process that has seen no batch takes part with zeros.

        Raises:
            InvalidStateError: No process has seen a batch.
            InvalidValueError: The processes have counted different classes.
        """
        self.total = fill_missing(self.total)
        self.total = torch.stack(self.counts.sum_over_ranks().tensors)

    def extra_repr(self) -> str:
        """Return the name of the metric."""
        return repr(self.metric.name)
