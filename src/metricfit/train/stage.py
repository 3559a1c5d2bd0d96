"""A stage of training: what is minimised, for how long, and what is watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from metricfit.constraints import AugmentedLagrangian, RequirementConstraint
from metricfit.core.steps import Annealed
from metricfit.core.tasks import TASKS
from metricfit.core.types import Task
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.calling import accepted_arguments, call_loss
from metricfit.metrics.metric import Metric
from metricfit.train.data.batches import Batch
from metricfit.train.engine.schedules import STEPS, MakeScheduler, SchedulerStep
from metricfit.train.monitor import Monitor, as_monitor

MakeOptimizer = Callable[..., Optimizer]

DEFAULT_LR = 1e-3


@dataclass(frozen=True)
class Stage:
    """One stage; what is None is taken from the arguments of ``fit``.

    Args:
        objective: the loss to minimise.
        epochs: at most so many.
        lr: the learning rate.
        monitor: what is monitored on the validation set: "loss", a metric, "best f1", or a Monitor. The weights where
            it was best are kept, and ``patience`` counts from there. "loss" is the objective by a measure that is the
            same in all epochs: without the constraints' terms of an AugmentedLagrangian, and with Annealed steps at
            their end, which is the form nearest to the metric. Where the objective has requirements, epochs that meet
            them on the validation set are better than those that do not, whatever is monitored.
        patience: stop after so many epochs without a better value.
        optimizer: called as ``optimizer(parameters, lr=lr)``.
        scheduler: called as ``scheduler(optimizer)``, or, if it has a parameter ``total_steps``, as
            ``scheduler(optimizer, total_steps=n)`` with the number of optimiser steps of the stage.
        scheduler_step: "epoch" or "batch", how often the scheduler moves; by default per batch for OneCycleLR and
            CyclicLR, and per epoch for all others.
        name: what the history calls the stage.
    """

    objective: nn.Module
    epochs: int | None = None
    lr: float | None = None
    monitor: str | Metric | Monitor | None = None
    patience: int | None = None
    optimizer: MakeOptimizer | None = None
    scheduler: MakeScheduler | None = None
    scheduler_step: SchedulerStep | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.objective, nn.Module):
            raise InvalidTypeError(
                f"a stage's objective is a loss module, got {quote(self.objective)}{_uncalled(self.objective)}"
            )
        if self.epochs is not None and (not isinstance(self.epochs, Integral) or self.epochs < 1):
            raise InvalidValueError(f"epochs must be at least 1, a whole number, got {self.epochs}")
        if isinstance(self.optimizer, Optimizer):
            raise InvalidTypeError(
                "optimizer is called as optimizer(parameters, lr=lr): give the class, such as torch.optim.AdamW, or a "
                f"function, not a {type(self.optimizer).__name__} that is made already"
            )
        if isinstance(self.scheduler, LRScheduler):
            raise InvalidTypeError(
                "scheduler is called as scheduler(optimizer): give a function, such as lambda optimizer: "
                f"ExponentialLR(optimizer, 0.9), not a {type(self.scheduler).__name__} that is made already"
            )
        if self.scheduler_step is not None and self.scheduler_step not in STEPS:
            raise InvalidValueError(f"scheduler_step is 'epoch', 'batch' or None, got {quote(self.scheduler_step)}")
        if self.patience is not None and self.patience < 1:
            raise InvalidValueError(f"patience must be at least 1 epoch, got {self.patience}")
        if self.lr is not None and not self.lr > 0:
            raise InvalidValueError(f"lr must be above 0, got {self.lr}")

    def filled(self, **usual: Any) -> Stage:
        """The stage with what it left open taken from these."""
        return replace(self, **{key: value for key, value in usual.items() if getattr(self, key) is None})

    @property
    def watched(self) -> Monitor:
        """The monitor, parsed; what it ignores and its task are by default those of the objective."""
        monitor = as_monitor("loss" if self.monitor is None else self.monitor)
        if monitor.is_loss:
            return monitor
        ignored, tasks = ignored_by(self.objective), tasks_of(self.objective)
        if monitor.ignore_index is None and len(ignored) == 1:
            monitor = replace(monitor, ignore_index=ignored.pop())
        if monitor.task is None and len(tasks) == 1:
            monitor = replace(monitor, task=tasks.pop())
        return monitor


def tasks_of(objective: nn.Module) -> set[Task]:
    """The tasks that the parts of an objective were given."""
    given = (getattr(module, "task", None) for module in objective.modules())
    return {task for task in given if task in TASKS}


def ignored_by(*objectives: nn.Module) -> set[int]:
    """The labels that count for nothing in these objectives, or in a part of them."""
    modules = (module for objective in objectives for module in objective.modules())
    return {given for given in (getattr(module, "ignore_index", None) for module in modules) if given is not None}


def without_ignored(y: Tensor, stages: Iterable[Stage]) -> Tensor:
    """The labels with -1, which is no class, for those that the stages' objectives ignore."""
    ignored = ignored_by(*(stage.objective for stage in stages))
    if not ignored or y.dtype == torch.bool:
        return y
    labels = y if y.is_floating_point() else y.long()
    for label in ignored:
        labels = labels.masked_fill(labels == label, -1)
    return labels


