"""The interface between the training loop and the models that it trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from metricfit.train.data.batches import Batch
from metricfit.train.engine.epoch_validation import Validation
from metricfit.train.monitor import Monitor
from metricfit.train.stage import Stage


class Learner(ABC):
    """Members that are trained together; a single model is one member.

    ``active`` lists the members that are still trained. The results of ``step`` and ``validate`` are in this order.
    """

    active: list[int]

    @abstractmethod
    def begin(self, stage: Stage, lr: Sequence[float], steps: int | None = None) -> None:
        """Start a stage with a new optimizer and the stage's objective; all members are active again.

        Args:
            stage: The stage.
            lr: Each member's learning rate.
            steps: Number of optimizer steps of the whole stage, if it is known.
        """

    @abstractmethod
    def step(self, batch: Batch) -> Tensor:
        """Make one optimizer step and return the members' losses, detached."""

    def notes(self, member: int) -> dict[str, Any]:
        """Return what a member's history says about the steps of an epoch, by the name of its column."""
        return {}

    @abstractmethod
    def end_epoch(self) -> None:
        """Update multipliers and learning rates."""

    @abstractmethod
    def anneal(self, fraction: float) -> None:
        """Set the annealed steps of the objective to the fraction of the stage that is done."""

    @abstractmethod
    def validate(self, monitors: Sequence[Monitor]) -> list[Validation]:
        """Return each active member's validation loss and monitored values."""

    @abstractmethod
    def observe(self, results: Sequence[Validation]) -> None:
        """Pass the validation results to the objectives and to schedulers that use them."""

    @abstractmethod
    def gradient_size(self) -> Tensor:
        """Return the sum of absolute gradients of each active member at the last step."""

    @abstractmethod
    def remember(self, members: Sequence[int]) -> None:
        """Keep the present weights of these members as their best."""

    @abstractmethod
    def outputs(self, members: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of these active members, each for its own inputs, in eval mode and without gradient."""

    @abstractmethod
    def retire(self, members: Sequence[int]) -> None:
        """Stop the training of these members."""

    @abstractmethod
    def recall(self) -> None:
        """Restore the best weights of all members that have them."""

    def finish(self) -> None:  # noqa: B027 (most learners train the models themselves)
        """Write the final weights into the models, at the end of training."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return everything that a checkpoint needs."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state; called after ``begin`` of the same stage."""
