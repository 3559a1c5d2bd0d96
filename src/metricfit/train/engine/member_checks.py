"""Checks before members are trained as one: that this is possible, and that no member affects another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm as InstanceNorm

from metricfit.errors import InvalidValueError
from metricfit.train.data.order import Order
from metricfit.train.engine.schedules import Schedule
from metricfit.train.stage import Stage

ALONE = "train them one by one with fit"

# These optimisers move every weight by its own gradient alone, and in proportion to the learning rate.
PROPORTIONAL = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.RMSprop,
)
ELEMENTWISE = (*PROPORTIONAL, torch.optim.Rprop, torch.optim.ASGD)


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
                    f"{first_part}; {ALONE}"
                )
    _check_ties(models[0])


def _describe_architecture(model: nn.Module) -> list[str]:
    """Describe what all members must have in common: weights with shapes, which of them are frozen, and layers."""
    trainable = {name for name, weight in model.named_parameters() if weight.requires_grad}
    weights = [
        f"{name} of shape {tuple(weight.shape)}, {weight.dtype}{'' if name in trainable else ', frozen'}"
        for name, weight in model.state_dict().items()
    ]
    return [*weights, *(line.strip() for line in repr(model).splitlines())]


def _check_ties(model: nn.Module) -> None:
    """Refuse tied weights, which stacking would separate."""
    names: dict[int, str] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if id(weight) in names:
            raise InvalidValueError(
                f"{names[id(weight)]} and {name} are the same weight, but a population would train them as two; {ALONE}"
            )
        names[id(weight)] = name


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


def check_norms(model: nn.Module, labels: Sequence[Tensor], order: Order, steps: int) -> None:
    """Refuse norms with statistics of the batch if batches differ in length, because they would see the padding.

    The lengths depend only on the number of samples per class, so it is enough to check one epoch.
    """
    norms = [
        type(module).__name__
        for module in model.modules()
        if isinstance(module, BatchNorm) or (isinstance(module, InstanceNorm) and module.track_running_stats)
    ]
    if not norms:
        return
    lengths = [[len(batch) for batch in order.batches(member, 0, 0, 0, steps)] for member in labels]
    for step, sizes in enumerate(zip(*lengths, strict=True)):
        if min(sizes) < max(sizes):
            raise InvalidValueError(
                f"the members' batches differ in length, {min(sizes)} to {max(sizes)} samples in step {step}. Shorter "
                f"batches are padded, and {norms[0]} would see the padding; give every member the same number of "
                "samples (and, with stratified or oversample, of samples per class), use another normalisation, or "
                f"{ALONE}"
            )


def check_optimizers(model: nn.Module, stages: Sequence[Stage], rates: Sequence[Sequence[float]], steps: int) -> None:
    """Refuse optimisers with which members would affect each other or could not have their own learning rates.

    Args:
        model: One of the members.
        stages: The stages.
        rates: For each stage, the members' learning rates.
        steps: The number of optimiser steps per epoch.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for stage, lr in zip(stages, rates, strict=True):
        optimizer = (stage.optimizer or torch.optim.AdamW)(weights, lr=lr[0])
        kind = type(optimizer).__name__
        if type(optimizer) not in ELEMENTWISE:  # not isinstance: a subclass may scale by the norm of a whole layer
            known = ", ".join(known_class.__name__ for known_class in ELEMENTWISE)
            raise InvalidValueError(
                f"{kind} is not known to move every weight by its own gradient alone, as {known} of torch.optim do, "
                f"so the members might affect each other; use one of those, or {ALONE}"
            )
        schedule = Schedule(stage.scheduler, stage.scheduler_step, optimizer, steps * (stage.epochs or 1))
        schedule.check_length(stage.epochs or 1, steps)
        if schedule.waits:
            raise InvalidValueError(
                f"ReduceLROnPlateau follows the monitored value of one model, but each member has its own; {ALONE}"
            )
        if min(lr) < max(lr) and type(optimizer) not in PROPORTIONAL:
            raise InvalidValueError(
                f"{kind} does not move in proportion to its learning rate, so members cannot have their own "
                f"rates; give all members the same lr, use another optimiser, or {ALONE}"
            )
