"""fit: train a model for the metric it is judged by."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.train import label_checks, setting_checks
from metricfit.train.callbacks import Callback, add_progress_bar
from metricfit.train.checkpoint.folder import make_run_folder
from metricfit.train.data.batches import Order
from metricfit.train.data.groups import with_groups
from metricfit.train.data.sources import (
    ClassWeight,
    FromDataset,
    FromLoader,
    InMemory,
    Source,
    as_source,
    get_weight_dtype,
    weigh_samples,
)
from metricfit.train.engine.launching import launch
from metricfit.train.engine.learner import StepSettings
from metricfit.train.engine.loop import RunSettings
from metricfit.train.engine.run import MemberData, TrainingRun
from metricfit.train.engine.stack import has_2d_convolutions
from metricfit.train.monitor import Monitored
from metricfit.train.result import FitResult
from metricfit.train.stage import (
    DEFAULT_LR,
    MakeOptimizer,
    MakeScheduler,
    SchedulerStep,
    Stage,
    make_stages,
    mask_ignored_labels,
)


def fit(
    model: nn.Module,
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    validation: Any = None,
    groups: Any = None,
    validation_groups: Any = None,
    epochs: int = 100,
    batch_size: int = 1024,
    lr: float = DEFAULT_LR,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    scheduler_step: SchedulerStep | None = None,
    monitor: Monitored = "loss",
    patience: int | None = None,
    seed: int = 0,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    start_at_prior: bool | None = None,
    stratified: bool = False,
    oversample: float | None = None,
    class_weight: ClassWeight | None = None,
    accumulate: int = 1,
    clip: float | None = None,
    ema: float | None = None,
    precision: str | None = None,
    accelerator: str = "auto",
    devices: int | str = 1,
    num_nodes: int = 1,
    strategy: str = "auto",
    workers: int = 0,
    channels_last: bool | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> FitResult:
    """Train a model in place, and return it with its history.

    Args:
        model: A module that returns logits, ``(n,)`` or ``(n, 1)`` for a binary problem.
        train: ``(X, y)`` or ``(X, y, weight)`` as tensors or arrays, a Dataset, or a DataLoader. Tensors are moved to
            the device as a whole and indexed there. A Dataset is read while the model trains. Before that at most 1,024
            of its items are read, to check their labels; all of them if batches are stratified or oversampled and the
            dataset has no list ``targets`` of its labels. A DataLoader is read to its end in every epoch, whatever
            length it announces; limit an endless stream, for example with ``itertools.islice``.
        objective: A loss, or stages of training, such as ``recipes.two_stage("f1")``.
        validation: Validation data, of the same kinds as ``train``. With it, the best weights are kept, and
            ``AugmentedLagrangian(update_on="held_out")`` moves its multipliers on it after every epoch.
        groups: One integer per training sample, for requirements per group, ``RequirementConstraint(groups=k)``, for
            gaps, ``metrics.recall.gap(k) <= 0.05``, and for losses whose ``forward`` takes ``group=``. Labels are
            allowed where the requirement names its groups, ``groups=["women", "men"]``. A Dataset or a DataLoader may
            return dictionaries with the keys "x", "y" and "group" instead.
        validation_groups: One integer or label per validation sample.
        epochs: Maximum number of epochs of each stage that does not set its own. The same holds for lr, optimizer,
            scheduler, scheduler_step, monitor and patience.
        batch_size: Samples per optimiser step, over all processes together. All batches have nearly the same size.
        lr: The learning rate.
        optimizer: Called as ``optimizer(parameters, lr=lr)`` at the start of a stage, and once before training, so that
            an error in the last stage shows before the first stage runs. The default is AdamW.
        scheduler: Called as ``scheduler(optimizer)`` at the same times; or as ``scheduler(optimizer, total_steps=n)``
            if it has such a parameter, with the number of optimiser steps of the stage:
            ``partial(OneCycleLR, max_lr=0.01)``. A ReduceLROnPlateau receives the monitored value.
        scheduler_step: "epoch" or "batch", how often the scheduler moves. By default once per batch for OneCycleLR and
            CyclicLR, and once per epoch for all others.
        monitor: "loss", a metric at threshold 0.5, "best f1" for a metric at its best threshold, or a Monitor. Of a
            list, such as ``["best f1", "auroc"]``, the first decides: best weights, patience and ReduceLROnPlateau
            follow it alone. Each has a column of its name in the history.
        patience: Number of epochs without a better value after which a stage stops.
        seed: Seed of the order of samples, of dropout and of random augmentation. torch's global random state is left
            unchanged.
        checkpoint_dir: A folder for this run alone.
        checkpoint_every: Optimiser steps between checkpoints. By default there is one checkpoint per epoch.
        resume: Whether to start in an empty folder, continue in a started one, and return the result of a finished one.
            The last stage may have more epochs than before, which continues a finished run too.
        start_at_prior: Whether to set the last bias of a binary model to the log odds of the share of positives. By
            default only if the model has exactly one such bias and is evidently untrained, so that trained weights are
            never changed: nothing has been written to its last layer since torch initialised it (see
            ``train.start_at_prior``). Pass True for a fresh model that was copied or initialised in another way.
        stratified: Whether to distribute each class evenly over the batches, so that each batch has a positive.
        oversample: Repeat positives until they are this share of an epoch.
        class_weight: "balanced", or one weight per class, as a list or as {0: 1.0, 1: 5.0}.
        accumulate: Number of parts in which a batch is computed. The gradient is still that of the whole batch, for any
            loss. Batch normalisation sees each part separately, and twice.
        clip: Maximum norm of the gradient.
        ema: Decay of an exponential moving average of the weights, such as 0.999, which is updated after every
            optimiser step. Validation uses the averaged weights, and so do callbacks, the best weights and the returned
            model; training itself does not change. The decay grows to this number, min(ema, (1 + n) / (10 + n)) after n
            steps of a stage. Running means and variances of batch normalisation are averaged too.
        precision: The precision for Fabric, such as "bf16-mixed" or "16-mixed". By default the model's own type.
        accelerator: The accelerator for Fabric: "cpu", "gpu" or "auto".
        devices: Number of processes on this machine; under torchrun, the number that it started.
        num_nodes: Number of machines; under torchrun, the number that it runs on.
        strategy: The strategy for Fabric, such as "ddp".
        workers: Number of processes that read a Dataset in the background; with 0 it is read between the steps.
        channels_last: Whether images ``(n, c, h, w)`` and the weights of convolutions are laid out with their channels
            last while training, which is faster and changes results by rounding only. By default wherever the model has
            2-d convolutions. The returned model has the usual layout.
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
    order = Order(batch_size, stratified, oversample)
    stages = make_stages(
        objective,
        epochs=epochs,
        lr=lr,
        optimizer=optimizer,
        scheduler=scheduler,
        scheduler_step=scheduler_step,
        monitor=monitor,
        patience=patience,
    )
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(f"model must be a torch module, got {type(model).__name__}")
    samples = with_groups(as_source(train, "train", workers), groups, stages, "train", "groups")
    held_out = None if validation is None else as_source(validation, "validation", workers)
    if held_out is not None:
        held_out = with_groups(held_out, validation_groups, stages, "validation", "validation_groups")
    setting_checks.check_numbers(accumulate, clip, ema)
    weighted = class_weight is not None or _has_weights(samples, held_out)
    setting_checks.check_stages(stages, held_out is not None, weighted)
    shown = add_progress_bar(callbacks, progress)
    data, steps = prepare_member(model, samples, held_out, stages, order, class_weight, seed)
    setting_checks.check_learning(model, stages, held_out is not None, steps)
    if start_at_prior and data.prior is None:
        raise InvalidValueError("start_at_prior=True needs one output and labels known beforehand: (X, y) or a Dataset")
    settings = RunSettings(
        stages=stages,
        lr=[[stage.lr or lr] for stage in stages],
        order=order,
        steps=steps,
        folder=make_run_folder(checkpoint_dir, checkpoint_every, resume),
        resume=resume,
        checkpoint_every=checkpoint_every,
        start_at_prior=start_at_prior,
        callbacks=shown,
        precision=precision,
        started=started,
    )
    runtime = launch(
        model,
        accelerator=accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=precision,
    )
    how = StepSettings(
        accumulate=accumulate,
        clip=clip,
        ema=ema,
        channels_last=has_2d_convolutions(model) if channels_last is None else channels_last,
    )
    return TrainingRun([model], [data], settings, how, runtime).results()[0]


