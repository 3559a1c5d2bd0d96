"""fit and fit_population: train models for the metric that they are judged by."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.train.callbacks import Callback, add_progress_bar
from metricfit.train.data.batches import Batches
from metricfit.train.data.sources import ClassWeight, InMemory, Source, as_source, get_weight_dtype
from metricfit.train.engine.launching import launch, one_device
from metricfit.train.engine.learner import Learner
from metricfit.train.engine.run import MakeLearner, TrainingRun
from metricfit.train.engine.stack import has_2d_convolutions
from metricfit.train.label_checks import with_group_numbers
from metricfit.train.monitor import Monitored
from metricfit.train.result import FitResult
from metricfit.train.settings import (
    PLAIN_HARDWARE,
    PLAIN_STEPS,
    CheckpointDir,
    Hardware,
    RunSettings,
    Steps,
    as_checkpoints,
)
from metricfit.train.stage import DEFAULT_LR, MakeOptimizer, MakeScheduler, Stage, make_stages

Split = tuple[Any, Any]


def fit(
    model: nn.Module,
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    validation: Any = None,
    epochs: int = 100,
    batch_size: int | Batches = 1024,
    lr: float = DEFAULT_LR,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    monitor: Monitored = "loss",
    patience: int | None = None,
    seed: int = 0,
    checkpoint_dir: CheckpointDir | None = None,
    resume: bool = False,
    start_at_prior: bool | None = None,
    class_weight: ClassWeight | None = None,
    steps: Steps = PLAIN_STEPS,
    hardware: Hardware = PLAIN_HARDWARE,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> FitResult:
    """Train a model in place, and return it with its history.

    Args:
        model: A module that returns logits, ``(n,)`` or ``(n, 1)`` for a binary problem.
        train: ``(X, y)`` or ``(X, y, weight)`` as tensors or arrays, a dictionary of them, a Dataset, or a DataLoader.
            Tensors are moved to the device as a whole and indexed there. A Dataset is read while the model trains.
            Before that at most 1,024 of its items are read, to check their labels; all of them if batches are
            stratified or oversampled. A DataLoader is read to its end in every epoch, whatever length it announces;
            limit an endless stream, for example with ``itertools.islice``. On several processes it needs a
            DistributedSampler. A dictionary, also as an item of a Dataset or a DataLoader, has the keys "x" and "y",
            and optionally "weight" and "group", one integer per sample. Groups are for requirements per group,
            ``RequirementConstraint(groups=k)``, for gaps, ``metrics.recall.gap(k) <= 0.05``, and for losses whose
            ``forward`` takes ``group=``. In memory they may be labels where the requirement names its groups,
            ``groups=["women", "men"]``.
        objective: A loss, or stages of training, such as ``recipes.two_stage("f1")``.
        validation: Validation data, of the same kinds as ``train``. With it, the best weights are kept, and
            ``AugmentedLagrangian(update_on="held_out")`` moves its multipliers on it after every epoch.
        epochs: Maximum number of epochs of each stage that does not set its own. The same holds for lr, optimizer,
            scheduler, monitor and patience.
        batch_size: Samples per optimiser step, over all processes together, or ``Batches`` for stratified or
            oversampled batches. All batches have nearly the same size.
        lr: The learning rate.
        optimizer: Called as ``optimizer(parameters, lr=lr)`` at the start of a stage, and once before training, so that
            an error in the last stage shows before the first stage runs. The default is AdamW.
        scheduler: Called as ``scheduler(optimizer)`` at the same times; or as ``scheduler(optimizer, total_steps=n)``
            if it has such a parameter, with the number of optimiser steps of the stage:
            ``partial(OneCycleLR, max_lr=0.01)``. A ReduceLROnPlateau receives the monitored value. ``Stage`` says how
            often it moves.
        monitor: "loss", a metric at threshold 0.5, "best f1" for a metric at its best threshold, or a Monitor. Of a
            list, such as ``["best f1", "auroc"]``, the first decides: best weights, patience and ReduceLROnPlateau
            follow it alone. Each has a column of its name in the history.
        patience: Number of epochs without a better value after which a stage stops.
        seed: Seed of the order of samples, of dropout and of random augmentation. torch's global random state is left
            unchanged.
        checkpoint_dir: A folder for this run alone, with one checkpoint per epoch, or ``Checkpoints(folder, 500)``
            for one every 500 optimiser steps.
        resume: Whether to start in an empty folder, continue in a started one, and return the result of a finished one.
        start_at_prior: Whether to set the last bias of a binary model to the log odds of the share of positives. By
            default only if the model has exactly one such bias and is evidently untrained, so that trained weights are
            never changed: nothing has been written to its last layer since torch initialised it (see
            ``train.start_at_prior``). Pass True for a fresh model that was copied or initialised in another way.
        class_weight: "balanced", or one weight per class, as a list or as {0: 1.0, 1: 5.0}.
        steps: How optimiser steps are made: in parts, with clipped gradients, with an average of the weights.
        hardware: The devices and the precision, such as ``Hardware(devices=2, precision="bf16-mixed")``.
        callbacks: Objects that are called during training; see Callback.
        progress: Whether to show a progress bar. By default it is shown if standard error is a terminal.

    Returns:
        The model with its history, the best monitored value, the threshold and the requirements.

    Raises:
        ValueError: Settings, data and model do not go together. Most of these errors are raised before training.
        TypeError: An argument has a type that cannot be used.
        NotFiniteError: The loss became NaN or infinite.
        FileExistsError: ``checkpoint_dir`` holds other files, or a run without ``resume=True``.
        ModuleNotFoundError: A package of the extra ``train`` is not installed.

    Example:
        >>> from metricfit.losses import WeightedBCELoss
        >>> x = torch.randn(64, 3)
        >>> result = fit(nn.Linear(3, 1), (x, (x[:, 0] > 0).long()), WeightedBCELoss(), epochs=3, progress=False)
        >>> len(result.history)
        3
    """
    started = time.perf_counter()
    defaults = {"optimizer": optimizer, "scheduler": scheduler, "monitor": monitor, "patience": patience}
    stages = make_stages(objective, epochs=epochs, lr=lr, **defaults)
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(f"model must be a torch module, got {type(model).__name__}")
    samples = with_group_numbers(as_source(train, "train", hardware.workers), stages, "train")
    held_out = None
    if validation is not None:
        held_out = with_group_numbers(as_source(validation, "validation", hardware.workers), stages, "validation")
    laid_out = has_2d_convolutions(model) if hardware.channels_last is None else hardware.channels_last
    settings = RunSettings(
        stages=stages,
        rates=[[stage.lr or lr] for stage in stages],
        seeds=[seed],
        batches=batch_size if isinstance(batch_size, Batches) else Batches(batch_size),
        class_weight=class_weight,
        steps=steps,
        checkpoints=as_checkpoints(checkpoint_dir, resume),
        resume=resume,
        start_at_prior=start_at_prior,
        callbacks=add_progress_bar(callbacks, progress),
        precision=hardware.precision,
        channels_last=laid_out,
        started=started,
    )
    run = TrainingRun([model], [(samples, held_out)], settings)
    return run.results(launch(model, hardware))[0]


def fit_population(
    models: Sequence[nn.Module],
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    splits: Sequence[Split] | None = None,
    validation: Any = None,
    seeds: Sequence[int] | None = None,
    lr: float | Iterable[float] = DEFAULT_LR,
    epochs: int = 100,
    batch_size: int | Batches = 1024,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    monitor: Monitored = "loss",
    patience: int | None = None,
    checkpoint_dir: CheckpointDir | None = None,
    resume: bool = False,
    start_at_prior: bool | None = None,
    class_weight: ClassWeight | None = None,
    steps: Steps = PLAIN_STEPS,
    device: str | torch.device | None = None,
    precision: str | None = None,
    make_learner: MakeLearner = Learner,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> list[FitResult]:
    """Train several models of one architecture as one computation; each learns what ``fit`` would teach it alone.

    All members make the same number of steps per epoch: that of the member with the most samples.

    Args:
        models: The members, which are trained in place.
        train: ``(X, y)`` or ``(X, y, weight)``, or a dictionary as for ``fit``, shared by all members.
        objective: A loss, or stages. Every member has its own copy, with its own multipliers and memory.
        splits: For each member its training and validation samples, as numbers into ``train``, or as masks. Without
            splits all members train on all samples.
        validation: Samples like those of ``train`` for all members, if there are no splits.
        seeds: The seed of each member. The default is 0, 1, 2 and so on.
        lr: One learning rate, or a list, an array or a tensor with one rate per member.
        epochs: Maximum number of epochs of each stage that does not set its own. The same holds for optimizer,
            scheduler, monitor and patience.
        batch_size: Samples per member and optimiser step, or ``Batches``.
        optimizer: As for ``fit``; called for each member.
        scheduler: As for ``fit``; called for each member.
        monitor: "loss", a metric at threshold 0.5, "best f1" for a metric at its best threshold, or a Monitor. Of a
            list, such as ``["best f1", "auroc"]``, the first decides: best weights, patience and ReduceLROnPlateau
            follow it alone. Each has a column of its name in the history.
        patience: Number of epochs without a better value after which a member stops.
        checkpoint_dir: A folder for this run alone, or ``Checkpoints``.
        resume: Whether to start in an empty folder, continue in a started one, and return the result of a finished one.
        start_at_prior: Whether to set the last biases to the log odds of the share of positives; see ``fit``.
        class_weight: "balanced", or one weight per class, as a list or as {0: 1.0, 1: 5.0}.
        steps: How optimiser steps are made, as for ``fit``.
        device: The device to train on. The default is a GPU if there is one.
        precision: "bf16-mixed" for forward passes under autocast. By default the models' own type.
        make_learner: Makes the steps of the members; metricfit_papers captures them as CUDA graphs.
        callbacks: Objects that are called during training; see Callback.
        progress: Whether to show a progress bar. By default it is shown if standard error is a terminal.

    Returns:
        One FitResult per member.

    Raises:
        ValueError: Settings, data and models do not go together. Most of these errors are raised before training.
        TypeError: An argument has a type that cannot be used; the data must be in memory.
        NotFiniteError: The loss of a member became NaN or infinite.
        FileExistsError: ``checkpoint_dir`` holds other files, or a run without ``resume=True``.

    Example:
        >>> from metricfit.losses import WeightedBCELoss
        >>> x = torch.randn(64, 3)
        >>> models = [nn.Linear(3, 1) for _ in range(4)]
        >>> results = fit_population(models, (x, x[:, 0] > 0), WeightedBCELoss(), epochs=2, progress=False)
        >>> [len(result.history) for result in results]
        [2, 2, 2, 2]
    """
    started = time.perf_counter()
    rates = _list_learning_rates(lr, len(models))
    seeds = list(range(len(models))) if seeds is None else list(seeds)
    _check_members(models, rates, seeds, splits, validation)
    defaults = {"optimizer": optimizer, "scheduler": scheduler, "monitor": monitor, "patience": patience}
    stages = make_stages(objective, epochs=epochs, **defaults)
    stage_rates = [rates if stage.lr is None else [stage.lr] * len(models) for stage in stages]
    stages = [stage.filled(lr=max(rates)) for stage in stages]
    runtime = one_device(device, precision)
    data = [
        None if part is None else part.with_dtype(get_weight_dtype(models[0])).to(runtime.device)
        for part in (_read_in_memory(train, stages, "train"), _read_in_memory(validation, stages, "validation"))
    ]
    settings = RunSettings(
        stages=stages,
        rates=stage_rates,
        seeds=seeds,
        batches=batch_size if isinstance(batch_size, Batches) else Batches(batch_size),
        class_weight=class_weight,
        steps=steps,
        checkpoints=as_checkpoints(checkpoint_dir, resume),
        resume=resume,
        start_at_prior=start_at_prior,
        callbacks=add_progress_bar(callbacks, progress),
        precision=precision,
        started=started,
        several=True,
    )
    samples, held_out = data
    assert samples is not None
    members: list[tuple[Source, Source | None]] = [(samples, held_out)] * len(models)
    if splits is not None:
        members = [_split(samples, split, member) for member, split in enumerate(splits)]
    return TrainingRun(models, members, settings).results(runtime, make_learner)


def _read_in_memory(data: Any, stages: Sequence[Stage], name: str) -> InMemory | None:
    if data is None:
        return None
    source = with_group_numbers(as_source(data, name), stages, name)
    if not isinstance(source, InMemory):
        raise InvalidTypeError("a population trains on data in memory: (X, y) or (X, y, weight)")
    return source


def _split(samples: InMemory, split: Split, member: int) -> tuple[InMemory, InMemory]:
    """Return a member's training and validation samples, which share their inputs with those of other members."""
    if len(split) != 2:
        raise InvalidValueError(
            f"splits needs a pair (training, validation) per member; member {member} has {len(split)} parts"
        )
    parts = [as_sample_numbers(numbers) for numbers in split]
    for name, numbers in zip(("training", "validation"), parts, strict=True):
        if not len(numbers):
            raise InvalidValueError(f"splits: member {member} has no {name} samples")
        if numbers.dim() != 1 or int(numbers.min()) < 0 or int(numbers.max()) >= len(samples):
            raise InvalidValueError(
                f"splits: member {member}'s {name} samples must be numbers from 0 to {len(samples) - 1}, got shape "
                f"{tuple(numbers.shape)} with values from {int(numbers.min())} to {int(numbers.max())}"
            )
    return samples.subset(parts[0]), samples.subset(parts[1])


def as_sample_numbers(samples: Any) -> Tensor:
    """Return the numbers of samples that are given as numbers or as a mask."""
    numbers = torch.as_tensor(samples).cpu()
    return numbers.nonzero().flatten() if numbers.dtype == torch.bool else numbers.long()


def _list_learning_rates(lr: Any, members: int) -> list[float]:
    """Return each member's learning rate, from one rate for all, or a list, an array or a tensor of rates."""
    plain = lr.tolist() if hasattr(lr, "tolist") else lr
    rates = [float(rate) for rate in plain] if isinstance(plain, Iterable) else [float(plain)] * members
    for member, rate in enumerate(rates):
        if not (math.isfinite(rate) and rate > 0):
            raise InvalidValueError(f"lr must be finite and above 0, got {rate} for member {member}")
    return rates


def _check_members(
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
