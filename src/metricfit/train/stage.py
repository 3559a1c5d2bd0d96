"""A stage of training: the loss, the number of epochs, the monitor, and how they are used."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from metricfit.constraints import AugmentedLagrangian, RequirementConstraint
from metricfit.core.steps import Annealed
from metricfit.core.tasks import TASKS
from metricfit.core.types import Task
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.base import takes_probabilities
from metricfit.losses.calling import accepted_arguments, call_loss
from metricfit.train.data.batches import Batch
from metricfit.train.monitor import Monitor, Monitored, make_monitors

MakeOptimizer = Callable[..., Optimizer]

DEFAULT_LR = 1e-3


@dataclass(frozen=True)
class Stage:
    """One stage of training. Settings that are None are taken from the arguments of ``fit``.

    Args:
        objective: The loss to minimise.
        epochs: Maximum number of epochs.
        lr: The learning rate.
        monitor: The monitored value on the validation set: "loss", a metric, "best f1", or a Monitor. The weights of
            the best epoch are kept, and ``patience`` counts from there. "loss" is measured in the same way in all
            epochs: without the constraint terms of an AugmentedLagrangian, and with Annealed steps at their end, where
            they are closest to the metric. If the objective has requirements, epochs that meet them on the validation
            set are better than epochs that do not, whatever is monitored. Of a list, the first monitor decides all
            this; the others are only measured, and each has a column of its name in the history.
        patience: Number of epochs without a better value after which the stage stops.
        optimizer: Called as ``optimizer(parameters, lr=lr)``.
        scheduler: Called as ``scheduler(optimizer)``, or, if it has a parameter ``total_steps``, as
            ``scheduler(optimizer, total_steps=n)`` with the number of optimiser steps of the stage.
        scheduler_step: "epoch" or "batch", how often the scheduler moves. By default once per batch for OneCycleLR and
            CyclicLR, and once per epoch for all others.
        name: The name of the stage in the history.

    Raises:
        TypeError: The objective is not a module, or the optimiser or scheduler is an object instead of a function.
        ValueError: A number is out of range.

    Example:
        >>> Stage(nn.BCEWithLogitsLoss(), epochs=20, lr=3e-4, name="warm-up").epochs
        20
    """

    objective: nn.Module
    epochs: int | None = None
    lr: float | None = None
    monitor: Monitored | None = None
    patience: int | None = None
    optimizer: MakeOptimizer | None = None
    scheduler: MakeScheduler | None = None
    scheduler_step: SchedulerStep | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.objective, nn.Module):
            raise InvalidTypeError(
                f"a stage's objective is a loss module, got {quote(self.objective)}{_suggest_call(self.objective)}"
            )
        if self.epochs is not None and (not isinstance(self.epochs, Integral) or self.epochs < 1):
            raise InvalidValueError(f"epochs must be an integer of at least 1, got {self.epochs}")
        if isinstance(self.optimizer, Optimizer):
            raise InvalidTypeError(
                "optimizer is called as optimizer(parameters, lr=lr): give the class, such as torch.optim.AdamW, or a "
                f"function, not a finished {type(self.optimizer).__name__}"
            )
        if isinstance(self.scheduler, LRScheduler):
            raise InvalidTypeError(
                "scheduler is called as scheduler(optimizer): give a function, such as lambda optimizer: "
                f"ExponentialLR(optimizer, 0.9), not a finished {type(self.scheduler).__name__}"
            )
        if self.scheduler_step is not None and self.scheduler_step not in STEPS:
            raise InvalidValueError(f"scheduler_step is 'epoch', 'batch' or None, got {quote(self.scheduler_step)}")
        if self.patience is not None and self.patience < 1:
            raise InvalidValueError(f"patience must be at least 1 epoch, got {self.patience}")
        if self.lr is not None and not self.lr > 0:
            raise InvalidValueError(f"lr must be above 0, got {self.lr}")

    def filled(self, **defaults: Any) -> Stage:
        """Return the stage with these settings wherever its own are None.

        Args:
            defaults: Settings of a stage, by name.

        Returns:
            A new stage.
        """
        return replace(self, **{key: value for key, value in defaults.items() if getattr(self, key) is None})

    @property
    def watched(self) -> Monitor:
        """The monitor that decides which epoch is best."""
        return self.monitors[0]

    @cached_property
    def monitors(self) -> tuple[Monitor, ...]:
        """All monitors, the one that decides first."""
        return tuple(map(self._fill_monitor, make_monitors("loss" if self.monitor is None else self.monitor)))

    def _fill_monitor(self, monitor: Monitor) -> Monitor:
        """Return the monitor; what it ignores, its task and its kind of input are by default the objective's."""
        if monitor.is_loss:
            return monitor
        ignored, tasks = find_ignored_labels(self.objective), find_tasks(self.objective)
        if monitor.ignore_index is None and len(ignored) == 1:
            monitor = replace(monitor, ignore_index=ignored.pop())
        if monitor.task is None and len(tasks) == 1:
            monitor = replace(monitor, task=tasks.pop())
        if takes_probabilities(self.objective):
            monitor = replace(monitor, from_probabilities=True)
        return monitor


def find_tasks(objective: nn.Module) -> set[Task]:
    """Return the tasks that the parts of an objective name."""
    tasks = (getattr(module, "task", None) for module in objective.modules())
    return {task for task in tasks if task in TASKS}


def find_ignored_labels(*objectives: nn.Module) -> set[int]:
    """Return the labels that these objectives, or parts of them, ignore."""
    modules = (module for objective in objectives for module in objective.modules())
    labels = (getattr(module, "ignore_index", None) for module in modules)
    return {label for label in labels if label is not None}


