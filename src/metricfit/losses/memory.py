"""RunningCounts: counts remembered over batches, for metrics that a small batch cannot measure."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from metricfit.core.counts import Counts
from metricfit.core.numerics import counting_dtype, has_storage


class RunningCounts(nn.Module):
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

    total: Tensor | None

    def __init__(self, decay: float = 0.99) -> None:
        super().__init__()
        if not 0.0 < decay < 1.0:
            raise ValueError(f"RunningCounts needs 0 < decay < 1, got {decay}")
        self.decay = float(decay)
        self.register_buffer("total", None)

    def forward(self, counts: Counts) -> Counts:
        """The counts with the remembered ones added, which are then brought up to date."""
        if not (self.training and torch.is_grad_enabled()):
            return counts
        now = torch.stack(tuple(counts))
        if not has_storage(now) and (self.total is None or has_storage(self.total)):
            raise RuntimeError(
                "RunningCounts under vmap needs a memory a member: call the loss through torch.func.functional_call "
                "with a stacked 'memory.total', one of shape (4, c) for each member"
            )
        if self.total is None:
            self.total = torch.zeros_like(now)
        elif self.total.shape != now.shape:
            raise ValueError(
                f"RunningCounts holds counts of shape {tuple(self.total.shape[1:])}, the batch's are "
                f"{tuple(now.shape[1:])}; one memory serves one loss: call reset() or give each loss its own"
            )
        remembered = self.decay * self.total.to(now.dtype) + now
        self.total.copy_(remembered.detach())
        return Counts(*remembered, exclusive=counts.exclusive)

    def _apply(self, fn: Any, recurse: bool = True) -> RunningCounts:
        """Move, but keep at least float32 in ``.half()``: counts overflow less."""
        before = self.total
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if before is not None and self.total is not None and self.total.dtype != counting_dtype(self.total.dtype):
            self.total = before.to(self.total.device, counting_dtype(self.total.dtype))
        return self

    def reset(self) -> None:
        """Forget everything."""
        self.total = None

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"decay={self.decay:g}"

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool, *args: Any
    ) -> None:
        """Take the saved shape, or the saved absence: the buffer is made at first use."""
        saved = state_dict.get(prefix + "total")
        if saved is not None:
            self.total = torch.zeros_like(saved, device=saved.device if self.total is None else self.total.device)
        elif strict:
            self.total = None
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *args)
