"""Checks of the settings of a training before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from metricfit.errors import InvalidValueError, quote
from metricfit.losses.calling import accepted_arguments, refuse_multipliers
from metricfit.train.engine.schedules import Schedule
from metricfit.train.stage import MakeOptimizer, Objective, Stage


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
