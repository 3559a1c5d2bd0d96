"""fit_population and fit_folds: many models at once, and the ensemble that a population over folds makes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.metrics.base import Formula, Metric
from metricfit.metrics.curves import BestThreshold, Requirements, best_threshold
from metricfit.train import checks, randomness
from metricfit.train.callbacks import Callback
from metricfit.train.class_weight import ClassWeight, of_classes
from metricfit.train.fitting import FitResult, callbacks_shown, folder_of
from metricfit.train.folder import RunFolder
from metricfit.train.history import History, Row
from metricfit.train.inside import fingerprint
from metricfit.train.loop import Loop, Standing
from metricfit.train.member_checks import check_members, check_norms, check_optimizers, check_splits, rates_of
from metricfit.train.monitor import Monitor
from metricfit.train.order import Order, seed_of
from metricfit.train.population import Population, Stacked, filled, with_state
from metricfit.train.samples import Batch, InMemory, as_tensor, source, type_of
from metricfit.train.spec import spec_of
from metricfit.train.stage import MakeOptimizer, MakeScheduler, Stage, stages_of
from metricfit.train.start import start_at_prior as set_prior

Split = tuple[Any, Any]


def fit_population(  # noqa: D417 (the arguments of fit are described there)
    models: Sequence[nn.Module],
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    splits: Sequence[Split] | None = None,
    validation: Any = None,
    seeds: Sequence[int] | None = None,
    lr: float | Iterable[float] = 1e-3,
    epochs: int = 100,
    batch_size: int = 1024,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    monitor: str | Metric | Monitor = "loss",
    patience: int | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    start_at_prior: bool | None = None,
    stratified: bool = False,
    oversample: float | None = None,
    class_weight: ClassWeight | None = None,
    clip: float | None = None,
    device: str | torch.device | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> list[FitResult]:
    """Train several models of one architecture as one computation; each learns what ``fit`` alone would teach it.

    Args:
        models: the members, trained in place.
        train: ``(X, y)`` or ``(X, y, weight)``, shared by all.
        objective: a loss, or stages; every member has a copy of its own, multipliers and memory included.
        splits: for each member its training and validation samples, as numbers into ``train``; without, all train on
            everything.
        validation: ``(X, y)`` for all members, where there are no splits.
        seeds: each member's seed; by default 0, 1, 2 and so on.
        lr: one learning rate, or a list, an array or a tensor with one a member.
        optimizer: as of ``fit``, one of torch.optim that moves each weight by its own gradient alone.
        device: where; by default a GPU if there is one.

    The other arguments are those of ``fit``. All members make as many steps an epoch as the one with the most samples.
    Returns a FitResult for each member.

    >>> from metricfit.losses import WeightedBCELoss
    >>> x = torch.randn(64, 3)
    >>> several = fit_population([nn.Linear(3, 1) for _ in range(4)], (x, x[:, 0] > 0), WeightedBCELoss(), epochs=2)
    >>> [len(each.history) for each in several]
    [2, 2, 2, 2]
    """
    began = time.perf_counter()
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    order = Order(batch_size, stratified, oversample)
    rates = rates_of(lr, len(models))
    seeds = list(range(len(models))) if seeds is None else list(seeds)
    check_members(models, rates, seeds, splits, validation)
    usual = {"epochs": epochs, "optimizer": optimizer, "scheduler": scheduler, "monitor": monitor}
    stages = stages_of(objective, **usual, patience=patience)
    lr_of_stages = [rates if stage.lr is None else [stage.lr] * len(models) for stage in stages]
    stages = [stage.filled(lr=max(rates)) for stage in stages]
    data, trained, held_out = _samples(train, splits, validation, len(models))
    labels = data.y.detach().cpu()
    checks.check_numbers(1, clip)
    checks.check_stages(stages, held_out is not None, data.weight is not None or class_weight is not None)
    check_optimizers(models[0], stages, lr_of_stages)
    logits = checks.sample_logits(models[0], data.x)
    if start_at_prior and logits.dim() > 1 and logits.shape[1] > 1:
        raise ValueError(f"start_at_prior=True needs one output, the members have {logits.shape[1]}")
    data = data.typed(type_of(models[0]))
    priors = []
    for member in range(len(models)):
        mine = labels[trained[member]]
        order.check(mine)
        counted = checks.check_target(logits, mine, stages, "train")
        checks.check_both_classes(logits, mine, counted)
        checks.check_requirements(stages, logits, mine)
        if held_out is not None:
            name = f"validation (of member {member})"
            checks.check_target(logits, labels[held_out[member]], stages, name)
            checks.check_validation(stages, logits, labels[held_out[member]], name)
        priors.append(float(counted.double().mean()))
    steps = max(order.steps_of(labels[each]) for each in trained)
    check_norms(models[0], [labels[each] for each in trained], order, steps)
    folder = folder_of(checkpoint_dir, checkpoint_every, resume)
    with folder or nullcontext():
        if folder is not None:
            drawn = [fingerprint(torch.cat(each)) for each in zip(trained, held_out or trained, strict=True)]
            settings = {"seeds": seeds, "rates": rates, "splits": drawn, "class_weight": class_weight, "clip": clip}
            settings |= {"checkpoint_every": checkpoint_every, "start_at_prior": start_at_prior}
            folder.begin(spec_of(models[0], stages, data, None, order, **settings), resume)
            if folder.finished:
                return _from_folder(folder, [model.to(where) for model in models], stages[-1].objective)
        if start_at_prior is not False and (logits.dim() == 1 or logits.shape[1] == 1):
            for model, prior in zip(models, priors, strict=True):
                set_prior(
                    model,
                    prior,
                    strict=start_at_prior is True,
                    logits=lambda model=model: checks.sample_logits(model, data.x[:2]),  # type: ignore[misc]
                )
        data = data.to(where)
        learner = Population(
            models,
            data,
            None if held_out is None else [each.to(where) for each in held_out],
            clip=clip,
        )
        loop = Loop(
            learner,
            stages,
            _batches(learner, data, labels, trained, order, seeds, steps, class_weight),
            steps,
            lr=lr_of_stages,
            validated=held_out is not None,
            folder=folder,
            checkpoint_every=checkpoint_every,
            callbacks=callbacks_shown(callbacks, progress),
        )
        with randomness.of_run(seed_of(*seeds, "noise"), where):
            rows = loop.run()
        learner.finish()
        results = _results(models, learner.objectives(), rows, steps, loop.at.standings, time.perf_counter() - began)
        if folder is not None:
            _to_folder(folder, results)
        return results


@dataclass(frozen=True)
class Ensemble:
    """The members of ``fit_folds``: their logits are averaged.

    Attributes:
        members: each member's FitResult.
        out_of_fold: each training sample's logits by the members that did not train on it.
        threshold: the best threshold on those, for the metric that was asked for; None if none was.
        value: the metric there.
        exclusive: whether one of several classes is right, so that the largest logit decides.
    """

    members: list[FitResult]
    out_of_fold: Tensor
    threshold: float | None
    value: float | None
    exclusive: bool = False

    @torch.no_grad()
    def logits(self, x: Any, chunk: int = 8192) -> Tensor:
        """The mean of the members' logits."""
        first = self.members[0].model
        inputs = as_tensor(x, "x", keep=True)
        inputs = inputs.to(type_of(first)) if inputs.is_floating_point() else inputs
        device = next(first.parameters()).device
        parts = [
            torch.stack([each.model(part.to(device)) for each in self.members]).mean(0)
            for part in torch.split(inputs, chunk)
        ]
        return torch.cat(parts)

    def predict(self, x: Any) -> Tensor:
        """Decisions: of two classes, or of several labels, at the threshold, 0.5 if none was tuned."""
        logits = self.logits(x)
        if self.exclusive:
            return logits.argmax(1)
        scores = torch.sigmoid(logits)
        if scores.dim() == 2 and scores.shape[1] == 1:
            scores = scores.squeeze(1)
        return (scores >= (0.5 if self.threshold is None else self.threshold)).long()


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
    """An ensemble over folds: each member trains on all folds but one, and stops and is judged on that one.

    Args:
        make_model: makes a fresh model.
        train: ``(X, y)`` or ``(X, y, weight)``.
        objective: a loss, or stages.
        folds: how many stratified folds, or for each member its training and validation samples.
        metric: what the threshold of a binary problem is tuned for, on the out-of-fold logits; None leaves it.
        subject_to: requirements on that threshold.
        seed: of the folds, the members' weights and their batches.
        settings: those of ``fit_population``.

    >>> from metricfit.losses import WeightedBCELoss
    >>> x = torch.randn(80, 3)
    >>> found = fit_folds(lambda: nn.Linear(3, 1), (x, x[:, 0] > 0), WeightedBCELoss(), folds=4, metric="f1", epochs=2)
    >>> found.out_of_fold.shape, len(found.members)
    (torch.Size([80, 1]), 4)
    """
    if isinstance(make_model, nn.Module) or not callable(make_model):
        raise TypeError(
            "make_model is called to make a fresh model for each fold, such as lambda: nn.Linear(3, 1); got a "
            f"{type(make_model).__name__}"
        )
    if subject_to is not None and metric is None:
        raise ValueError("subject_to is of the threshold that metric= tunes; give metric= as well")
    data = source(train, "train")
    if not isinstance(data, InMemory):
        raise TypeError("fit_folds needs data in memory: (X, y) or (X, y, weight)")
    splits = stratified_folds(data.y, int(folds), seed) if isinstance(folds, (int, Integral)) else list(folds)
    models, seeds = [], [seed_of(seed, "member", member) for member in range(len(splits))]
    for each in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(each)
            models.append(make_model())
    sample = checks.sample_logits(models[0], data.x)
    if metric is not None and sample.dim() > 1 and sample.shape[1] > 1:
        raise ValueError(
            f"metric= tunes the threshold of one output, the model has {sample.shape[1]}; leave it out, and give the "
            "metric to the objective or to monitor="
        )
    exclusive = checks.is_exclusive(sample, data.y)
    members = fit_population(models, data, objective, splits=splits, seeds=seeds, **settings)
    logits = _out_of_fold(members, data, splits)
    if metric is None:
        return Ensemble(members, logits, None, None, exclusive)
    scores = torch.sigmoid(logits).reshape(-1)
    seen = torch.zeros(len(data), dtype=torch.bool)
    for _, held_out in splits:
        seen[_numbers(held_out)] = True
    weight = None if data.weight is None else data.weight.cpu()[seen]
    found: BestThreshold = best_threshold(
        scores[seen], data.y.cpu()[seen].reshape(-1), metric, subject_to=subject_to, weight=weight
    )
    return Ensemble(members, logits, found.threshold, found.value)


