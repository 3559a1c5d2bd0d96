"""Losses of sums over samples, which is what makes them exact over ranks and over accumulated batches.

Such a loss is a function of statistics that add: Counts for a metric, a tensor with a weighted sum and a sum of weights
for a mean. Statistics carry all that ``value`` needs to know about them, so that another loss object with the same
settings gives the same value.

Over several processes the statistics are added before the function is applied, never the losses averaged after it;
over several batches likewise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.core.counts import Counts
from metricfit.core.distributed import number_of_ranks, sum_over_ranks
from metricfit.errors import InvalidTypeError

#: Sums over samples. Both kinds add with ``+``.
Statistics = Counts | Tensor


def check_parts(loss: nn.Module, owner: str, parts: tuple[str, ...], whole: tuple[str, ...] = ("forward",)) -> None:
    """Refuse a loss whose class overrides ``forward`` without the parts that someone computes it from.

    Args:
        loss: the loss.
        owner: who computes the loss from its parts, for the message.
        parts: the methods that are used.
        whole: the methods that are replaced by them.

    Raises:
        TypeError: one of ``whole`` comes from a subclass of the class that defines the parts, so it may compute
            something else, which would be lost without a word.
    """
    defined = min(_rank(type(loss), name) for name in parts)
    for name in whole:
        if _rank(type(loss), name) < defined:
            raise InvalidTypeError(
                f"{type(loss).__name__} overrides {name}, but {owner} computes a loss from {' and '.join(parts)}, and "
                f"what {name} adds would be lost. Put it into a loss of its own and add the two with Mix"
            )


def _rank(kind: type, name: str) -> int:
    """Return how far up the inheritance a method is defined; 0 is the class itself."""
    return next(rank for rank, parent in enumerate(kind.__mro__) if name in vars(parent))


class AdditiveLoss(nn.Module, ABC):
    """A loss ``value(statistics)`` whose statistics are sums over samples.

    With ``sync`` the statistics are summed over the ranks of a distributed run, in training mode with gradients
    enabled, so that the gradient is that of the whole batch; validation on one rank alone never waits for the others.

    Args:
        sync: in a distributed run, sum the statistics over the ranks.
    """

    def __init__(self, *, sync: bool) -> None:
        super().__init__()
        self.sync = sync

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of a batch of logits."""
        return self.value(self.over_ranks(self.statistics(logits, target, weight)))

    @abstractmethod
    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
        """Sums over the samples of a batch, a tensor or Counts. Those of several batches add with ``+``."""

    @abstractmethod
    def value(self, statistics: Any) -> Tensor:
        """The loss as a function of the statistics."""

    def over_ranks(self, statistics: Any) -> Any:
        """The statistics of all ranks where they are to be summed, else as they are."""
        if self.sync and self.training and torch.is_grad_enabled() and number_of_ranks() > 1:
            return statistics.sum_over_ranks() if isinstance(statistics, Counts) else sum_over_ranks(statistics)
        return statistics
