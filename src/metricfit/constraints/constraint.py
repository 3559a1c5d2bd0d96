"""Constraint: the base class of the constraints of an augmented Lagrangian."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.distributed import number_of_ranks


class Constraint(LateBuffers, ABC):
    """Base class of constraints: a term of the loss, with multipliers that ``update`` moves.

    Forward passes in training mode record violations, and ``update`` uses what was recorded since the last update.
    Multipliers and records are buffers, so ``.to()``, ``state_dict`` and ``deepcopy`` include them.

    Args:
        sync: In a distributed run, use the samples of all ranks, so that the multipliers are the same on every rank.

    Example:
        >>> from metricfit.constraints import RequirementConstraint
        >>> isinstance(RequirementConstraint("recall >= 0.9"), Constraint)
        True
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
        """Compute what the constraint adds to the objective.

        Args:
            logits: The outputs of the model.
            target: The labels.
            penalty: The penalty factor mu.
            index: The positions of the samples in the training set.
            weight: One weight per sample.
            group: The group numbers of the samples.

        Returns:
            What the constraint adds to the objective, a scalar.
        """

    @abstractmethod
    def update(self, penalty: Tensor) -> None:
        """Update the multipliers from the violations since the last update, and clear these.

        Args:
            penalty: The penalty factor mu.
        """

    @property
    def learns(self) -> bool:
        """Whether a forward pass now belongs to training, so that its violations are recorded."""
        return self.training and torch.is_grad_enabled()

    @property
    def over_ranks(self) -> bool:
        """Whether a forward pass now uses the samples of all ranks."""
        return self.sync and self.learns and number_of_ranks() > 1
