"""fit_population: several models of one architecture, trained as one computation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.train import label_checks, setting_checks
from metricfit.train.callbacks import Callback, add_progress_bar
from metricfit.train.checkpoint.folder import make_run_folder
from metricfit.train.data.class_weight import ClassWeight
from metricfit.train.data.groups import number_named_groups, with_groups
from metricfit.train.data.order import Order
from metricfit.train.data.samples import InMemory, as_source, as_tensor, get_weight_dtype
from metricfit.train.engine.driver import RunSettings
from metricfit.train.engine.member_checks import (
    check_members,
    check_norms,
    check_optimizers,
    check_splits,
    list_learning_rates,
)
from metricfit.train.engine.population_run import PopulationData, PopulationRun
from metricfit.train.engine.schedules import MakeScheduler, SchedulerStep
from metricfit.train.result import FitResult
from metricfit.train.several_monitors import Monitored
from metricfit.train.stage import DEFAULT_LR, MakeOptimizer, Stage, make_stages, mask_ignored_labels

Split = tuple[Any, Any]


def fit_population(
    models: Sequence[nn.Module],
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    splits: Sequence[Split] | None = None,
    validation: Any = None,
    groups: Any = None,
    validation_groups: Any = None,
    seeds: Sequence[int] | None = None,
    lr: float | Iterable[float] = DEFAULT_LR,
    epochs: int = 100,
    batch_size: int = 1024,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    scheduler_step: SchedulerStep | None = None,
    monitor: Monitored = "loss",
    patience: int | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    start_at_prior: bool | None = None,
    stratified: bool = False,
    oversample: float | None = None,
    class_weight: ClassWeight | None = None,
    clip: float | None = None,
    ema: float | None = None,
    device: str | torch.device | None = None,
    precision: str | None = None,
    cuda_graphs: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> list[FitResult]:
    """Train several models of one architecture as one computation; each learns what ``fit`` would teach it alone.

    All members make the same number of steps per epoch: that of the member with the most samples.

    Args:
        models: The members, which are trained in place.
        train: ``(X, y)`` or ``(X, y, weight)``, shared by all members.
        objective: A loss, or stages. Every member has its own copy, with its own multipliers and memory.
        splits: For each member its training and validation samples, as numbers into ``train``, or as masks. Without
            splits all members train on all samples.
        validation: ``(X, y)`` for all members, if there are no splits.
        groups: One integer per sample of ``train``, as for ``fit``.
        validation_groups: One integer per sample of ``validation``.
        seeds: The seed of each member. The default is 0, 1, 2 and so on.
        lr: One learning rate, or a list, an array or a tensor with one rate per member.
        epochs: Maximum number of epochs of each stage that does not set its own. The same holds for optimizer,
            scheduler, scheduler_step, monitor and patience.
        batch_size: Samples per member and optimiser step.
        optimizer: As for ``fit``: an optimiser of torch.optim that moves each weight by its own gradient alone. It is
            called again, as the scheduler is, when some members stop and the others continue.
        scheduler: As for ``fit``.
        scheduler_step: "epoch" or "batch", how often the scheduler moves.
        monitor: "loss", a metric at threshold 0.5, "best f1" for a metric at its best threshold, or a Monitor. Of a
            list, such as ``["best f1", "auroc"]``, the first decides: best weights, patience and ReduceLROnPlateau
            follow it alone. Each has a column of its name in the history.
        patience: Number of epochs without a better value after which a member stops.
        checkpoint_dir: A folder for this run alone.
        checkpoint_every: Optimiser steps between checkpoints. By default there is one checkpoint per epoch.
        resume: Whether to start in an empty folder, continue in a started one, and return the result of a finished one.
            The last stage may have more epochs than before, which continues a finished run too.
        start_at_prior: Whether to set the last biases to the log odds of the share of positives; see ``fit``.
        stratified: Whether to distribute each class evenly over the batches.
        oversample: Repeat positives until they are this share of an epoch.
        class_weight: "balanced", or one weight per class, as a list or as {0: 1.0, 1: 5.0}.
        clip: Maximum norm of a member's gradient.
        ema: Decay of an exponential moving average of each member's weights, as for ``fit``.
        device: The device to train on. The default is a GPU if there is one.
        precision: "bf16-mixed" for forward passes under autocast. By default the models' own type.
        cuda_graphs: Whether a step on a GPU is captured once and replayed, which is several times faster for small
            networks. A loss or model that copies numbers to the GPU in each step is refused with an error.
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
    order = Order(batch_size, stratified, oversample)
    rates = list_learning_rates(lr, len(models))
    seeds = list(range(len(models))) if seeds is None else list(seeds)
    check_members(models, rates, seeds, splits, validation)
    stages = make_stages(
        objective,
        epochs=epochs,
        optimizer=optimizer,
        scheduler=scheduler,
        scheduler_step=scheduler_step,
        monitor=monitor,
        patience=patience,
    )
    stage_rates = [rates if stage.lr is None else [stage.lr] * len(models) for stage in stages]
    stages = [stage.filled(lr=max(rates)) for stage in stages]
    samples, trained, held_out = _read_samples(train, splits, validation, len(models))
    groups = _join_groups(
        number_named_groups(groups, stages, "groups"),
        number_named_groups(validation_groups, stages, "validation_groups"),
        validation is not None,
    )
    samples = _in_memory(with_groups(samples, groups, stages, "train", "groups"))
    setting_checks.check_numbers(1, clip, ema)
    setting_checks.check_stages(stages, held_out is not None, samples.weight is not None or class_weight is not None)
    shown = add_progress_bar(callbacks, progress)
    data = _check_data(models[0], samples, trained, held_out, stages, order, start_at_prior)
    member_labels = [data.labels[numbers] for numbers in trained]
    steps = max(map(order.steps_per_epoch, member_labels))
    check_optimizers(models[0], stages, stage_rates, steps)
    check_norms(models[0], member_labels, order, steps)
    settings = RunSettings(
        stages=stages,
        lr=stage_rates,
        steps=steps,
        noise=(*seeds, "noise"),
        device=torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        folder=make_run_folder(checkpoint_dir, checkpoint_every, resume),
        resume=resume,
        checkpoint_every=checkpoint_every,
        start_at_prior=start_at_prior,
        callbacks=shown,
        ema=ema,
        started=started,
    )
    run = PopulationRun(
        models,
        data,
        settings,
        order=order,
        seeds=seeds,
        steps=steps,
        rates=rates,
        class_weight=class_weight,
        clip=clip,
        precision=precision,
        cuda_graphs=cuda_graphs,
    )
    return run.results()


