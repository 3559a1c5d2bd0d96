"""Checks of the settings of a training before it starts, and of a longer run before it is continued."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from metricfit.errors import InvalidValueError, quote
from metricfit.losses.calling import accepted_arguments, refuse_multipliers
from metricfit.train.stage import MakeOptimizer, Objective, Schedule, Stage

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


def check_stages(stages: Sequence[Stage], validated: bool, weighted: bool) -> None:
    """Refuse settings that cannot work together."""
    if any(stage.scheduler_step for stage in stages) and not any(stage.scheduler for stage in stages):
        raise InvalidValueError(
            "scheduler_step needs a scheduler; pass scheduler= as well, such as "
            " functools.partial(OneCycleLR, max_lr=0.01)"
        )
    for stage in stages:
        measured = [monitor.name for monitor in stage.monitors if not monitor.is_loss]
        if not validated and (stage.patience is not None or measured):
            setting = "patience" if stage.patience is not None else f"monitor={measured[0]!r}"
            raise InvalidValueError(f"{setting} needs a validation set: pass validation=(X, y)")
        if not validated and Objective(stage.objective).updates_on_held_out:
            raise InvalidValueError(
                "update_on='held_out' moves the multipliers on the validation set: pass validation=(X, y), or make the "
                "AugmentedLagrangian with update_on='train'"
            )
        if not hasattr(stage.objective, "update"):
            name = type(stage.objective).__name__
            refuse_multipliers(stage.objective, name, "Make the AugmentedLagrangian the objective itself")
        if weighted and not accepted_arguments(stage.objective).weight:
            raise InvalidValueError(
                f"weights were given, but the objective {type(stage.objective).__name__} takes none; use one of "
                "metricfit.losses, such as WeightedBCELoss() for cross-entropy"
            )


def check_learning(model: nn.Module, stages: Sequence[Stage], validated: bool, steps: int | None) -> None:
    """Refuse a model without trainable weights, and optimisers and schedulers that cannot be used.

    Args:
        model: The model.
        stages: The stages.
        validated: Whether there is a validation set.
        steps: The number of optimiser steps per epoch, if it is known.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidValueError("the model has no weights to train: all are frozen; set requires_grad_(True) on some")
    for stage in stages:
        make: MakeOptimizer = stage.optimizer or torch.optim.AdamW
        optimizer = make(model.parameters(), lr=stage.lr)
        if isinstance(optimizer, torch.optim.LBFGS):
            raise InvalidValueError(
                "LBFGS computes the loss several times per step, which fit does not support; use AdamW or SGD"
            )
        total = None if steps is None or stage.epochs is None else steps * stage.epochs
        schedule = Schedule(stage.scheduler, stage.scheduler_step, optimizer, total)
        if steps is not None and stage.epochs is not None:
            schedule.check_length(stage.epochs, steps)
        scheduler = schedule.scheduler
        if not isinstance(scheduler, ReduceLROnPlateau):
            continue
        if not validated:
            raise InvalidValueError("ReduceLROnPlateau needs a monitored value: pass validation=(X, y)")
        mode = "min" if stage.watched.minimize else "max"
        if scheduler.mode != mode:
            raise InvalidValueError(f"ReduceLROnPlateau needs mode={mode!r} if {stage.watched.name} is monitored")


def check_numbers(accumulate: int, clip: float | None, ema: float | None) -> None:
    """Refuse numbers out of range."""
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
        raise InvalidValueError(
            f"accumulate is the number of parts of a batch, an integer of at least 1; got {accumulate!r}"
        )
    if clip is not None and not clip > 0:
        raise InvalidValueError(f"clip must be above 0, the maximum norm of the gradient; got {clip}")
    if ema is not None and not (isinstance(ema, Real) and 0 < float(ema) < 1):
        raise InvalidValueError(
            f"ema is the decay of the average of the weights, above 0 and below 1, such as 0.999; got {quote(ema)}"
        )


def list_learning_rates(lr: Any, members: int) -> list[float]:
    """Return each member's learning rate, from one rate for all, or a list, an array or a tensor of rates."""
    plain = lr.tolist() if hasattr(lr, "tolist") else lr
    rates = [float(rate) for rate in plain] if isinstance(plain, Iterable) else [float(plain)] * members
    for member, rate in enumerate(rates):
        if not (math.isfinite(rate) and rate > 0):
            raise InvalidValueError(f"lr must be finite and above 0, got {rate} for member {member}")
    return rates


def check_members(
    models: Sequence[nn.Module],
    rates: Sequence[float],
    seeds: Sequence[int],
    splits: Sequence[Any] | None,
    validation: Any,
) -> None:
    """Refuse members that are not distinct models of one architecture, and settings that are not one per member."""
    if not models:
        raise InvalidValueError("a population needs at least one model")
    if len({id(model) for model in models}) < len(models):
        raise InvalidValueError("the same model occurs several times among the members; make a new model for each")
    for name, setting in (("lr", rates), ("seeds", seeds), ("splits", splits)):
        if setting is not None and len(setting) != len(models):
            raise InvalidValueError(f"there are {len(models)} models, but {name} has {len(setting)} entries")
    if splits is not None and validation is not None:
        raise InvalidValueError(
            "with splits each member has its own validation samples; give either splits or validation"
        )
    first = _describe_architecture(models[0])
    for member, model in enumerate(models):
        for part, first_part in zip_longest(_describe_architecture(model), first, fillvalue="nothing"):
            if part != first_part:
                raise InvalidValueError(
                    f"the members must have one architecture, but member {member} has {part} where member 0 has "
                    f"{first_part}; train them one by one with fit"
                )


def _describe_architecture(model: nn.Module) -> list[str]:
    """Describe what all members must have in common: weights with shapes, which of them are frozen, and layers."""
    trainable = {name for name, weight in model.named_parameters() if weight.requires_grad}
    weights = [
        f"{name} of shape {tuple(weight.shape)}, {weight.dtype}{'' if name in trainable else ', frozen'}"
        for name, weight in model.state_dict().items()
    ]
    return [*weights, *(line.strip() for line in repr(model).splitlines())]


def check_splits(parts: Sequence[Sequence[Tensor]], samples: int) -> None:
    """Refuse splits that are not pairs of training and validation samples, given by their numbers."""
    for member, split in enumerate(parts):
        if len(split) != 2:
            raise InvalidValueError(
                f"splits needs a pair (training, validation) per member; member {member} has {len(split)} parts"
            )
        for name, numbers in zip(("training", "validation"), split, strict=True):
            if not len(numbers):
                raise InvalidValueError(f"splits: member {member} has no {name} samples")
            if numbers.dim() != 1 or int(numbers.min()) < 0 or int(numbers.max()) >= samples:
                raise InvalidValueError(
                    f"splits: member {member}'s {name} samples must be numbers from 0 to {samples - 1}, got shape "
                    f"{tuple(numbers.shape)} with values from {int(numbers.min())} to {int(numbers.max())}"
                )


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