def prepare_member(
    model: nn.Module,
    train: Source,
    validation: Source | None,
    stages: Sequence[Stage],
    order: Order,
    class_weight: ClassWeight | None,
    seed: int,
    validation_name: str = "validation",
) -> tuple[MemberData, int | None]:
    """Check the data of one model, and give them its type and the weights of their classes.

    Args:
        model: The model.
        train: The training samples.
        validation: The validation samples, if there are any.
        stages: The stages.
        order: How an epoch is divided into batches.
        class_weight: The weights of classes, if there are any.
        seed: The seed of the order of samples.
        validation_name: The name of the validation samples in messages.

    Returns:
        The data, and the number of steps per epoch; None if it is not known.

    Raises:
        ValueError: The data do not go with the model or the stages.
    """
    prior = _check_data(model, train, validation, stages, order, validation_name)
    labels: Tensor | None = None
    if isinstance(train, FromLoader):
        steps = train.expected_batches
    elif _reads_labels(train, stages, order):
        labels = mask_ignored_labels(_labels(train), stages)
        steps = order.steps_per_epoch(labels)
    else:
        steps = order.steps(len(train))
    dtype, weighted = get_weight_dtype(model), train
    if isinstance(train, InMemory):
        weighted = replace(
            train, weight=weigh_samples(mask_ignored_labels(train.y, stages), train.weight, class_weight)
        )
    elif class_weight is not None:
        raise InvalidValueError("class_weight needs data in memory; let your Dataset return (x, y, weight)")
    held_out = None if validation is None else validation.with_dtype(dtype)
    return MemberData(weighted.with_dtype(dtype), train.with_dtype(dtype), held_out, labels, prior, seed), steps


