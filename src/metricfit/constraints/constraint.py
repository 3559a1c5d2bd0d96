"""Constraint: the base classes of the constraints of an augmented Lagrangian."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from metricfit.constraints.terms import next_multiplier
from metricfit.core.buffers import LateBuffers
from metricfit.core.distributed import number_of_ranks
from metricfit.core.validation import is_false
from metricfit.errors import InvalidStateError


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


class MeasuredConstraint(Constraint):
    """Base class of constraints whose violation can be measured on any rows, such as a requirement on a metric.

    Such a constraint can move its multipliers on held-out rows, and an optimiser can move them. A RankingConstraint is
    none, because its multipliers belong to training samples.

    Args:
        sync: In a distributed run, use the samples of all ranks.

    Example:
        >>> from metricfit.constraints import RequirementConstraint
        >>> isinstance(RequirementConstraint("recall >= 0.9"), MeasuredConstraint)
        True
    """

    #: Whether ``observe_held_out`` records violations, and forward passes do not. AugmentedLagrangian sets it.
    held_out: bool = False

    @property
    def is_equality(self) -> bool:
        """Whether the violation should be 0, rather than at most 0, so that multipliers can be negative."""
        return False

    @abstractmethod
    def observe_held_out(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        group: Tensor | None = None,
        sync: bool = False,
    ) -> None:
        """Record the violation on held-out rows, for the next update.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per row.
            group: The group numbers of the rows.
            sync: Whether each rank of a distributed run passes its own share of the rows.
        """

    @abstractmethod
    def recorded(self) -> tuple[Tensor, Tensor] | None:
        """Return the violations since the last update.

        Returns:
            The violations, and for each whether it was measured; None before the first batch.
        """

    @abstractmethod
    def clear(self) -> None:
        """Forget the violations since the last update."""

    @abstractmethod
    def amount_recorded(self) -> Tensor | None:
        """Return how much was recorded since the last update.

        Returns:
            A number that is 0 if there was nothing; None before the first batch.
        """

    def check_recorded(self) -> None:
        """Refuse an update on held-out rows if there were none.

        Raises:
            RuntimeError: ``observe_held_out`` was not called since the last update.
        """
        amount = self.amount_recorded()
        if self.held_out and self.multiplier is not None and (amount is None or is_false(amount)):
            raise InvalidStateError(
                "update_on='held_out' moves the multipliers on held-out rows, but there were none since the last "
                "update: call observe_held_out(logits, target) before update(); fit does, with the validation set"
            )

    def update(self, penalty: Tensor) -> None:
        """Update the multipliers from the violation since the last update.

        Args:
            penalty: The penalty factor mu.
        """
        self.check_recorded()
        recorded = self.recorded()
        if recorded is None or self.multiplier is None:
            return
        violation, measured = recorded
        factor = penalty.to(self.multiplier.dtype)
        violation = violation.to(self.multiplier.dtype)
        if self.is_equality:
            moved = self.multiplier + factor * violation
        else:
            moved = next_multiplier(violation, self.multiplier, factor)
        self.multiplier.copy_(torch.where(measured, moved, self.multiplier))
        self.clear()
