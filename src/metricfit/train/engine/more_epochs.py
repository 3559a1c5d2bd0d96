"""More epochs for a run that was started with fewer: refused where the longer run would silently be another one.

Without such a refusal, a run that is continued ends with the weights of a run that had all epochs from the start.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from metricfit.errors import InvalidValueError
from metricfit.train.engine.schedules import Schedule
from metricfit.train.stage import MakeOptimizer, Objective, Stage

#: Schedulers whose rates do not depend on the length of a run.
ENDLESS = (
    lr_scheduler.ReduceLROnPlateau,
    lr_scheduler.ExponentialLR,
    lr_scheduler.StepLR,
    lr_scheduler.MultiStepLR,
    lr_scheduler.ConstantLR,
    lr_scheduler.LinearLR,
    lr_scheduler.CyclicLR,
    lr_scheduler.CosineAnnealingWarmRestarts,
)
#: Where the others keep the number of scheduler steps that they are made for.
LENGTHS: dict[type, str] = {
    lr_scheduler.OneCycleLR: "total_steps",
    lr_scheduler.CosineAnnealingLR: "T_max",
    lr_scheduler.PolynomialLR: "total_iters",
}
_REMEDY = "Start a new run with the trained model in another checkpoint_dir, with a schedule of its own"


def check_more_epochs(model: nn.Module, stage: Stage, before: int, steps_per_epoch: int | None) -> None:
    """Refuse more epochs if the epochs before them would have been different in a longer run.

    Args:
        model: The model, for a trial of the optimiser and its schedule.
        stage: The last stage, with its new number of epochs.
        before: Its number of epochs so far.
        steps_per_epoch: The number of optimiser steps per epoch, if it is known.

    Raises:
        InvalidValueError: The learning rate or an annealed step depends on the length of the stage.
    """
    assert stage.epochs is not None
    if Objective(stage.objective).annealed():
        raise InvalidValueError(
            f"this run was made for {before} epochs, over which its Annealed step moves from start to end; more epochs "
            "would move it back. Start a new run with the trained model in another checkpoint_dir, with the end of "
            "the Annealed step as step"
        )
    if stage.scheduler is None:
        return
    make: MakeOptimizer = stage.optimizer or torch.optim.AdamW
    optimizer = make(model.parameters(), lr=stage.lr)
    total = None if steps_per_epoch is None else steps_per_epoch * stage.epochs
    schedule = Schedule(stage.scheduler, stage.scheduler_step, optimizer, total)
    assert schedule.scheduler is not None
    needed = stage.epochs if not schedule.per_batch else math.inf if total is None else total
    name = type(schedule.scheduler).__name__
    if schedule.last_step < math.inf:
        raise InvalidValueError(
            f"{name} was made for the steps of {before} epochs; with {stage.epochs} epochs its rates would have been "
            f"others from the start. {_REMEDY}"
        )
    problem = _find_problem(schedule.scheduler, needed)
    if problem is not None:
        raise InvalidValueError(f"{problem}, and the run was made for {before} epochs. {_REMEDY}")


def _find_problem(scheduler: LRScheduler, needed: float) -> str | None:
    """Return why a scheduler cannot make this many steps as planned, or None."""
    kind = type(scheduler)
    if kind in ENDLESS:
        return None
    if kind in LENGTHS:
        length = getattr(scheduler, LENGTHS[kind])
        ends = length < needed
        return f"{kind.__name__} ends after {LENGTHS[kind]}={length} of {needed} scheduler steps" if ends else None
    if isinstance(scheduler, lr_scheduler.SequentialLR):
        starts = [0, *scheduler._milestones]
        lasts = zip(scheduler._schedulers, starts, [*starts[1:], needed], strict=True)
        return next(filter(None, (_find_problem(part, end - start) for part, start, end in lasts)), None)
    if isinstance(scheduler, lr_scheduler.ChainedScheduler):
        return next(filter(None, (_find_problem(part, needed) for part in scheduler._schedulers)), None)
    return f"it is not known whether the rates of {kind.__name__} depend on the number of epochs"
