"""An Accumulator as a metric of torchmetrics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit._extras import explain_missing
from metricfit.core.distributed import fill_missing
from metricfit.errors import InvalidStateError, InvalidTypeError
from metricfit.metrics.accumulator import Accumulator, refuse_another_kind

with explain_missing("metricfit.integrations.torchmetrics", ["torchmetrics"], "torchmetrics"):
    import torchmetrics


class AccumulatedMetric(torchmetrics.Metric):
    """The counts of an Accumulator as the state of a torchmetrics Metric.

    torchmetrics adds the counts of all processes, resets them at the end of an epoch, and saves them.

    Args:
        accumulator: How decisions are counted; it is not changed.
        settings: The arguments of ``torchmetrics.Metric``, such as ``dist_sync_on_step``.
    """

    is_differentiable = False
    full_state_update = False
    total: Tensor

    def __init__(self, accumulator: Accumulator, **settings: Any) -> None:
        super().__init__(**settings)
        self._accumulator = accumulator
        self._exclusive: bool | None = None
        # The number of classes is known at the first batch; until then a 0 takes the place of the sums.
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]  # torchmetrics sets it for a class, not an object
        """Whether higher values are better."""
        return not self._accumulator.metric.minimize

    def update(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Count the decisions of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.
        """
        counts = self._accumulator.count(logits, target, weight)
        if self.total.dim():
            refuse_another_kind(self._exclusive, counts.exclusive)
        self.total = self.total + self._accumulator.sums(counts)
        self._exclusive = counts.exclusive

    def sync(self, dist_sync_fn: Any = None, process_group: Any = None, *args: Any, **settings: Any) -> None:
        """Add the counts of all processes, as ``torchmetrics.Metric.sync`` does, also if some have seen no batch.

        Args:
            dist_sync_fn: How tensors are gathered.
            process_group: The processes.
            args: The other arguments of ``torchmetrics.Metric.sync``.
            settings: The same by name.
        """
        should_sync = args[0] if args else settings.get("should_sync", True)
        if should_sync:
            counted = None if self.total.dim() == 0 else self.total
            filled = fill_missing(counted, process_group or self.process_group)
            self.total = self.total if filled is None else filled
        super().sync(dist_sync_fn, process_group, *args, **settings)

    def compute(self) -> Tensor:
        """Compute the metric of all batches so far.

        Returns:
            The value, a scalar; one value per class if the Accumulator has ``average=None``.

        Raises:
            InvalidStateError: There was no batch.
        """
        if not self.total.dim():
            raise InvalidStateError("the metric has seen no batch: call update(logits, target) first")
        return self._accumulator.value(self.total, exclusive=self._exclusive)


def as_torchmetrics(accumulator: Accumulator, **settings: Any) -> AccumulatedMetric:
    """Make a metric of torchmetrics, which ``self.log`` of Lightning and ``MetricCollection`` take.

    Args:
        accumulator: An Accumulator, which says what is measured and at which threshold.
        settings: The arguments of ``torchmetrics.Metric``, such as ``dist_sync_on_step``.

    Returns:
        The metric.

    Raises:
        InvalidTypeError: ``accumulator`` is something else.

    Example:
        >>> from metricfit.metrics import Accumulator
        >>> quality = as_torchmetrics(Accumulator("f1", threshold=0.3))
        >>> quality.update(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
        >>> quality.compute()
        tensor(1., dtype=torch.float64)
    """
    if not isinstance(accumulator, Accumulator):
        raise InvalidTypeError(f"as_torchmetrics takes an Accumulator, got {type(accumulator).__name__}")
    return AccumulatedMetric(accumulator, **settings)