def stratified_folds(y: Tensor, folds: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """For each fold the samples outside and inside it, each class dealt out evenly."""
    if y.dim() > 1 and y.shape[1:].numel() > 1:
        raise ValueError(
            f"stratified folds need one label a sample, these have shape {tuple(y.shape)}; give folds as a list of "
            "(training, validation) samples"
        )
    labels = y.detach().cpu().reshape(-1)
    fewest = int(torch.unique(labels, return_counts=True)[1].min()) if len(labels) else 0
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}: each member trains on all folds but one")
    if folds > fewest:
        raise ValueError(f"{folds} folds need {folds} samples of each class; the rarest has {fewest}. Give fewer folds")
    generator = torch.Generator().manual_seed(seed_of(seed, "folds"))
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    fold = torch.empty(len(labels), dtype=torch.long)
    fold[by_class] = torch.arange(len(labels)) % folds
    return [((fold != each).nonzero().flatten(), (fold == each).nonzero().flatten()) for each in range(folds)]


@torch.no_grad()
def _out_of_fold(members: Sequence[FitResult], data: InMemory, splits: Sequence[Split], chunk: int = 8192) -> Tensor:
    """Each sample's logits by the members that held it out, averaged where several did; NaN where none did."""
    total: Tensor | None = None
    times = torch.zeros(len(data))
    for member, (_, held_out) in zip(members, splits, strict=True):
        device = next(member.model.parameters()).device
        index = _numbers(held_out)
        x = data.x[index.to(data.x.device)]
        x = x.to(type_of(member.model)) if x.is_floating_point() else x
        logits = torch.cat([member.model(part.to(device)) for part in torch.split(x, chunk)]).cpu()
        if total is None:
            total = logits.new_zeros(len(data), *logits.shape[1:])
        total.index_add_(0, index, logits)
        times.index_add_(0, index, torch.ones(len(index)))
    assert total is not None
    return total / times.to(total.dtype).reshape(-1, *(1,) * (total.dim() - 1))