def stages_of(objective: nn.Module | Stage | Iterable[Stage], **usual: Any) -> list[Stage]:
    """What fit was given as objective, as a list of stages with nothing left open."""
    if isinstance(objective, nn.Module):
        given = [Stage(objective)]
    elif isinstance(objective, Stage):
        given = [objective]
    else:
        given = list(objective) if isinstance(objective, Iterable) and not isinstance(objective, (type, str)) else []
    if not given or not all(isinstance(each, Stage) for each in given):
        raise InvalidTypeError(
            f"the objective is a loss, a Stage or a list of Stages such as recipes.mix('f1'); got {quote(objective)}"
            f"{_uncalled(objective)}"
        )
    filled = [each.filled(**usual, name=f"stage {at}") for at, each in enumerate(given)]
    names = [str(each.name) for each in filled]
    before = [names[:at].count(name) for at, name in enumerate(names)]  # the history tells stages apart by their names
    return [
        replace(each, name=f"{name} ({times + 1})") if times else each
        for each, name, times in zip(filled, names, before, strict=True)
    ]


def _uncalled(given: Any) -> str:
    """What to do about a class, a recipe or a function in an objective's place."""
    if isinstance(given, type) or getattr(given, "__module__", None) == "metricfit.train.recipes":
        return f": call it, {given.__name__}(...)"
    return ": make it a module, with forward(logits, target)" if callable(given) else ""


class Objective:
    """A loss called on a batch, with the index, the group and the weight if it accepts them."""

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss
        self.accepts = accepted_arguments(loss)

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of a batch."""
        return self.of(self.loss, logits, batch)

    def of(self, call: Callable[..., Tensor], logits: Tensor, batch: Batch) -> Tensor:
        """The loss by any callable of its signature, of logits and labels in matching shapes."""
        logits, y = matched(logits, batch.y)
        if batch.weight is not None and not self.accepts.weight:
            raise InvalidValueError(f"weights were given, but {type(self.loss).__name__} takes none")
        return call_loss(call, logits, y, self.accepts, weight=batch.weight, index=batch.index, group=batch.group)

    def update(self) -> None:
        """At the end of an epoch: move multipliers."""
        if hasattr(self.loss, "update"):
            self.loss.update()  # type: ignore[operator]

    def observe(self, value: Tensor) -> None:
        """After validation, with a value of which higher is better."""
        if hasattr(self.loss, "observe"):
            self.loss.observe(value)  # type: ignore[operator]

    @property
    def comparison(self) -> str:
        """The name of the loss's method by which epochs are compared.

        The terms of an augmented Lagrangian change with its multipliers, so its objective alone is compared.
        """
        return "unconstrained" if isinstance(self.loss, AugmentedLagrangian) else "forward"

    @contextmanager
    def finally_annealed(self) -> Iterator[None]:
        """With all annealed steps at their end, so that losses of different epochs can be compared."""
        steps = [self.loss.get_submodule(name) for name in self.annealed()]
        before = [step.a.clone() for step in steps]  # type: ignore[operator]
        for step in steps:
            step.advance(1.0)  # type: ignore[operator]
        try:
            yield
        finally:
            for step, a in zip(steps, before, strict=True):
                step.a.copy_(a)  # type: ignore[operator]

    def comparable(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of a set of samples, by a measure that is the same in all epochs of a stage."""
        with self.finally_annealed():
            call = getattr(self.loss, self.comparison) if self.comparison != "forward" else self.loss
            return self.of(call, logits, batch)

    def requirements(self) -> list[RequirementConstraint]:
        """The requirements that the loss is minimised under, which can be measured on any set of samples."""
        if not isinstance(self.loss, AugmentedLagrangian):
            return []
        return [each for each in self.loss.constraints if isinstance(each, RequirementConstraint)]

    def annealed(self) -> list[str]:
        """The names of steps that move from one form to another during training."""
        return [name for name, module in self.loss.named_modules() if isinstance(module, Annealed)]


def matched(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Shapes and types as torch's own losses ask for them.

    One column of logits, or of labels, as a row; yes-or-no labels of the logits' type; class numbers as int64.
    """
    if logits.dim() == y.dim() + 1 and logits.shape[-1] == 1:
        logits = logits.squeeze(-1)
    elif y.dim() == logits.dim() + 1 and y.shape[-1] == 1:
        y = y.squeeze(-1)
    if not y.is_floating_point():
        yes_or_no = logits.dtype if logits.is_floating_point() else torch.get_default_dtype()
        y = y.to(yes_or_no if logits.shape == y.shape else torch.int64)
    return logits, y
