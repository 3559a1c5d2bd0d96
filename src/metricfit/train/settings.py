"""How a run is made: value objects for steps, hardware and checkpoints, and checks that settings go together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from metricfit.errors import InvalidValueError, quote
from metricfit.losses.calling import accepted_arguments, refuse_multipliers
from metricfit.train.callbacks import Callback
from metricfit.train.data.batches import Batches
from metricfit.train.data.sources import ClassWeight
from metricfit.train.stage import MakeOptimizer, Objective, Schedule, Stage


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How optimiser steps are made.

    Args:
        accumulate: Number of parts in which a batch is computed. The gradient still refers to the whole batch, for any
            loss. Batch normalisation sees each part separately, and twice.
        clip: Maximum norm of the gradient.
        ema: Decay of an exponential moving average of the weights, such as 0.999, which is updated after every
            optimiser step. Validation uses the averaged weights, and so do callbacks, the best weights and the returned
            model; training itself does not change. The decay grows to this number, min(ema, (1 + n) / (10 + n)) after n
            steps of a stage. Running means and variances of batch normalisation are averaged too.

    Raises:
        ValueError: A number is out of range.

    Example:
        >>> Steps(clip=1.0, ema=0.999)
        Steps(accumulate=1, clip=1.0, ema=0.999)
    """

    accumulate: int = 1
    clip: float | None = None
    ema: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.accumulate, bool) or not isinstance(self.accumulate, int) or self.accumulate < 1:
            raise InvalidValueError(
                f"accumulate is the number of parts of a batch, an integer of at least 1; got {self.accumulate!r}"
            )
        if self.clip is not None and not self.clip > 0:
            raise InvalidValueError(f"clip must be above 0, the maximum norm of the gradient; got {self.clip}")
        if self.ema is not None and not (isinstance(self.ema, Real) and 0 < float(self.ema) < 1):
            raise InvalidValueError(
                "ema is the decay of the average of the weights, above 0 and below 1, such as 0.999; got "
                f"{quote(self.ema)}"
            )


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Where and in which precision ``fit`` computes; the settings of Fabric have its names.

    Args:
        accelerator: "cpu", "gpu" or "auto"; or one device, such as "cuda:1", on which this process trains alone.
        devices: Number of processes on this machine; under torchrun, the number that it started.
        num_nodes: Number of machines; under torchrun, the number that it runs on.
        strategy: The strategy of Fabric, such as "ddp".
        precision: The precision of Fabric, such as "bf16-mixed" or "16-mixed". By default the model's own type.
        channels_last: Whether images ``(n, c, h, w)`` and the weights of convolutions are laid out with their channels
            last while training. This is faster and changes results by rounding only. By default wherever the model has
            2-d convolutions. The returned model has the usual layout.
        workers: Number of processes that read a Dataset in the background; with 0 it is read between the steps.

    Example:
        >>> Hardware(devices=2, precision="bf16-mixed").strategy
        'auto'
    """

    accelerator: str = "auto"
    devices: int | str = 1
    num_nodes: int = 1
    strategy: str = "auto"
    precision: str | None = None
    channels_last: bool | None = None
    workers: int = 0


@dataclass(frozen=True)
class Checkpoints:
    """Where checkpoints are kept, and how often they are written.

    Args:
        folder: A folder for one run alone.
        every: Optimiser steps between checkpoints. By default there is one checkpoint per epoch.

    Raises:
        ValueError: ``every`` is below 1.

    Example:
        >>> Checkpoints("runs/1", every=500).every
        500
    """

    folder: str | os.PathLike[str]
    every: int | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise InvalidValueError(f"every must be a number of steps of at least 1, got {self.every}")


CheckpointDir = str | os.PathLike[str] | Checkpoints
#: The defaults of ``fit``.
PLAIN_STEPS, PLAIN_HARDWARE = Steps(), Hardware()


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a run needs besides its models and data.

    Attributes:
        stages: The stages, with all settings filled in.
        rates: For each stage, the learning rate of each member.
        seeds: The seed of the order of samples of each member.
        batches: How an epoch is divided into batches.
        class_weight: The weights of classes, if there are any.
        steps: How steps are made.
        checkpoints: Where checkpoints are kept, if they are.
        resume: Whether to continue the run in the folder.
        start_at_prior: As for ``fit``.
        callbacks: Called by the process that writes.
        precision: The precision that the user chose, if any.
        channels_last: Whether images are laid out with their channels last, which convolutions prefer.
        started: The time at which the call began.
    """

    stages: Sequence[Stage]
    rates: Sequence[Sequence[float]]
    seeds: Sequence[int]
    batches: Batches
    class_weight: ClassWeight | None
    steps: Steps
    checkpoints: Checkpoints | None
    resume: bool
    start_at_prior: bool | None
    callbacks: Sequence[Callback]
    precision: str | None
    channels_last: bool = False
    started: float


def as_checkpoints(checkpoint_dir: CheckpointDir | None, resume: bool) -> Checkpoints | None:
    """Return where a run keeps its checkpoints, or None."""
    if checkpoint_dir is None and resume:
        raise InvalidValueError("resume needs a folder: pass checkpoint_dir")
    return (
        checkpoint_dir
        if checkpoint_dir is None or isinstance(checkpoint_dir, Checkpoints)
        else Checkpoints(checkpoint_dir)
    )


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
        schedule = _try_schedule(model, stage, steps)
        if steps is not None and stage.epochs is not None:
            schedule.check_length(stage.epochs, steps)
        if not isinstance(schedule.scheduler, ReduceLROnPlateau):
            continue
        if not validated:
            raise InvalidValueError("ReduceLROnPlateau needs a monitored value: pass validation=(X, y)")
        mode = "min" if stage.watched.minimize else "max"
        if schedule.scheduler.mode != mode:
            raise InvalidValueError(f"ReduceLROnPlateau needs mode={mode!r} if {stage.watched.name} is monitored")


def _try_schedule(model: nn.Module, stage: Stage, steps: int | None) -> Schedule:
    """Return the schedule of a stage, with an optimiser that is made for a trial."""
    make: MakeOptimizer = stage.optimizer or torch.optim.AdamW
    optimizer = make(model.parameters(), lr=stage.lr)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidValueError(
            "LBFGS computes the loss several times per step, which fit does not support; use AdamW or SGD"
        )
    total = None if steps is None or stage.epochs is None else steps * stage.epochs
    return Schedule(stage.scheduler, stage.scheduler_step, optimizer, total)