def _has_weights(*sources: Source | None) -> bool:
    return any(isinstance(data, InMemory) and data.weight is not None for data in sources)


def _labels(data: InMemory | FromDataset) -> Tensor:
    return data.target.detach().cpu()


def _reads_labels(data: InMemory | FromDataset, stages: Sequence[Stage], order: Order) -> bool:
    """Check whether all training labels are read before training.

    Otherwise some of them are checked before, and all of them batch by batch in the first epoch. They are read if they
    are at hand, or if the order of samples or the metric of a single class depends on them.
    """
    depends = order.stratified or order.oversample is not None or label_checks.names_a_class(stages)
    return depends or data.knows_labels


def _check_data(
    model: nn.Module, train: Source, validation: Source | None, stages: Sequence[Stage], order: Order, name: str
) -> float | None:
    """Check what can be checked before training; return the share of positives of a binary problem."""
    counted: Tensor | None = None
    if isinstance(train, FromLoader):
        if order.stratified or order.oversample is not None:
            raise InvalidValueError(
                "a DataLoader makes its own batches; for stratified or oversampled batches pass a Dataset"
            )
    elif _reads_labels(train, stages, order):
        target = _labels(train)
        order.check(mask_ignored_labels(target, stages))
        logits = label_checks.sample_logits(model, train.first())
        counted = label_checks.check_training_target(logits, target, stages)
        label_checks.judge_target(logits, target, stages, "training labels")
    else:
        logits = label_checks.sample_logits(model, train.first())
        counted = label_checks.check_target(logits, train.some_labels.cpu(), stages, "train", part=True)
    if validation is not None and not isinstance(validation, FromLoader) and validation.knows_labels:
        target = _labels(validation)
        if counted is None:
            logits = label_checks.sample_logits(model, validation.first(), "validation")
            label_checks.judge_target(logits, target, stages, "validation labels")
        label_checks.check_validation_target(logits, target, stages, name)
    if counted is None or not counted.numel() or not (logits.dim() == 1 or logits.shape[1] == 1):
        return None
    if isinstance(train, FromLoader) or train.knows_labels:
        return float(counted.double().mean())
    return (float(counted.double().sum()) + 0.5) / (counted.numel() + 1)  # some labels may all be of one class
