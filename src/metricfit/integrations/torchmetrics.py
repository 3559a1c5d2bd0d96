"""An Accumulator as a metric of torchmetrics."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor

from metricfit._extras import explain_missing
from metricfit.core.distributed import fill_missing
from metricfit.errors import InvalidStateError, InvalidTypeError, InvalidValueError
from metricfit.metrics.accumulator import NEW_STREAM, Accumulator, refuse_another_kind
from metricfit.metrics.group_gap import GroupGap

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

    def __init__(self, accumulator: Accumulator, **settings: Any) -> None:
        super().__init__(**settings)
        self._accumulator = accumulator
        self._exclusive: bool | None = None
        self._state_name = _name_state(accumulator)
        # The number of classes is known at the first batch; until then a 0 takes the place of the sums.
        self.add_state(self._state_name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    @property
    def total(self) -> Tensor:
        """The sums over all batches so far; a 0 before the first."""
        total: Tensor = getattr(self, self._state_name)
        return total

    @total.setter
    def total(self, sums: Tensor) -> None:
        setattr(self, self._state_name, sums)

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]  # torchmetrics sets it for a class, not an object
        """Whether higher values are better."""
        return not self._accumulator.metric.minimize

    def update(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> None:
        """Count the decisions of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample, or per image.
            group: One group number per sample, for a gap between groups such as ``"recall.gap(2)"``. Other metrics do
                not use it, because a ``MetricCollection`` passes it to all of its metrics.
        """
        has_groups = isinstance(self._accumulator.metric, GroupGap)
        counts = self._accumulator.count(logits, target, weight, group=group if has_groups else None)
        sums = self._accumulator.sums(counts, weight)
        if self.total.dim():
            if self.total.shape != sums.shape:
                raise InvalidValueError(
                    f"the earlier batches have sums of shape {tuple(self.total.shape)}, and this one of "
                    f"{tuple(sums.shape)}; {NEW_STREAM}"
                )
            refuse_another_kind(self._exclusive, counts.exclusive)
        self.total = self.total + sums
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


def _name_state(accumulator: Accumulator) -> str:
    """Return the name of the state, which metrics of other settings do not have.

    ``MetricCollection`` updates only one of several metrics whose states have the same names, and the same values after
    the first batch, which says nothing about the batches after it.
    """
    threshold, metric = accumulator.threshold, accumulator.metric
    numbers = threshold.tolist() if isinstance(threshold, Tensor) else None
    settings: tuple[object, ...] = (accumulator.extra_repr(), numbers)
    if accumulator.per_image and not metric.found_by_name:  # sums of values, and the name does not say which
        settings += (id(metric),)
    return f"total_{zlib.crc32(repr(settings).encode()):08x}"


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
