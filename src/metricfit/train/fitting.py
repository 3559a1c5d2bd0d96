"""fit: train a model for the metric it is judged by."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from metricfit._version import __version__
from metricfit.metrics.base import Metric
from metricfit.train import checks
from metricfit.train.callbacks import Callback
from metricfit.train.class_weight import ClassWeight, weights_of
from metricfit.train.folder import RunFolder
from metricfit.train.history import History
from metricfit.train.learner import OneModel
from metricfit.train.loop import Loop
from metricfit.train.monitor import Monitor
from metricfit.train.order import Order, seed_of
from metricfit.train.samples import Batch, FromDataset, FromLoader, InMemory, Source, source
from metricfit.train.stage import MakeOptimizer, MakeScheduler, Stage, stages_of
from metricfit.train.start import start_at_prior as set_prior


@dataclass(frozen=True)
class FitResult:
    """What ``fit`` returns.

    Attributes:
        model: the trained model, with its best weights where there was a validation set, in eval mode.
        history: one row an epoch.
        best: the monitored value of the last stage's best epoch; NaN without validation.
        threshold: the threshold it was taken at; NaN where there is none.
        seconds: how long this call trained.
    """

    model: nn.Module
    history: History
    best: float
    threshold: float
    seconds: float


def fit(
    model: nn.Module,
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    validation: Any = None,
    epochs: int = 100,
    batch_size: int = 1024,
    lr: float = 1e-3,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
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
            moved to the device whole and indexed there.
        objective: a loss, or stages of training, such as ``recipes.two_stage("f1")``.
        validation: the same kinds as ``train``. With it the best weights are kept.
        epochs: at most so many in each stage that does not say otherwise; lr, optimizer, scheduler, monitor and
            patience likewise.
        batch_size: samples an optimiser step, over all processes together; batches are of nearly equal size.
        lr: the learning rate.
        optimizer: called as ``optimizer(parameters, lr=lr)``; by default AdamW.
        scheduler: called as ``scheduler(optimizer)``, stepped every epoch.
        monitor: "loss", a metric at 0.5, "best f1" for one at its best threshold, or a Monitor.
        patience: stop a stage after so many epochs without a better value.
        seed: of the order of samples, of dropout and of random augmentation; torch's own random numbers are left alone.
        checkpoint_dir: a folder for this run alone.
        checkpoint_every: in optimiser steps; by default once an epoch.
        resume: start in an empty folder, go on in a started one, return the result of a finished one.
        start_at_prior: set the last bias of a binary model to the share of positives; by default where it has one such
            bias. False to go on from trained weights.
        stratified: deal each class over the batches; each batch has a positive.
        oversample: repeat positives until they are this share of an epoch.
        class_weight: "balanced", or a weight for each class.
        accumulate: compute a batch in so many parts; the gradient is still that of the whole batch, for any loss.
        clip: the largest norm of the gradient.
        precision: Fabric's, such as "bf16-mixed" or "16-mixed"; by default the model's own type.
        accelerator: Fabric's: "cpu", "gpu", "auto".
        devices: how many processes on this machine; under torchrun, give ``--nproc-per-node``.
        num_nodes: how many machines.
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
    stages = stages_of(objective, **usual, patience=patience)
    data = source(train, "train", workers)
    held_out = None if validation is None else source(validation, "validation", workers)
    prior = _checked(model, data, held_out, stages, order, class_weight)
    if isinstance(data, InMemory):
        data = data.weighted(weights_of(data.y, data.weight, class_weight))
    elif class_weight is not None:
        raise ValueError("class_weight is for data in memory; let your Dataset give (x, y, weight)")
    checks.check_stages(stages, held_out is not None, isinstance(data, InMemory) and data.weight is not None)
    folder = None if checkpoint_dir is None else RunFolder(checkpoint_dir)
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=precision or _own_precision(model),  # type: ignore[arg-type]
    )
    fabric.launch()
    if folder is not None:
        spec = spec_of(model, stages, data, order, seed, fabric.world_size, accumulate, clip, checkpoint_every)
        _begin(folder, spec, resume, fabric)
        if folder.finished:
            return _finished(folder, model)
    if prior is not None and start_at_prior is not False:
        set_prior(model, prior, strict=start_at_prior is True)
    on_device = data.to(fabric.device) if isinstance(data, InMemory) else data
    held_out = held_out.to(fabric.device) if isinstance(held_out, InMemory) else held_out
    learner = OneModel(fabric, model, held_out, accumulate=accumulate, clip=clip)
    steps = len(data) if isinstance(data, FromLoader) else order.steps_of(_labels(data))
    shown = callbacks_shown(callbacks, progress) if fabric.is_global_zero else []
    loop = Loop(
        learner,
        stages,
        _batches(on_device, order, seed, fabric),
        steps,
        validated=held_out is not None,
        folder=folder,
        writes=fabric.is_global_zero,
        checkpoint_every=checkpoint_every,
        callbacks=shown,
    )
    on_gpu = [fabric.device] if fabric.device.type == "cuda" else []
    with torch.random.fork_rng(devices=on_gpu), _default_type(fabric):
        torch.manual_seed(seed_of(seed, "noise", fabric.global_rank))
        rows = loop.run()
    model.eval()
    standing = loop.at.standings[0]
    result = FitResult(model, History(rows), standing.best, standing.threshold, time.perf_counter() - began)
    if folder is not None and fabric.is_global_zero:
        _finish(folder, model, result, learner)
    fabric.barrier()
    return result


def _batches(data: Source, order: Order, seed: int, fabric: Fabric) -> Any:
    """The batches of an epoch from one on; of each, this rank's share."""
    labels = None if isinstance(data, FromLoader) else _labels(data)

    def of_epoch(stage: int, epoch: int, first: int) -> Iterator[Batch]:
        of_items = seed_of(seed, "items", stage, epoch)
        if isinstance(data, FromLoader):
            yield from data.batches(fabric.device, of_items, skip=first)
            return
        assert labels is not None
        whole = order.batches(labels, seed, stage, epoch)[first:]
        mine = [each.tensor_split(fabric.world_size)[fabric.global_rank] for each in whole]
        yield from data.batches(mine, fabric.device, of_items)

    return of_epoch


