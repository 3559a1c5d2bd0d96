"""What an augmented Lagrangian asks of a constraint."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.distributed import number_of_ranks


class Constraint(LateBuffers, ABC):
    """A term of the loss, with multipliers that ``update`` moves by what training-mode forwards have seen.

    Multipliers and what was seen are buffers. ``sync`` takes them over all ranks of a distributed run, so that they are
    the same on every rank.
    """

    multiplier: Tensor | None

    def __init__(self, *, sync: bool = True) -> None:
        super().__init__()
        self.sync = sync

    @abstractmethod
    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        penalty: Tensor,
        *,
        index: Tensor | None = None,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """What the constraint adds to the objective, a scalar."""

    @abstractmethod
    def update(self, penalty: Tensor) -> None:
        """Move the multipliers by what was seen since the last update, and forget it."""

    @property
    def learns(self) -> bool:
        """Whether a forward now is one of training, to be remembered for the update."""
        return self.training and torch.is_grad_enabled()

    @property
    def over_ranks(self) -> bool:
        """Whether a forward now is to be taken over the ranks."""
        return self.sync and self.learns and number_of_ranks() > 1
