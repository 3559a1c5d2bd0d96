"""What is looked at before members are trained as one: that they can be, and that none will feel the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from metricfit.errors import InvalidValueError
from metricfit.train.data.order import Order
from metricfit.train.engine.schedules import Schedule
from metricfit.train.stage import Stage

ALONE = "train them one by one with fit"

# Every weight moves by its own gradient alone, and in proportion to the learning rate.
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


def rates_of(lr: Any, members: int) -> list[float]:
    """Each member's learning rate, of one for all or a list, an array or a tensor of them."""
    given = lr.tolist() if hasattr(lr, "tolist") else lr
    rates = [float(each) for each in given] if isinstance(given, Iterable) else [float(given)] * members
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
    """Refuse members that are not several models of one architecture, with settings for each."""
    if not models:
        raise InvalidValueError("a population needs at least one model")
    if len({id(model) for model in models}) < len(models):
        raise InvalidValueError("the members are one model several times; make each of them anew")
    for name, given in (("lr", rates), ("seeds", seeds), ("splits", splits)):
        if given is not None and len(given) != len(models):
            raise InvalidValueError(f"{len(models)} models, but {name} has {len(given)} entries")
    if splits is not None and validation is not None:
        raise InvalidValueError(
            "with splits each member has a validation part of its own; give one of splits and validation"
        )
    first = _architecture(models[0])
    for member, model in enumerate(models):
        for mine, theirs in zip_longest(_architecture(model), first, fillvalue="nothing"):
            if mine != theirs:
                raise InvalidValueError(
                    f"the members must be of one architecture, but member {member} has {mine} where member 0 has "
                    f"{theirs}; {ALONE}"
                )
    _check_ties(models[0])


def _architecture(model: nn.Module) -> list[str]:
    """What all members must have in common: the shapes of their weights, which of them learn, and the layers."""
    learning = {name for name, given in model.named_parameters() if given.requires_grad}
    weights = [
        f"{name} of shape {tuple(given.shape)}, {given.dtype}{'' if name in learning else ', frozen'}"
        for name, given in model.state_dict().items()
    ]
    return [*weights, *(line.strip() for line in repr(model).splitlines())]


def _check_ties(model: nn.Module) -> None:
    names: dict[int, str] = {}
    for name, given in model.named_parameters(remove_duplicate=False):
        if id(given) in names:
            raise InvalidValueError(
                f"{names[id(given)]} and {name} are one weight, and a population would train them as two; {ALONE}"
            )
        names[id(given)] = name


def check_splits(parts: Sequence[Sequence[Tensor]], samples: int) -> None:
    """Refuse splits that are not a training and a validation part of numbers into the data."""
    for member, split in enumerate(parts):
        if len(split) != 2:
            raise InvalidValueError(
                f"splits has for each member (training, validation); member {member} has {len(split)}"
            )
        for name, numbers in zip(("training", "validation"), split, strict=True):
            if not len(numbers):
                raise InvalidValueError(f"splits: member {member} has no {name} samples")
            if numbers.dim() != 1 or int(numbers.min()) < 0 or int(numbers.max()) >= samples:
                raise InvalidValueError(
                    f"splits: member {member}'s {name} samples are numbers from 0 to {samples - 1}, got shape "
                    f"{tuple(numbers.shape)} with values from {int(numbers.min())} to {int(numbers.max())}"
                )


def check_norms(model: nn.Module, labels: Sequence[Tensor], order: Order, steps: int) -> None:
    """The samples that fill up shorter batches have no part in the losses, but would have one in a batch's mean.

    How long batches are follows from how many samples of each class there are, so one epoch stands for all.
    """
    norms = [type(module).__name__ for module in model.modules() if isinstance(module, BatchNorm)]
    if not norms:
        return
    lengths = [[len(batch) for batch in order.batches(mine, 0, 0, 0, steps)] for mine in labels]
    for step, of_step in enumerate(zip(*lengths, strict=True)):
        if min(of_step) < max(of_step):
            raise InvalidValueError(
                f"the members' batches differ in length, {min(of_step)} to {max(of_step)} samples in step {step}, so "
                f"shorter ones are filled up, and {norms[0]} would see what fills them; give every member as many "
                f"samples (and, with stratified or oversample, as many of each class), take another norm, or {ALONE}"
            )


def check_optimizers(model: nn.Module, stages: Sequence[Stage], rates: Sequence[Sequence[float]], steps: int) -> None:
    """Refuse optimisers under which a member would feel the others, or not have its own learning rate.

    Args:
        model: One of the members.
        stages: The stages.
        rates: For each stage the members' learning rates.
        steps: The number of optimiser steps per epoch.
    """
    learning = [given for given in model.parameters() if given.requires_grad]
    for stage, lr in zip(stages, rates, strict=True):
        made = (stage.optimizer or torch.optim.AdamW)(learning, lr=lr[0])
        kind = type(made).__name__
        if type(made) not in ELEMENTWISE:  # not isinstance: a subclass may scale by the norm of a whole layer
            known = ", ".join(each.__name__ for each in ELEMENTWISE)
            raise InvalidValueError(
                f"{kind} is not known to move every weight by its own gradient alone, as {known} of torch.optim do, "
                f"so the members might feel each other; take one of those, or {ALONE}"
            )
        schedule = Schedule(stage.scheduler, stage.scheduler_step, made, steps * (stage.epochs or 1))
        schedule.check_length(stage.epochs or 1, steps)
        if schedule.waits:
            raise InvalidValueError(
                f"ReduceLROnPlateau follows the monitored value of one model, and members have one each; {ALONE}"
            )
        if min(lr) < max(lr) and type(made) not in PROPORTIONAL:
            raise InvalidValueError(
                f"{kind} does not move in proportion to its learning rate, so members cannot each have one of their "
                f"own; give all the same lr, take another optimiser, or {ALONE}"
            )