def _labels(data: InMemory | FromDataset) -> Tensor:
    return data.target.detach().cpu()


def _checked(
    model: nn.Module,
    data: Source,
    validation: Source | None,
    stages: Sequence[Stage],
    order: Order,
    class_weight: Any,
) -> float | None:
    """Look at what can be looked at before training; the share of positives of a binary problem."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {type(model).__name__}")
    if isinstance(data, FromLoader):
        if order.stratified or order.oversample is not None:
            raise ValueError("a DataLoader makes its own batches; for stratified or oversampled ones give a Dataset")
        return None
    y = _labels(data)
    order.check(y)
    x = data.x if isinstance(data, InMemory) else data.dataset[0][0].unsqueeze(0)
    logits = checks.sample_logits(model, x)
    checks.check_target(logits, y, "train")
    checks.check_both_classes(logits, y)
    checks.check_requirements(stages, logits, y)
    if validation is not None and not isinstance(validation, FromLoader):
        held_out = _labels(validation)
        checks.check_target(logits, held_out, "validation")
        checks.check_validation(stages, logits, held_out)
    columns = 1 if logits.dim() == 1 else logits.shape[1]
    return float(y.double().mean()) if columns == 1 else None


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


def callbacks_shown(callbacks: Sequence[Callback], progress: bool | None) -> list[Callback]:
    """The user's callbacks, and a progress bar where one is wanted."""
    shown = sys.stderr.isatty() if progress is None else progress
    if not shown:
        return list(callbacks)
    from metricfit.train.progress import ProgressBar

    return [*callbacks, ProgressBar()]


def _begin(folder: RunFolder, spec: dict[str, Any], resume: bool, fabric: Fabric) -> None:
    """Rank 0 makes the folder or refuses it; the others wait, and look for themselves."""
    if fabric.is_global_zero:
        folder.begin(spec, resume)
    fabric.barrier()
    if not fabric.is_global_zero:
        folder.begin(spec, resume=True)


def spec_of(
    model: nn.Module,
    stages: Sequence[Stage],
    data: Source,
    order: Order,
    seed: int,
    ranks: int,
    accumulate: int,
    clip: float | None,
    checkpoint_every: int | None,
) -> dict[str, Any]:
    """What a run is made of, so that another is not taken for it."""
    return {
        "model": {name: list(given.shape) for name, given in model.state_dict().items()},
        "stages": [
            {
                "name": stage.name,
                "objective": repr(stage.objective),
                "epochs": stage.epochs,
                "lr": stage.lr,
                "monitor": stage.watched.name,
                "patience": stage.patience,
            }
            for stage in stages
        ],
        "samples" if not isinstance(data, FromLoader) else "batches": len(data),
        "batch_size": order.batch_size,
        "stratified": order.stratified,
        "oversample": order.oversample,
        "seed": seed,
        "ranks": ranks,
        "accumulate": accumulate,
        "clip": clip,
        "checkpoint_every": checkpoint_every,
        "versions": {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def _finish(folder: RunFolder, model: nn.Module, result: FitResult, learner: OneModel) -> None:
    state = {
        "model": model.state_dict(),
        "objective": learner.objective.loss.state_dict(),
        "history": result.history.rows,
        "best": result.best,
        "threshold": result.threshold,
    }
    report = {
        "best": result.best,
        "threshold": result.threshold,
        "epochs": len(result.history),
        "steps_made": folder.steps_made,
        "seconds": result.seconds,
    }
    folder.finish(state, report)


def _finished(folder: RunFolder, model: nn.Module) -> FitResult:
    found = folder.result()
    model.load_state_dict(found["model"])
    model.eval()
    return FitResult(model, History(found["history"]), found["best"], found["threshold"], 0.0)
