"""fit: train a model for the metric that it is judged by."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from metricfit.errors import InvalidTypeError
from metricfit.train.callbacks import Callback, add_progress_bar
from metricfit.train.data.batches import Batches
from metricfit.train.data.sources import ClassWeight, as_source
from metricfit.train.engine.launching import launch
from metricfit.train.engine.run import TrainingRun
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
            DistributedSampler. A dictionary, also as an item of a Dataset or a DataLoader, has the keys "x" and "y".
            Optional keys are "weight" and "group", one integer per sample. Groups are for requirements per group,
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
        optimizer: Called as ``optimizer(parameters, lr=lr)`` at the start of a stage. It is also called once before
            training, so that an error in the last stage shows before the first stage runs. The default is AdamW.
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
    has_convolutions = any(isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) for module in model.modules())
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
        channels_last=has_convolutions if hardware.channels_last is None else hardware.channels_last,
        started=started,
    )
    run = TrainingRun([model], [(samples, held_out)], settings)
    return run.results(launch(model, hardware))[0]
