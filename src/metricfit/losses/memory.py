"""RunningCounts: counts remembered over batches, for metrics that a small batch cannot measure."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError


class RunningCounts(LateBuffers):
    r"""The decayed sum of past counts, :math:`S \leftarrow d\,S + \text{counts}`; the ``memory=`` of MetricLoss.

    The metric is then the formula at ``d S + counts``, whose gradient flows through the current batch only: a batch
    without positives still teaches, because the positives of earlier batches are in S. With decay d the memory is as
    long as 1/(1-d) batches. S is a buffer: ``.to()``, ``state_dict`` and ``deepcopy`` carry it. It changes in training
    mode with gradients enabled; otherwise the counts pass through as they are.

    >>> memory = RunningCounts(decay=0.5)
    >>> counts = Counts(tp=1, fp=0, fn=1, tn=2)
    >>> memory(counts).tp, memory(counts).tp
    (tensor([1.], dtype=torch.float64), tensor([1.5000], dtype=torch.float64))
    """

    late: ClassVar[tuple[str, ...]] = ("total",)
    total: Tensor | None

    def __init__(self, decay: float = 0.99) -> None:
        super().__init__()
        if not 0.0 < decay < 1.0:
            raise InvalidValueError(f"RunningCounts needs 0 < decay < 1, got {decay}")
        self.decay = float(decay)

    def forward(self, counts: Counts) -> Counts:
        """The counts with the remembered ones added, which are then brought up to date."""
        if not (self.training and torch.is_grad_enabled()):
            return counts
        now = torch.stack(tuple(counts))
        total = self.made("total", now)
        remembered = self.decay * total.to(now.dtype) + now
        total.copy_(remembered.detach())
        return Counts(*remembered, exclusive=counts.exclusive)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"decay={self.decay:g}"