def mask_ignored_labels(y: Tensor, stages: Iterable[Stage]) -> Tensor:
    """Replace the labels that the stages' objectives ignore by -1, which is no class."""
    ignored = find_ignored_labels(*(stage.objective for stage in stages))
    if not ignored or y.dtype == torch.bool:
        return y
    labels = y if y.is_floating_point() else y.long()
    for label in ignored:
        labels = labels.masked_fill(labels == label, -1)
    return labels


def make_stages(objective: nn.Module | Stage | Iterable[Stage], **defaults: Any) -> list[Stage]:
    """Return the objective of ``fit`` as a list of stages with these defaults and distinct names."""
    if isinstance(objective, nn.Module):
        stages = [Stage(objective)]
    elif isinstance(objective, Stage):
        stages = [objective]
    else:
        stages = list(objective) if isinstance(objective, Iterable) and not isinstance(objective, (type, str)) else []
    if not stages or not all(isinstance(stage, Stage) for stage in stages):
        raise InvalidTypeError(
            f"the objective is a loss, a Stage or a list of Stages such as recipes.mix('f1'); got {quote(objective)}"
            f"{_suggest_call(objective)}"
        )
    filled = [stage.filled(**defaults, name=f"stage {number}") for number, stage in enumerate(stages)]
    names = [str(stage.name) for stage in filled]
    earlier = [names[:number].count(name) for number, name in enumerate(names)]
    return [
        replace(stage, name=f"{name} ({times + 1})") if times else stage
        for stage, name, times in zip(filled, names, earlier, strict=True)
    ]


def _suggest_call(objective: Any) -> str:
    """Return the remedy for a class, a recipe or a function that was passed as objective."""
    if isinstance(objective, type) or getattr(objective, "__module__", None) == "metricfit.train.recipes":
        return f": call it, {objective.__name__}(...)"
    return ": make it a module, with forward(logits, target)" if callable(objective) else ""


class Objective:
    """A loss called on a batch, with the index, the group and the weight if it accepts them."""

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss
        self.accepts = accepted_arguments(loss)

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        return self.call(self.loss, logits, batch)

    def call(self, loss: Callable[..., Tensor], logits: Tensor, batch: Batch) -> Tensor:
        """Call the loss, or another callable of its signature, with logits and labels in matching shapes."""
        logits, y = match_shapes(logits, batch.y)
        if batch.weight is not None and not self.accepts.weight:
            raise InvalidValueError(f"weights were given, but {type(self.loss).__name__} takes none")
        return call_loss(loss, logits, y, self.accepts, weight=batch.weight, index=batch.index, group=batch.group)

    @property
    def updates_on_held_out(self) -> bool:
        """Whether multipliers move on the validation set."""
        return isinstance(self.loss, AugmentedLagrangian) and self.loss.update_on == "held_out"

    def observe_held_out(self, logits: Tensor, batch: Batch) -> None:
        """Pass the outputs for the validation set to an augmented Lagrangian, before ``update``."""
        assert isinstance(self.loss, AugmentedLagrangian)
        logits, y = match_shapes(logits, batch.y)
        self.loss.observe_held_out(logits, y, batch.weight, group=batch.group)

    @contextmanager
    def annealed_to_end(self) -> Iterator[None]:
        """Put all annealed steps at their end for a while, so that losses of different epochs can be compared."""
        steps = self.annealed()
        positions = [step.a.clone() for step in steps]
        for step in steps:
            step.advance(1.0)
        try:
            yield
        finally:
            for step, position in zip(steps, positions, strict=True):
                step.a.copy_(position)

    def comparable(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of samples in a form that is the same in all epochs of a stage.

        The constraint terms of an augmented Lagrangian change with its multipliers, so they are left out.
        """
        with self.annealed_to_end():
            loss = self.loss.unconstrained if isinstance(self.loss, AugmentedLagrangian) else self.loss
            return self.call(loss, logits, batch)

    def requirements(self) -> list[RequirementConstraint]:
        """Return the requirements of the loss, which can be measured on any samples."""
        if not isinstance(self.loss, AugmentedLagrangian):
            return []
        return [constraint for constraint in self.loss.constraints if isinstance(constraint, RequirementConstraint)]

    def annealed(self) -> list[Annealed]:
        """Return the annealed steps."""
        return [module for module in self.loss.modules() if isinstance(module, Annealed)]


def match_shapes(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and labels in the shapes and types that torch's losses expect.

    A single column is squeezed, binary labels take the logits' type, and class numbers become int64.
    """
    if logits.dim() == y.dim() + 1 and logits.shape[-1] == 1:
        logits = logits.squeeze(-1)
    elif y.dim() == logits.dim() + 1 and y.shape[-1] == 1:
        y = y.squeeze(-1)
    if not y.is_floating_point():
        binary_dtype = logits.dtype if logits.is_floating_point() else torch.get_default_dtype()
        y = y.to(binary_dtype if logits.shape == y.shape else torch.int64)
    return logits, y


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

    def batch_ended(self) -> None:
        """Move after an optimiser step.

        A DataLoader may give more batches than it announced. A scheduler that was made for the announced number then
        keeps its last rate.
        """
        if self.scheduler is not None and self.per_batch and self.scheduler.last_epoch < self.last_step:
            self.scheduler.step()

    def epoch_ended(self) -> None:
        """Move at the end of an epoch."""
        if self.scheduler is not None and not (self.per_batch or self.waits):
            self.scheduler.step()

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