def _batches(
    learner: Population,
    data: InMemory,
    labels: Tensor,
    trained: Sequence[Tensor],
    order: Order,
    seeds: Sequence[int],
    steps: int,
    class_weight: ClassWeight | None,
) -> Callable[[int, int, int], Iterator[Batch]]:
    """Batches with an axis of active members in front, each sample with its number among its member's own."""
    by_class: Tensor | None = None
    if class_weight is not None:
        classes = int(labels.max()) + 1
        by_class = torch.stack([of_classes(labels[each], class_weight, classes) for each in trained])
        by_class = by_class.to(data.y.device)

    def of_epoch(stage: int, epoch: int, first: int) -> Iterator[Batch]:
        active = list(learner.active)
        device, own = data.y.device, []  # own: for each member, for each batch, positions among its samples
        for each in active:
            own.append(order.batches(labels[trained[each]], seeds[each], stage, epoch, steps))
        # All of the epoch's numbers at once: on a GPU, one copy instead of one a step.
        of_steps = [mine for at in range(first, steps) for mine in (batches[at] for batches in own)]
        positions, lengths = filled(of_steps)
        numbers = torch.stack([trained[active[at % len(active)]][mine] for at, mine in enumerate(positions)]).to(device)
        positions = positions.to(device)
        for at in range(0, len(of_steps), len(active)):
            mine = lengths[at : at + len(active)]
            rows = slice(at, at + len(active)), slice(max(mine))
            batch = data.take(numbers[rows])
            weight = batch.weight
            if by_class is not None:
                chosen = by_class[active].gather(1, batch.y.long().reshape(len(active), -1))
                weight = chosen if weight is None else chosen * weight
            yield Stacked(batch.x, batch.y, weight, positions[rows], mine)

    return of_epoch


