"""fit_population: several models of one architecture, trained as one computation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics.metric import Metric
from metricfit.train import checks
from metricfit.train.callbacks import Callback, callbacks_shown
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.folder import folder_of
from metricfit.train.checkpoint.provenance import fingerprint
from metricfit.train.checkpoint.run_spec import spec_of
from metricfit.train.data.batches import SAMPLES_AT_ONCE, Batch
from metricfit.train.data.class_weight import ClassWeight, of_classes, of_labels
from metricfit.train.data.groups import with_groups
from metricfit.train.data.order import Order, seed_of
from metricfit.train.data.samples import InMemory, as_tensor, source, type_of
from metricfit.train.engine.loop import Loop, Standing
from metricfit.train.engine.member_checks import check_members, check_norms, check_optimizers, check_splits, rates_of
from metricfit.train.engine.population_learner import Population
from metricfit.train.engine.schedules import MakeScheduler
from metricfit.train.engine.stacked_tensors import Stacked, filled
from metricfit.train.engine.validation import RequirementResult, has_requirements, measure_requirements, warn_of_unmet
from metricfit.train.history import History, Row
from metricfit.train.monitor import Monitor
from metricfit.train.prior import start_at_prior as set_prior
from metricfit.train.result import FitResult, report_of
from metricfit.train.stage import DEFAULT_LR, MakeOptimizer, Stage, stages_of, without_ignored

Split = tuple[Any, Any]


def fit_population(  # noqa: D417 (the arguments of fit are described there)
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
    scheduler_step: str | None = None,
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
    precision: str | None = None,
    cuda_graphs: bool = False,
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
        optimizer: as of ``fit``, one of torch.optim that moves each weight by its own gradient alone; called again, as
            is the scheduler, when members stop and the others go on.
        device: where; by default a GPU if there is one.
        precision: "bf16-mixed" for forward passes under autocast; by default the models' own type.
        cuda_graphs: whether a step on a GPU is captured once and replayed, which is several times as fast where
            networks are small. A loss or model that copies numbers to the GPU in each step is refused with an error.

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
    usual |= {"scheduler_step": scheduler_step}
    stages = stages_of(objective, **usual, patience=patience)
    lr_of_stages = [rates if stage.lr is None else [stage.lr] * len(models) for stage in stages]
    stages = [stage.filled(lr=max(rates)) for stage in stages]
    everything, trained, held_out = _samples(train, splits, validation, len(models))
    if validation is not None and groups is not None and validation_groups is not None:
        groups = torch.cat([as_tensor(groups, "groups"), as_tensor(validation_groups, "validation_groups")])
    elif validation is not None and (groups is None) != (validation_groups is None):
        raise InvalidValueError("groups and validation_groups go together: give both, or none")
    data = with_groups(everything, groups, stages, "train", "groups")
    assert isinstance(data, InMemory)
    labels = data.y.detach().cpu()
    known = without_ignored(labels, stages)
    checks.check_numbers(1, clip)
    checks.check_stages(stages, held_out is not None, data.weight is not None or class_weight is not None)
    logits = checks.sample_logits(models[0], data.x)
    if start_at_prior and logits.dim() > 1 and logits.shape[1] > 1:
        raise InvalidValueError(f"start_at_prior=True needs one output, the members have {logits.shape[1]}")
    checks.judge_target(logits, labels, stages, "training labels")
    data = data.typed(type_of(models[0]))
    priors = []
    for member in range(len(models)):
        mine = labels[trained[member]]
        order.check(known[trained[member]])
        counted = checks.check_target(logits, mine, stages, "train")
        checks.check_both_classes(logits, mine, counted)
        checks.check_requirements(stages, logits, mine)
        if held_out is not None:
            name = f"validation (of member {member})"
            checks.check_target(logits, labels[held_out[member]], stages, name)
            checks.check_validation(stages, logits, labels[held_out[member]], name)
        priors.append(float(counted.double().mean()))
    own_labels = [known[each] for each in trained]
    steps = max(map(order.steps_of, own_labels))
    check_optimizers(models[0], stages, lr_of_stages, steps)
    check_norms(models[0], own_labels, order, steps)
    folder = folder_of(checkpoint_dir, checkpoint_every, resume)
    with folder or nullcontext():
        if folder is not None:
            drawn = [fingerprint(torch.cat(each)) for each in zip(trained, held_out or trained, strict=True)]
            settings = {"seeds": seeds, "rates": rates, "splits": drawn, "class_weight": class_weight, "clip": clip}
            settings |= {"checkpoint_every": checkpoint_every, "start_at_prior": start_at_prior}
            settings |= {} if precision is None else {"precision": precision}
            folder.begin(spec_of(models[0], stages, data, None, order, **settings), resume)
            if folder.finished:
                states, objective = folder.result()["members"], stages[-1].objective
                results = [
                    FitResult.from_state(state, model.to(where), objective)
                    for model, state in zip(models, states, strict=True)
                ]
                warn_of_unmet([result.requirements for result in results])
                return results
        if start_at_prior is not False and (logits.dim() == 1 or logits.shape[1] == 1):
            for model, prior in zip(models, priors, strict=True):
                set_prior(
                    model,
                    prior,
                    strict=start_at_prior is True,
                    fresh_only=start_at_prior is None,
                    logits=lambda model=model: checks.sample_logits(model, data.x[:2]),  # type: ignore[misc]
                )
        data = data.to(where)
        learner = Population(
            models,
            data,
            None if held_out is None else [each.to(where) for each in held_out],
            clip=clip,
            precision=precision,
            cuda_graphs=cuda_graphs,
        )
        loop = Loop(
            learner,
            stages,
            _batches(learner, data, known, trained, order, seeds, steps, class_weight),
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
        standings, seconds = loop.at.standings, time.perf_counter() - began
        requirements = _measured_requirements(models, stages[-1], data, held_out, trained, standings)
        results = _results(models, learner.objectives(), rows, steps, standings, seconds, requirements)
        if folder is not None:
            states = {"members": [result.state() for result in results]}
            folder.finish(states, {"members": len(results), **report_of(results), "steps_made": folder.steps_made})
        warn_of_unmet([result.requirements for result in results])
        return results


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
    """Batches with an axis of active members in front, each sample with its number among its member's own.

    ``labels`` are those of ``data``, ignored ones as -1.
    """
    by_class: Tensor | None = None
    if class_weight is not None:
        classes = int(labels.max()) + 1
        by_class = torch.stack([of_classes(labels[each], class_weight, classes) for each in trained])
        by_class, weighed = by_class.to(data.y.device), labels.long().reshape(-1).to(data.y.device)

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
                chosen = of_labels(by_class[active], weighed[numbers[rows]])
                weight = chosen if weight is None else chosen * weight
            yield Stacked(batch.x, batch.y, weight, positions[rows], batch.group, mine)

    return of_epoch


def _samples(
    train: Any, splits: Sequence[Split] | None, validation: Any, members: int
) -> tuple[InMemory, list[Tensor], list[Tensor] | None]:
    """All tensors in one place, and each member's training and validation samples as numbers into them."""
    data = source(train, "train")
    if not isinstance(data, InMemory):
        raise InvalidTypeError("a population trains on data in memory: (X, y) or (X, y, weight)")
    if splits is not None:
        parts = [[numbers_of(each) for each in split] for split in splits]
        check_splits(parts, len(data))
        return data, [part[0] for part in parts], [part[1] for part in parts]
    everything = torch.arange(len(data))
    if validation is None:
        return data, [everything] * members, None
    held_out = source(validation, "validation")
    if not isinstance(held_out, InMemory) or (held_out.weight is None) != (data.weight is None):
        raise InvalidTypeError("validation must be like train: (X, y), or (X, y, weight) for both")
    weight = None if data.weight is None or held_out.weight is None else torch.cat([data.weight, held_out.weight])
    both = InMemory(torch.cat([data.x, held_out.x]), torch.cat([data.y, held_out.y]), weight)
    return both, [everything] * members, [len(data) + torch.arange(len(held_out))] * members


