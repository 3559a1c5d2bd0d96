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

#: Sums over samples. Both kinds add with ``+``.
Statistics = Counts | Tensor


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
