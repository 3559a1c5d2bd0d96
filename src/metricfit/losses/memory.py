"""RunningCounts: a decayed sum of the counts of past batches, for batches too small to measure a metric on."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError


class RunningCounts(LateBuffers):
    r"""The decayed sum of past counts, :math:`S \leftarrow d\,S + \text{counts}`; the ``memory=`` of MetricLoss.

    The metric is then the formula of ``d S + counts``, and its gradient flows through the current batch only. A batch
    without positives still gives a useful gradient, because S contains the positives of earlier batches. With decay d
    the memory covers about 1/(1-d) batches. S is a buffer, so ``.to()``, ``state_dict`` and ``deepcopy`` include it. It
    changes in training mode with gradients enabled; otherwise the counts are returned unchanged.

    Args:
        decay: The factor d, strictly between 0 and 1.

    Raises:
        ValueError: If the decay is not between 0 and 1.

    Example:
        >>> memory = RunningCounts(decay=0.5)
        >>> counts = Counts(tp=1, fp=0, fn=1, tn=2).to(torch.float64)
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
        """Add the remembered counts, and update them.

        Args:
            counts: The counts of the batch.

        Returns:
            The decayed sum, with the gradient of the batch; outside training, the counts themselves.
        """
        if not (self.training and torch.is_grad_enabled()):
            return counts
        current = torch.stack(counts.tensors)
        amount = current.detach()
        before = self.recomputed_pass(amount)
        if before is not None:
            return counts.with_tensors(self.decay * before.to(current.dtype) + current)
        total = self.made("total", current)
        self.remember_pass(amount, total.clone())
        remembered = self.decay * total.to(current.dtype) + current
        total.copy_(remembered.detach())
        return counts.with_tensors(remembered)

    def extra_repr(self) -> str:
        """Return the argument of the constructor."""
        return f"decay={self.decay:g}"
