"""Several models at once: ``fit_population``, and ``fit_folds``, an ensemble over folds.

The ensemble is evaluated and tuned on the samples that its members did not train on.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical
from metricfit.core.tensor_numerics import is_positive
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics.curves import Requirements
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts
from metricfit.train import label_checks, setting_checks
from metricfit.train.callbacks import Callback, add_progress_bar
from metricfit.train.checkpoint.folder import make_run_folder
from metricfit.train.data.batches import SAMPLES_AT_ONCE, Order, derive_seed
from metricfit.train.data.groups import number_named_groups, with_groups
from metricfit.train.data.sources import ClassWeight, InMemory, as_source, as_tensor, get_weight_dtype
from metricfit.train.engine.launching import one_device
from metricfit.train.engine.learner import Learner, StepSettings
from metricfit.train.engine.loop import RunSettings
from metricfit.train.engine.run import MakeLearner, TrainingRun
from metricfit.train.engine.validation import UnmetRequirementWarning
from metricfit.train.fitting import prepare_member
from metricfit.train.label_thresholds import best_probability_threshold
from metricfit.train.monitor import Monitored, measure_at_best, refuse_requirements
from metricfit.train.result import FitResult
from metricfit.train.stage import DEFAULT_LR, MakeOptimizer, MakeScheduler, SchedulerStep, Stage, make_stages

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
    make_learner: MakeLearner = Learner,
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
        optimizer: As for ``fit``; called for each member.
        scheduler: As for ``fit``; called for each member.
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
    order = Order(batch_size, stratified, oversample)
    rates = setting_checks.list_learning_rates(lr, len(models))
    seeds = list(range(len(models))) if seeds is None else list(seeds)
    setting_checks.check_members(models, rates, seeds, splits, validation)
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
    runtime = one_device(device, precision)
    samples = samples.with_dtype(get_weight_dtype(models[0])).to(runtime.device)
    prepared = []
    for member, model in enumerate(models):
        validated = None if held_out is None else samples.subset(held_out[member])
        part = samples.subset(trained[member])
        name = "validation" if splits is None else f"validation (of member {member})"
        prepared.append(prepare_member(model, part, validated, stages, order, class_weight, seeds[member], name))
    if start_at_prior and prepared[0][0].prior is None:
        raise InvalidValueError("start_at_prior=True needs models with one output")
    steps = max(steps or 0 for _, steps in prepared)
    setting_checks.check_learning(models[0], stages, held_out is not None, steps)
    settings = RunSettings(
        stages=stages,
        lr=stage_rates,
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
    how, data = StepSettings(clip=clip, ema=ema), [data for data, _ in prepared]
    return TrainingRun(models, data, settings, how, runtime, several=True, make_learner=make_learner).results()


def _read_samples(
    train: Any, splits: Sequence[Split] | None, validation: Any, members: int
) -> tuple[InMemory, list[Tensor], list[Tensor] | None]:
    """Return all samples in one source, and the numbers of each member's training and validation samples in it."""
    data = _in_memory(as_source(train, "train"))
    if splits is not None:
        parts = [[as_sample_numbers(samples) for samples in split] for split in splits]
        setting_checks.check_splits(parts, len(data))
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


def as_sample_numbers(samples: Any) -> Tensor:
    """Return the numbers of samples that are given as numbers or as a mask."""
    numbers = torch.as_tensor(samples).cpu()
    return numbers.nonzero().flatten() if numbers.dtype == torch.bool else numbers.long()