def _samples(
    train: Any, splits: Sequence[Split] | None, validation: Any, members: int
) -> tuple[InMemory, list[Tensor], list[Tensor] | None]:
    """All tensors in one place, and each member's training and validation samples as numbers into them."""
    data = source(train, "train")
    if not isinstance(data, InMemory):
        raise TypeError("a population trains on data in memory: (X, y) or (X, y, weight)")
    if splits is not None:
        parts = [[_numbers(each) for each in split] for split in splits]
        check_splits(parts, len(data))
        return data, [part[0] for part in parts], [part[1] for part in parts]
    everything = torch.arange(len(data))
    if validation is None:
        return data, [everything] * members, None
    held_out = source(validation, "validation")
    if not isinstance(held_out, InMemory) or (held_out.weight is None) != (data.weight is None):
        raise TypeError("validation must be like train: (X, y), or (X, y, weight) for both")
    weight = None if data.weight is None or held_out.weight is None else torch.cat([data.weight, held_out.weight])
    both = InMemory(torch.cat([data.x, held_out.x]), torch.cat([data.y, held_out.y]), weight)
    return both, [everything] * members, [len(data) + torch.arange(len(held_out))] * members


def _numbers(given: Any) -> Tensor:
    """Samples by their numbers; a mask of them is one that tells which."""
    numbers = torch.as_tensor(given).cpu()
    return numbers.nonzero().flatten() if numbers.dtype == torch.bool else numbers.long()


def _results(
    models: Sequence[nn.Module],
    objectives: Sequence[nn.Module],
    rows: Sequence[Row],
    steps: int,
    standings: Sequence[Standing],
    seconds: float,
) -> list[FitResult]:
    """Each member's share; its steps are counted without those that others made after it had stopped."""
    several = len(models) > 1
    results = []
    for member, (model, objective, standing) in enumerate(zip(models, objectives, standings, strict=True)):
        mine = [
            {name: value for name, value in row.items() if name != "member"}
            for row in rows
            if not several or row["member"] == member
        ]
        mine = [{**row, "step": steps * (epoch + 1)} for epoch, row in enumerate(mine)]
        history = History(mine)
        results.append(FitResult(model.eval(), history, standing.best, standing.threshold, seconds, objective))
    return results


def _to_folder(folder: RunFolder, results: Sequence[FitResult]) -> None:
    states = [
        {
            "model": each.model.state_dict(),
            "objective": None if each.objective is None else each.objective.state_dict(),
            "history": each.history.rows,
            "best": each.best,
            "threshold": each.threshold,
        }
        for each in results
    ]
    report = {
        "members": len(results),
        "best": [each.best for each in results],
        "threshold": [each.threshold for each in results],
        "epochs": [len(each.history) for each in results],
        "steps_made": folder.steps_made,
        "seconds": results[0].seconds,
    }
    folder.finish({"members": states}, report)


def _from_folder(folder: RunFolder, models: Sequence[nn.Module], objective: nn.Module) -> list[FitResult]:
    results = []
    for model, found in zip(models, folder.result()["members"], strict=True):
        model.load_state_dict(found["model"])
        learned = with_state(objective, found["objective"])
        history = History(found["history"])
        results.append(FitResult(model.eval(), history, found["best"], found["threshold"], 0.0, learned))
    return results
