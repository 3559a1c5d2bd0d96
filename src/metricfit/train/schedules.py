"""Learning rate schedules: how they are made, and whether they move once per epoch or once per batch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Literal, get_args

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from metricfit.errors import InvalidValueError

MakeScheduler = Callable[..., LRScheduler]

#: How often a scheduler moves.
SchedulerStep = Literal["epoch", "batch"]
STEPS: tuple[SchedulerStep, ...] = get_args(SchedulerStep)


class Schedule:
    """A learning rate scheduler that knows when to move.

    Args:
        make: Called as ``make(optimizer)``, or as ``make(optimizer, total_steps=n)`` if it has a parameter of that name
            that is not set, with the number of optimiser steps of the stage at most; None for a constant rate.
        step: "epoch", "batch", or None: per batch for OneCycleLR and CyclicLR, per epoch for all others.
        optimizer: The optimiser.
        total_steps: The number of optimiser steps of the stage if it is not stopped early; None if it is not known.

    Raises:
        ValueError: The scheduler needs the number of steps, which is not known, or cannot move per batch.
    """

    def __init__(
        self, make: MakeScheduler | None, step: SchedulerStep | None, optimizer: Optimizer, total_steps: int | None
    ) -> None:
        steps = {} if make is None else _step_arguments(make, total_steps)
        self.scheduler = None if make is None else make(optimizer, **steps)
        self.last_step = steps.get("total_steps", math.inf) - 1
        by_default = "batch" if isinstance(self.scheduler, (OneCycleLR, CyclicLR)) else "epoch"
        self.per_batch = (step or by_default) == "batch"
        if self.waits and step == "batch":
            raise InvalidValueError(
                "ReduceLROnPlateau moves once per epoch, after validation; leave scheduler_step out"
            )

    def check_length(self, epochs: int, steps_per_epoch: int) -> None:
        """Refuse a OneCycleLR whose own number of steps is too small; torch would stop training with an error.

        Args:
            epochs: The maximum number of epochs of the stage.
            steps_per_epoch: The number of optimiser steps per epoch.

        Raises:
            ValueError: The scheduler ends before the stage does.
        """
        needed = epochs * steps_per_epoch if self.per_batch else epochs
        if isinstance(self.scheduler, OneCycleLR) and self.scheduler.total_steps < needed:
            steps = f"{epochs} epochs of {steps_per_epoch} batches" if self.per_batch else "one per epoch"
            raise InvalidValueError(
                f"OneCycleLR has total_steps={self.scheduler.total_steps}, but this stage has {needed} scheduler steps "
                f"({steps}); leave total_steps out, or set it to at least {needed}"
            )

    @property
    def waits(self) -> bool:
        """Whether the scheduler waits for the monitored value."""
        return isinstance(self.scheduler, ReduceLROnPlateau)

    def batch_ended(self) -> bool:
        """Move after an optimiser step, and return whether the rate may have changed.

        A DataLoader may give more batches than it announced. A scheduler that was made for the announced number then
        keeps its last rate.
        """
        if self.scheduler is None or not self.per_batch or self.scheduler.last_epoch >= self.last_step:
            return False
        self.scheduler.step()
        return True

    def epoch_ended(self) -> bool:
        """Move at the end of an epoch, and return whether the rate may have changed."""
        if self.scheduler is None or self.per_batch or self.waits:
            return False
        self.scheduler.step()
        return True

    def observe(self, value: float) -> None:
        """Pass the monitored value to a scheduler that waits for it."""
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(value)

    def state_dict(self) -> dict[str, Any] | None:
        """Return the scheduler's state, or None without a scheduler."""
        return None if self.scheduler is None else self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue from a state."""
        if self.scheduler is not None and state is not None:
            self.scheduler.load_state_dict(state)


def _step_arguments(make: MakeScheduler, total_steps: int | None) -> dict[str, int]:
    """Return the argument ``total_steps`` if the scheduler takes it and the user has not set its length."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}

    def is_open(name: str) -> bool:
        return name in parameters and parameters[name].default in (None, inspect.Parameter.empty)

    if not is_open("total_steps") or ("steps_per_epoch" in parameters and not is_open("steps_per_epoch")):
        return {}
    if total_steps is None:
        raise InvalidValueError(
            "the scheduler needs total_steps, but the DataLoader does not say how many batches it has; pass the number "
            "yourself, such as functools.partial(OneCycleLR, max_lr=0.01, total_steps=1000)"
        )
    return {"total_steps": total_steps}