@dataclass(frozen=True)
class Ensemble:
    """An ensemble over folds, which averages the logits of its members.

    Attributes:
        members: The FitResult of each member.
        out_of_fold: The logits of each training sample by the members that did not train on it.
        threshold: The best threshold for the metric on these logits, or one per label; None without a metric.
        value: The value of the metric at this threshold.
        exclusive: Whether the classes exclude each other, so that the class with the largest logit is chosen.

    Example:
        >>> from metricfit.losses import WeightedBCELoss
        >>> x = torch.randn(40, 3)
        >>> ensemble = fit_folds(lambda: nn.Linear(3, 1), (x, x[:, 0] > 0), WeightedBCELoss(), folds=2, epochs=1)
        >>> ensemble.predict(x).shape
        torch.Size([40])
    """

    members: list[FitResult]
    out_of_fold: Tensor
    threshold: float | tuple[float, ...] | None
    value: float | None
    exclusive: bool = False

    @torch.no_grad()
    def logits(self, x: Any, chunk: int = SAMPLES_AT_ONCE) -> Tensor:
        """Return the mean of the members' logits.

        Args:
            x: The inputs.
            chunk: Number of samples per forward pass.

        Returns:
            The logits, one row per sample.
        """
        first = self.members[0].model
        inputs = as_tensor(x, "x", keep_dtype=True)
        inputs = inputs.to(get_weight_dtype(first)) if inputs.is_floating_point() else inputs
        device = next(first.parameters()).device
        parts = [
            torch.stack([member.model(part.to(device)) for member in self.members]).mean(0)
            for part in torch.split(inputs, chunk)
        ]
        return torch.cat(parts)

    def predict(self, x: Any) -> Tensor:
        """Return decisions: at the threshold, or at 0.5 if none was tuned; of exclusive classes, the class.

        Args:
            x: The inputs.

        Returns:
            Class numbers, or 0 and 1 for two classes and for labels.
        """
        logits = self.logits(x)
        if self.exclusive:
            return logits.argmax(1)
        if logits.dim() == 2 and logits.shape[1] == 1:
            logits = logits.squeeze(1)
        threshold = 0.5 if self.threshold is None else self.threshold
        return is_positive(
            logits, torch.tensor(threshold, dtype=torch.float64) if isinstance(threshold, tuple) else threshold
        ).long()


def fit_folds(
    make_model: Callable[[], nn.Module],
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    folds: int | Sequence[Split] = 8,
    metric: str | Metric | Formula | None = None,
    subject_to: Requirements | None = None,
    seed: int = 0,
    **settings: Any,
) -> Ensemble:
    """Train an ensemble over folds: each member trains on all folds but one, and is validated on that one.

    Args:
        make_model: Returns a fresh model.
        train: ``(X, y)`` or ``(X, y, weight)``.
        objective: A loss, or stages.
        folds: The number of stratified folds, or for each member its training and validation samples.
        metric: The metric for which the threshold of one output is tuned, on the out-of-fold logits, or that of each of
            several labels, for the mean over the labels. With None no threshold is tuned.
        subject_to: Requirements on the threshold of one output.
        seed: Seed of the folds, of the members' initial weights and of their batches.
        **settings: Settings of ``fit_population``.

    Returns:
        The ensemble, with out-of-fold logits and the tuned threshold.

    Raises:
        ValueError: The folds, the metric or the settings do not go with the data.
        TypeError: ``make_model`` is not a function, or the data are not in memory.
        InfeasibleError: No threshold meets the requirements.

    Example:
        >>> from metricfit.losses import WeightedBCELoss
        >>> x = torch.randn(80, 3)
        >>> data, loss = (x, x[:, 0] > 0), WeightedBCELoss()
        >>> ensemble = fit_folds(lambda: nn.Linear(3, 1), data, loss, folds=4, metric="f1", epochs=2)
        >>> ensemble.out_of_fold.shape, len(ensemble.members)
        (torch.Size([80, 1]), 4)
    """
    if isinstance(make_model, nn.Module) or not callable(make_model):
        raise InvalidTypeError(
            "make_model is called to make a fresh model for each fold, such as lambda: nn.Linear(3, 1); got a "
            f"{type(make_model).__name__}"
        )
    if subject_to is not None and metric is None:
        raise InvalidValueError("subject_to restricts the threshold that metric= tunes; pass metric= as well")
    data = as_source(train, "train")
    if not isinstance(data, InMemory):
        raise InvalidTypeError("fit_folds needs data in memory: (X, y) or (X, y, weight)")
    splits = stratified_folds(data.y, int(folds), seed) if isinstance(folds, (int, Integral)) else list(folds)
    models, seeds = [], [derive_seed(seed, "member", member) for member in range(len(splits))]
    for member_seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(member_seed)
            models.append(make_model())
    sample = label_checks.sample_logits(models[0], data.x)
    exclusive = label_checks.is_exclusive(sample, data.y)
    if metric is not None and exclusive:
        raise InvalidValueError(
            f"metric= tunes thresholds, but the {sample.shape[1]} classes of the model exclude each other; leave it "
            "out, and pass the metric to the objective or to monitor="
        )
    several = sample.dim() > 1 and sample.shape[1] > 1
    if several and subject_to is not None:
        raise refuse_requirements("metric= with subject_to=")
    with warnings.catch_warnings():
        if subject_to is not None:  # the ensemble's threshold must meet them, not each member at 0.5
            warnings.simplefilter("ignore", UnmetRequirementWarning)
        members = fit_population(models, data, objective, splits=splits, seeds=seeds, **settings)
    logits = _out_of_fold(members, data, splits)
    if metric is None:
        return Ensemble(members, logits, None, None, exclusive)
    has_logits = torch.zeros(len(data), dtype=torch.bool)
    for _, held_out in splits:
        has_logits[as_sample_numbers(held_out)] = True
    weight = None if data.weight is None else data.weight.cpu()[has_logits]
    if several:
        samples = canonical(
            logits[has_logits], data.y.cpu()[has_logits], CountSettings(task="multilabel"), weight=weight
        )
        measured = measure_at_best(samples, check_of_counts(get_metric(metric)), (), "macro", "metric=")
        return Ensemble(members, logits, measured.threshold, measured.value)
    labels = data.y.cpu()[has_logits].reshape(-1)
    best = best_probability_threshold(logits.reshape(-1)[has_logits], labels, metric, subject_to, weight=weight)
    return Ensemble(members, logits, best.threshold, best.value)


