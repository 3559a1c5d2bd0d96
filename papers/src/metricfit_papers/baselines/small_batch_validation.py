"""Evaluating a loss whose cost grows faster than the batch on a large validation set."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError


class OnSmallBatches(nn.Module):
    """A loss that is unchanged in training; in eval mode it is the mean over batches of a fixed size, always the same.

    It is for AdversarialLoss, whose game over a validation set of thousands of samples would take too long. The
    published code also monitors the mean over batches.

    >>> from metricfit.losses import MetricLoss
    >>> loss = OnSmallBatches(MetricLoss("f1"), 1).eval()
    >>> logits, labels = torch.tensor([9.0, 9.0, -9.0, -9.0]), torch.tensor([1, 1, 0, 0])
    >>> loss(logits, labels)  # F1 of the two batches without positives is 0
    tensor(0.5000)
    """

    def __init__(self, loss: nn.Module, size: int) -> None:
        super().__init__()
        if size < 1:
            raise InvalidValueError(f"a batch has at least one sample, got size={size}")
        self.loss, self.size = loss, size

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the batch, or in eval mode the mean over parts of it."""
        if self.training:
            whole: Tensor = self.loss(logits, target)
            return whole
        order = torch.randperm(len(target), generator=torch.Generator().manual_seed(0)).to(target.device)
        parts = [self.loss(logits[part], target[part]) for part in torch.split(order, self.size)]
        return torch.stack(parts).mean()