def numbers_of(given: Any) -> Tensor:
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
    requirements: Sequence[tuple[RequirementResult, ...]],
) -> list[FitResult]:
    """Each member's share; its steps are counted without those that others made after it had stopped."""
    histories: list[list[Row]] = [[] for _ in models]
    for row in rows:
        mine = histories[row.get("member", 0)]
        own = {name: value for name, value in row.items() if name != "member"}
        mine.append({**own, "step": steps * (len(mine) + 1)})
    return [
        FitResult(model.eval(), History(mine), standing.best, standing.threshold, seconds, objective, held)
        for model, mine, standing, objective, held in zip(
            models, histories, standings, objectives, requirements, strict=True
        )
    ]


@torch.no_grad()
def _measured_requirements(
    models: Sequence[nn.Module],
    stage: Stage,
    data: InMemory,
    held_out: Sequence[Tensor] | None,
    trained: Sequence[Tensor],
    standings: Sequence[Standing],
) -> list[tuple[RequirementResult, ...]]:
    """Whether the last stage's requirements hold for each member, on its validation or else its training samples."""
    if not has_requirements(stage):
        return [()] * len(models)
    rows = "train" if held_out is None else "validation"
    results = []
    for model, samples, standing in zip(models, trained if held_out is None else held_out, standings, strict=True):
        device = next(model.parameters()).device
        whole = data.take(samples.to(data.y.device))
        logits = torch.cat([model.eval()(part.to(device)) for part in torch.split(whole.x, SAMPLES_AT_ONCE)]).to(
            data.y.device
        )
        results.append(measure_requirements(stage, standing.threshold, logits, whole, rows))
    return results
