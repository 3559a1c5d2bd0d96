"""fit: train a model for the metric it is judged by."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics.metric import Metric
from metricfit.train import checks
from metricfit.train.callbacks import Callback, callbacks_shown
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.folder import RunFolder, folder_of
from metricfit.train.checkpoint.run_spec import spec_of
from metricfit.train.data.batches import Batch, share_of
from metricfit.train.data.class_weight import ClassWeight, weights_of
from metricfit.train.data.groups import with_groups
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.order import Order, seed_of
from metricfit.train.data.samples import FromDataset, InMemory, Source, source, type_of
from metricfit.train.engine.learner import OneModel
from metricfit.train.engine.loop import Loop
from metricfit.train.engine.ranks import join_after_restart, processes
from metricfit.train.engine.schedules import MakeScheduler
from metricfit.train.engine.validation import RequirementResult, has_requirements, measure_requirements, warn_of_unmet
from metricfit.train.extra import told_what_to_install
from metricfit.train.history import History
from metricfit.train.monitor import Monitor
from metricfit.train.prior import start_at_prior as set_prior
from metricfit.train.result import FitResult, report_of
from metricfit.train.stage import DEFAULT_LR, MakeOptimizer, Stage, stages_of, without_ignored

if TYPE_CHECKING:
    from lightning_fabric import Fabric


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
    scheduler_step: str | None = None,
    monitor: str | Metric | Monitor = "loss",
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
    precision: str | None = None,
    accelerator: str = "auto",
    devices: int | str = 1,
    num_nodes: int = 1,
    strategy: str = "auto",
    workers: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> FitResult:
    """Train a model, in place, and return it with its history.

    Args:
        model: gives logits, ``(n,)`` or ``(n, 1)`` for a binary problem.
        train: ``(X, y)`` or ``(X, y, weight)`` as tensors or arrays, a Dataset, or a DataLoader. Tensors are
            moved to the device whole and indexed there. A DataLoader is read to its end in every epoch, whatever
            length it announces; an endless stream must be cut, for example with ``itertools.islice``.
        objective: a loss, or stages of training, such as ``recipes.two_stage("f1")``.
        validation: the same kinds as ``train``. With it the best weights are kept.
        groups: one whole number per training sample, for requirements per group, ``RequirementConstraint(groups=k)``,
            and for losses whose ``forward`` takes ``group=``. A Dataset or a DataLoader may give dictionaries with the
            keys "x", "y" and "group" instead.
        validation_groups: the same for the validation samples.
        epochs: at most so many in each stage that does not say otherwise; lr, optimizer, scheduler, monitor and
            patience likewise.
        batch_size: samples an optimiser step, over all processes together; batches are of nearly equal size.
        lr: the learning rate.
        optimizer: called as ``optimizer(parameters, lr=lr)`` at the start of a stage, and once before training, so that
            a mistake in the last stage shows before the first; by default AdamW.
        scheduler: called as ``scheduler(optimizer)``, as often; or as ``scheduler(optimizer, total_steps=n)``, if it
            has such a parameter, with the number of optimiser steps of the stage: ``partial(OneCycleLR, max_lr=0.01)``.
            A ReduceLROnPlateau is given the monitored value.
        scheduler_step: "epoch" or "batch", how often the scheduler moves; by default once per batch for OneCycleLR and
            CyclicLR, and once per epoch for all others.
        monitor: "loss", a metric at 0.5, "best f1" for one at its best threshold, or a Monitor.
        patience: stop a stage after so many epochs without a better value.
        seed: of the order of samples, of dropout and of random augmentation; torch's own random numbers are left alone.
        checkpoint_dir: a folder for this run alone.
        checkpoint_every: in optimiser steps; by default once an epoch.
        resume: start in an empty folder, go on in a started one, return the result of a finished one.
        start_at_prior: set the last bias of a binary model to the log odds of the share of positives. By default only
            if the model has one such bias and is evidently fresh, so that trained weights are never changed: nothing
            has been written to its last layer since torch initialised it (see ``train.start_at_prior``). Give True
            for a fresh model that was copied or has an initialisation of its own.
        stratified: deal each class over the batches; each batch has a positive.
        oversample: repeat positives until they are this share of an epoch.
        class_weight: "balanced", or a weight for each class, as a list or as {0: 1.0, 1: 5.0}.
        accumulate: compute a batch in so many parts; the gradient is still that of the whole batch, for any loss. Batch
            norm sees each part by itself, and twice.
        clip: the largest norm of the gradient.
        precision: Fabric's, such as "bf16-mixed" or "16-mixed"; by default the model's own type.
        accelerator: Fabric's: "cpu", "gpu", "auto".
        devices: how many processes on this machine; under torchrun as many as it started.
        num_nodes: how many machines; under torchrun those it runs on.
        strategy: Fabric's, such as "ddp".
        workers: processes that read a Dataset.
        callbacks: see Callback.
        progress: show a bar; by default when standard error is a terminal.

    >>> from metricfit.losses import WeightedBCELoss
    >>> x = torch.randn(64, 3)
    >>> result = fit(nn.Linear(3, 1), (x, (x[:, 0] > 0).long()), WeightedBCELoss(), epochs=3, progress=False)
    >>> len(result.history)
    3
    """
    began = time.perf_counter()
    order = Order(batch_size, stratified, oversample)
    usual = {"epochs": epochs, "lr": lr, "optimizer": optimizer, "scheduler": scheduler, "monitor": monitor}
    usual |= {"scheduler_step": scheduler_step}
    stages = stages_of(objective, **usual, patience=patience)
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(f"model must be a torch module, got {type(model).__name__}")
    data = source(train, "train", workers)
    data = with_groups(data, groups, stages, "train", "groups")
    held_out = None if validation is None else source(validation, "validation", workers)
    if held_out is not None:
        held_out = with_groups(held_out, validation_groups, stages, "validation", "validation_groups")
    in_memory = [each for each in (data, held_out) if isinstance(each, InMemory)]
    weighted = class_weight is not None or any(each.weight is not None for each in in_memory)
    checks.check_numbers(accumulate, clip)
    checks.check_stages(stages, held_out is not None, weighted)
    shown = callbacks_shown(callbacks, progress)
    prior = _checked(model, data, held_out, stages, order)
    known: Tensor | None = None
    if isinstance(data, FromLoader):
        steps = data.expected_batches
    else:
        known = without_ignored(_labels(data), stages)
        steps = order.steps_of(known)
    checks.check_learning(model, stages, held_out is not None, steps)
    if start_at_prior and prior is None:
        raise InvalidValueError("start_at_prior=True needs one output and labels known beforehand: (X, y) or a Dataset")
    unweighted = data.typed(type_of(model))
    if isinstance(data, InMemory):
        data = data.weighted(weights_of(without_ignored(data.y, stages), data.weight, class_weight))
    elif class_weight is not None:
        raise InvalidValueError("class_weight is for data in memory; let your Dataset give (x, y, weight)")
    data = data.typed(type_of(model))
    held_out = None if held_out is None else held_out.typed(type_of(model))
    folder = folder_of(checkpoint_dir, checkpoint_every, resume)
    devices, num_nodes = processes(devices, num_nodes)
    with told_what_to_install():
        from lightning_fabric import Fabric  # which takes seconds to import: those who only need a population need not
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=precision or _own_precision(model),  # type: ignore[arg-type]
    )
    join_after_restart(fabric.device)
    fabric.launch()
    with folder or nullcontext():
        if folder is not None:
            settings: dict[str, Any] = {"seed": seed, "accumulate": accumulate, "clip": clip, "precision": precision}
            settings |= {"ranks": fabric.world_size, "checkpoint_every": checkpoint_every}
            settings["start_at_prior"] = start_at_prior
            found = _begin(folder, spec_of(model, stages, data, held_out, order, **settings), resume, fabric)
            if found is not None:
                result = FitResult.from_state(found, model.to(fabric.device), stages[-1].objective)
                return _warned(result, fabric)
        if prior is not None and start_at_prior is not False:
            assert not isinstance(data, FromLoader)
            few = _first_inputs(data)
            asked = start_at_prior is True
            set_prior(model, prior, strict=asked, fresh_only=not asked, logits=lambda: _quiet_logits(model, few))
        on_device, unweighted = _placed(data, fabric), _placed(unweighted, fabric)
        held_out = None if held_out is None else _placed(held_out, fabric)
        learner = OneModel(fabric, model, held_out, accumulate=accumulate, clip=clip)
        loop = Loop(
            learner,
            stages,
            _batches(on_device, known, order, seed, fabric, checks.LoaderCheck(model, stages)),
            steps,
            lr=[[stage.lr or lr] for stage in stages],
            validated=held_out is not None,
            folder=folder,
            writes=fabric.is_global_zero,
            checkpoint_every=checkpoint_every,
            callbacks=shown if fabric.is_global_zero else [],
            share=fabric.broadcast,
        )
        with randomness.of_run(seed_of(seed, "noise", fabric.global_rank), fabric.device), _default_type(fabric):
            rows = loop.run()
            standing = loop.at.standings[0]
            requirements = _measured_requirements(learner, stages[-1], unweighted, standing.threshold)
        model.eval()
        seconds = time.perf_counter() - began
        objective = learner.objective.loss
        result = FitResult(model, History(rows), standing.best, standing.threshold, seconds, objective, requirements)
        if folder is not None and fabric.is_global_zero:
            report = {
                name: value[0] if isinstance(value, list) else value for name, value in report_of([result]).items()
            }
            folder.finish(result.state(), {**report, "steps_made": folder.steps_made})
        fabric.barrier()
        return _warned(result, fabric)


def _batches(
    data: Source, labels: Tensor | None, order: Order, seed: int, fabric: Fabric, check: checks.LoaderCheck
) -> Any:
    """The batches of an epoch from one on; of each, this rank's share. A loader's first epoch is checked on the way."""

    def of_epoch(stage: int, epoch: int, first: int) -> Iterator[Batch]:
        of_items = seed_of(seed, "items", stage, epoch)
        if isinstance(data, FromLoader):
            given = data.batches(fabric.device, of_items, skip=first, epoch=epoch)
            if stage == epoch == 0:
                given = (check(batch, at, data.expected_batches) for at, batch in enumerate(given, first))
            yield from given
            return
        assert labels is not None
        whole = order.batches(labels, seed, stage, epoch)[first:]
        mine = [share_of(each, fabric.global_rank, fabric.world_size) for each in whole]
        read = [part if len(part) else each[:1] for part, each in zip(mine, whole, strict=True)]
        for part, batch in zip(mine, data.batches(read, fabric.device, of_items), strict=True):
            yield batch if len(part) else batch.without_samples()

    return of_epoch


def _placed(data: Source, fabric: Fabric) -> Source:
    """The data where this process can read it: in memory on its device, of a loader its share."""
    if isinstance(data, InMemory):
        return data.to(fabric.device)
    return data.of_rank(fabric.global_rank, fabric.world_size) if isinstance(data, FromLoader) else data


def _labels(data: InMemory | FromDataset) -> Tensor:
    return data.target.detach().cpu()


def _checked(
    model: nn.Module, data: Source, validation: Source | None, stages: Sequence[Stage], order: Order
) -> float | None:
    """Look at what can be looked at before training; the share of positives of a binary problem."""
    counted: Tensor | None = None
    if isinstance(data, FromLoader):
        if order.stratified or order.oversample is not None:
            raise InvalidValueError(
                "a DataLoader makes its own batches; for stratified or oversampled ones give a Dataset"
            )
    else:
        y = _labels(data)
        order.check(without_ignored(y, stages))
        logits = checks.sample_logits(model, _first_inputs(data))
        counted = checks.check_target(logits, y, stages, "train")
        checks.check_both_classes(logits, y, counted)
        checks.check_requirements(stages, logits, y)
        checks.judge_target(logits, y, stages, "training labels")
    if validation is not None and not isinstance(validation, FromLoader):
        held_out = _labels(validation)
        if counted is None:
            logits = checks.sample_logits(model, _first_inputs(validation), "validation")
            checks.judge_target(logits, held_out, stages, "validation labels")
        checks.check_target(logits, held_out, stages, "validation")
        checks.check_validation(stages, logits, held_out)
    one_column = counted is not None and (logits.dim() == 1 or logits.shape[1] == 1)
    return float(counted.double().mean()) if counted is not None and one_column else None


def _first_inputs(data: InMemory | FromDataset) -> Any:
    return data.x[:2] if isinstance(data, InMemory) else data.first()


def _quiet_logits(model: nn.Module, x: Any) -> Tensor:
    """The outputs for a few samples, leaving the random numbers alone."""
    with randomness.seeded(0):
        return checks.sample_logits(model, x)


def _own_precision(model: nn.Module) -> str:
    kinds = {given.dtype for given in model.parameters() if given.is_floating_point()}
    return "64-true" if kinds == {torch.float64} else "32-true"


@contextmanager
def _default_type(fabric: Fabric) -> Iterator[None]:
    """Fabric gives a model's outputs in torch's default type, so in double precision that must be float64."""
    before = torch.get_default_dtype()
    if fabric.strategy.precision.precision == "64-true":
        torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _begin(folder: RunFolder, spec: dict[str, Any], resume: bool, fabric: Fabric) -> dict[str, Any] | None:
    """Rank 0 makes the folder or refuses it; the result of a run that is finished there.

    Only rank 0 looks into the folder, which other machines may not see, and all ranks hear what it found.
    """
    refused: Exception | None = None
    result: dict[str, Any] | None = None
    if fabric.is_global_zero:
        try:
            folder.begin(spec, resume)
            result = folder.result() if folder.finished else None
        except (OSError, ValueError) as error:
            refused = error
    refused, result = fabric.broadcast((refused, result))
    if refused is not None:
        raise refused
    return result


def _measured_requirements(
    learner: OneModel, stage: Stage, train: Source, threshold: float
) -> tuple[RequirementResult, ...]:
    """Whether the last stage's requirements hold, on the validation set if there is one, else on the training set.

    Of the training set the user's own weights count, and not those of ``class_weight``.
    """
    if not has_requirements(stage):
        return ()
    rows = "train" if learner.validation is None else "validation"
    logits, whole = learner.logits(train if learner.validation is None else learner.validation)
    return measure_requirements(stage, threshold, logits, whole, rows)


def _warned(result: FitResult, fabric: Fabric) -> FitResult:
    """The result, after one process has warned of requirements that do not hold."""
    if fabric.is_global_zero:
        warn_of_unmet([result.requirements])
    return result