def _read_samples(
    train: Any, splits: Sequence[Split] | None, validation: Any, members: int
) -> tuple[InMemory, list[Tensor], list[Tensor] | None]:
    """Return all samples in one source, and the numbers of each member's training and validation samples in it."""
    data = _in_memory(as_source(train, "train"))
    if splits is not None:
        parts = [[as_sample_numbers(samples) for samples in split] for split in splits]
        check_splits(parts, len(data))
        return data, [part[0] for part in parts], [part[1] for part in parts]
    everything = torch.arange(len(data))
    if validation is None:
        return data, [everything] * members, None
    held_out = as_source(validation, "validation")
    if not isinstance(held_out, InMemory) or (held_out.weight is None) != (data.weight is None):
        raise InvalidTypeError("validation must be like train: (X, y), or (X, y, weight) for both")
    weight = None if data.weight is None or held_out.weight is None else torch.cat([data.weight, held_out.weight])
    both = InMemory(torch.cat([data.x, held_out.x]), torch.cat([data.y, held_out.y]), weight)
    return both, [everything] * members, [len(data) + torch.arange(len(held_out))] * members


def _in_memory(data: Any) -> InMemory:
    if not isinstance(data, InMemory):
        raise InvalidTypeError("a population trains on data in memory: (X, y) or (X, y, weight)")
    return data


def _join_groups(groups: Any, validation_groups: Any, validated: bool) -> Any:
    """Return the groups of training and validation samples in one tensor, as their samples are."""
    if not validated:
        return groups
    if (groups is None) != (validation_groups is None):
        raise InvalidValueError("groups and validation_groups go together: pass both or none")
    if groups is None:
        return None
    return torch.cat([as_tensor(groups, "groups"), as_tensor(validation_groups, "validation_groups")])


def _check_data(
    model: nn.Module,
    samples: InMemory,
    trained: list[Tensor],
    held_out: list[Tensor] | None,
    stages: Sequence[Stage],
    order: Order,
    start_at_prior: bool | None,
) -> PopulationData:
    """Check every member's labels; return the data in the model's type, with each member's share of positives."""
    target = samples.y.detach().cpu()
    labels = mask_ignored_labels(target, stages)
    logits = label_checks.sample_logits(model, samples.x)
    one_output = logits.dim() == 1 or logits.shape[1] == 1
    if start_at_prior and not one_output:
        raise InvalidValueError(f"start_at_prior=True needs one output, but the members have {logits.shape[1]}")
    label_checks.judge_target(logits, target, stages, "training labels")
    converted = samples.with_dtype(get_weight_dtype(model))
    priors = []
    for member, numbers in enumerate(trained):
        order.check(labels[numbers])
        counted = label_checks.check_training_target(logits, target[numbers], stages)
        if held_out is not None:
            name = f"validation (of member {member})"
            label_checks.check_validation_target(logits, target[held_out[member]], stages, name)
        priors.append(float(counted.double().mean()))
    return PopulationData(converted, labels, trained, held_out, priors if one_output else None)


def as_sample_numbers(samples: Any) -> Tensor:
    """Return the numbers of samples that are given as numbers or as a mask."""
    numbers = torch.as_tensor(samples).cpu()
    return numbers.nonzero().flatten() if numbers.dtype == torch.bool else numbers.long()