def stratified_folds(y: Tensor, folds: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return the samples outside and inside each fold; each class is distributed evenly."""
    if y.dim() > 1 and y.shape[1:].numel() > 1:
        raise InvalidValueError(
            f"stratified folds need one label per sample, but these have shape {tuple(y.shape)}; pass folds as a list "
            "of (training, validation) samples, such as list(sklearn.model_selection.KFold(8, shuffle=True).split(X))"
        )
    labels = y.detach().cpu().reshape(-1)
    fewest = int(torch.unique(labels, return_counts=True)[1].min()) if len(labels) else 0
    if folds < 2:
        raise InvalidValueError(f"folds must be at least 2, got {folds}: each member trains on all folds but one")
    if folds > fewest:
        raise InvalidValueError(
            f"{folds} folds need {folds} samples of each class; the rarest has {fewest}. Use fewer folds"
        )
    generator = torch.Generator().manual_seed(derive_seed(seed, "folds"))
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    fold = torch.empty(len(labels), dtype=torch.long)
    fold[by_class] = torch.arange(len(labels)) % folds
    return [((fold != number).nonzero().flatten(), (fold == number).nonzero().flatten()) for number in range(folds)]


@torch.no_grad()
def _out_of_fold(members: Sequence[FitResult], data: InMemory, splits: Sequence[Split]) -> Tensor:
    """Return each sample's mean logits over the members that held it out; NaN if none did."""
    total: Tensor | None = None
    times = torch.zeros(len(data))
    for member, (_, held_out) in zip(members, splits, strict=True):
        device = next(member.model.parameters()).device
        index = as_sample_numbers(held_out)
        x = data.x[index.to(data.x.device)]
        x = x.to(get_weight_dtype(member.model)) if x.is_floating_point() else x
        logits = torch.cat([member.model(part.to(device)) for part in torch.split(x, SAMPLES_AT_ONCE)]).cpu()
        if total is None:
            total = logits.new_zeros(len(data), *logits.shape[1:])
        total.index_add_(0, index, logits)
        times.index_add_(0, index, torch.ones(len(index)))
    assert total is not None
    return total / times.to(total.dtype).reshape(-1, *(1,) * (total.dim() - 1))
