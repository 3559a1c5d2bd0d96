"""Validation batch by batch: sums instead of all logits, for losses and metrics that are functions of sums."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from metricfit.core.counts import Counts
from metricfit.errors import InvalidTypeError
from metricfit.losses.base import AdditiveLoss, check_parts
from metricfit.losses.calling import LossArguments, accepted_arguments, call_loss
from metricfit.losses.combine import Mix
from metricfit.train.data.batches import Batch
from metricfit.train.engine.epoch_validation import Validation
from metricfit.train.monitor import Monitor
from metricfit.train.monitored_value import Measured
from metricfit.train.stage import Objective, match_shapes


class _Additive(Protocol):
    def statistics(self, logits: Tensor, target: Tensor) -> Any: ...
    def value(self, statistics: Any) -> Tensor: ...


@dataclass
class _Part:
    """A loss with its weight in the whole, and the sum of its statistics so far."""

    loss: _Additive
    share: float
    accepts: LossArguments
    total: Any = 0

    def add(self, logits: Tensor, y: Tensor, batch: Batch) -> None:
        sums = call_loss(self.loss.statistics, logits, y, self.accepts, weight=batch.weight, group=batch.group)
        self.total = self.total + (_in_double(sums) if isinstance(sums, Counts) else sums.double())


def _in_double(counts: Counts) -> Counts:
    return counts.with_tensors(tensor.double() for tensor in counts.tensors)


class LossOfSums:
    """The loss of all samples of a stream, from sums over its batches.

    Args:
        parts: What ``split_loss`` returned.
    """

    def __init__(self, parts: Iterable[_Part]) -> None:
        self.parts = list(parts)

    def add(self, logits: Tensor, batch: Batch) -> None:
        """Add the samples of a batch."""
        logits, y = match_shapes(logits, batch.y)
        for part in self.parts:
            part.add(logits, y, batch)

    def value(self) -> float:
        """Return the loss of all samples."""
        return sum(part.share * float(part.loss.value(part.total)) for part in self.parts)


class MonitorOfCounts:
    """The monitored value of all samples of a stream, from their counts."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.counts: Counts | None = None
        self.shares: list[Tensor] = []
        self.exclusive = False

    def add(self, logits: Tensor, batch: Batch) -> None:
        """Add the samples of a batch."""
        counts, self.exclusive = self.monitor.count(*match_shapes(logits, batch.y), batch.weight)
        counts = _in_double(counts)
        self.counts = counts if self.counts is None else self.monitor.averaging.join((self.counts, counts))
        shares = self.monitor.averaging.weigh(counts, batch.weight)
        self.shares += [] if shares is None else [shares]

    def measure(self) -> Measured:
        """Measure the metric and the requirements."""
        assert self.counts is not None
        shares = torch.cat(self.shares) if self.shares else None
        return self.monitor.measure_counts(self.counts, exclusive=self.exclusive, shares=shares)


def validate_stream(
    monitors: Sequence[Monitor],
    objective: Objective,
    parts: Iterable[_Part],
    outputs: Iterable[tuple[Tensor, Batch]],
    check_labels: Callable[[Tensor, Tensor, bool], None] | None,
) -> Validation:
    """Validate batch by batch: the logits of one batch are in memory at a time.

    Args:
        monitors: The monitors, which need no scores; the one that decides is the first.
        objective: The objective, without requirements.
        parts: The parts of its loss.
        outputs: The logits of each batch.
        check_labels: Called with logits of a few samples, labels, and whether these are a part of all; None if the
            labels are known to be right.

    Returns:
        What ``validate`` returns for all logits together.
    """
    losses = LossOfSums(parts)
    counted = [None if monitor.is_loss else MonitorOfCounts(monitor) for monitor in monitors]
    labels: list[Tensor] = []
    objective.loss.eval()
    try:
        with torch.no_grad(), objective.annealed_to_end():
            for logits, batch in outputs:
                if check_labels is not None:
                    first = logits[:1].cpu()
                    labels.append(batch.y.cpu())
                    check_labels(first, labels[-1], True)
                losses.add(logits, batch)
                for decisions in filter(None, counted):
                    decisions.add(logits, batch)
            if check_labels is not None:
                check_labels(first, torch.cat(labels), False)
            loss = losses.value()
    finally:
        objective.loss.train()
    measured, *others = (Measured(loss, math.nan) if each is None else each.measure() for each in counted)
    observed = -measured.value if monitors[0].minimize else measured.value
    return Validation(loss, measured, observed, others=tuple(others))


def split_loss(loss: nn.Module, share: float = 1.0) -> list[_Part] | None:
    """Return the parts of a loss that are functions of sums over samples; None if the loss has any other part."""
    if type(loss) in (nn.BCEWithLogitsLoss, nn.CrossEntropyLoss):
        return [_Part(_TorchMean(loss), share, accepted_arguments(loss))] if loss.reduction == "mean" else None
    try:
        if isinstance(loss, AdditiveLoss):
            check_parts(loss, "validation", ("statistics", "value"))
            return [_Part(loss, share, accepted_arguments(loss))]
        if isinstance(loss, Mix):
            check_parts(loss, "validation", ("__init__",))
            pairs = zip(loss.losses, loss.weights, strict=True)
            members = [split_loss(member, share * weight) for member, weight in pairs]
            return None if None in members else [part for parts in members for part in parts or ()]
    except InvalidTypeError:  # a subclass with a forward of its own
        return None
    return None


class _TorchMean:
    """A mean of torch as a sum of losses and a sum of weights."""

    def __init__(self, loss: nn.Module) -> None:
        self.mean, self.summed = loss, copy.copy(loss)
        self.summed.reduction = "sum"  # type: ignore[assignment]

    def statistics(self, logits: Tensor, target: Tensor) -> Tensor:
        size: Tensor | float
        if isinstance(self.mean, nn.BCEWithLogitsLoss):
            size = logits.numel()
        elif target.is_floating_point():
            size = logits.numel() / logits.shape[1]
        else:
            kept = target[target != self.mean.ignore_index]
            weight: Any = self.mean.weight
            size = kept.numel() if weight is None else weight[kept].sum()
        total: Tensor = self.summed(logits, target)
        return torch.stack([total.double(), torch.as_tensor(size, device=total.device).double()])

    def value(self, statistics: Tensor) -> Tensor:
        return statistics[0] / statistics[1]
