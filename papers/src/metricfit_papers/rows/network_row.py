"""What rows are made of: populations of networks. Other kinds are beside it, all of them in registry."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metricfit.losses import DeadGradientWarning
from metricfit.train import Callback, FitResult, fit_population
from metricfit.train.callbacks import Outputs
from metricfit.train.class_weight import of_classes
from metricfit.train.order import seed_of
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.models.construction import network
from metricfit_papers.rows.trial_scores import Values, best_of, scored
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.expressions import made
from metricfit_papers.specs.table_spec import Protocol, Row, Training

#: Maximum number of rows in one forward pass of `logits_of`.
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Job:
    """One cell: a row's trials under a protocol, and what is to be measured; ``checkpoints`` is a folder of its own
    where training that takes long can be gone on with, None where it is short.
    """

    row: Row
    protocol: Protocol
    training: Training | None
    loss: str | None
    metrics: dict[str, str]
    views: list[str]
    device: str | None = None
    checkpoints: Path | None = None

    @property
    def cuda_graphs(self) -> bool:
        """Whether a step can be captured: solvers look at their numbers on the way."""
        return "AdversarialLoss" not in (self.loss or "")

    def values(self, trial: Trial, test: Tensor, watched: Tensor) -> Values:
        """A trial's numbers, from its logits of test and validation rows."""
        raw = self.protocol.thresholded == "outputs" and self.row.outputs == "logits"
        given = [of_positive(logits.detach().cpu().double()) for logits in (test, watched)]
        scores = given if raw else [torch.sigmoid(each) for each in given]
        labels = trial.y[trial.test], trial.y[trial.validation]
        (on_test, on_watched) = zip(scores, labels, strict=True)
        return scored(on_test, on_watched, self.metrics, self.views, auroc_of=self.protocol.auroc)


@dataclass(frozen=True)
class Trained:
    """A trial's numbers, how many epochs it took, the seconds each of them cost, and what a search chose for it."""

    values: Values
    epochs: int = 0
    seconds_an_epoch: float = 0.0
    chosen: Mapping[str, Any] = field(default_factory=dict)


def of_positive(logits: Tensor) -> Tensor:
    """One logit a sample; of two outputs, one a class, their difference, whose sigmoid is the softmax.

    >>> of_positive(torch.tensor([[1.0, 3.0]])), of_positive(torch.tensor([[2.0]]))
    (tensor([2.]), tensor([2.]))
    """
    return logits[:, 1] - logits[:, 0] if logits.dim() == 2 and logits.shape[1] == 2 else logits.reshape(-1)


Kind = Callable[[Job, Sequence[Trial]], list[Trained]]


def networks(job: Job, trials: Sequence[Trial]) -> list[Trained]:
    """All trials as one population; as several, where their inputs differ in width."""
    found: dict[int, Trained] = {}
    for group in of_equal_width(trials):
        for trial, trained in zip(group, _population(job, group), strict=True):
            found[trial.number] = trained
    return [found[trial.number] for trial in trials]


def of_equal_width(trials: Sequence[Trial]) -> Iterator[list[Trial]]:
    """Trials whose inputs can be stacked."""
    for width in sorted({trial.x.shape[1] for trial in trials}):
        yield [trial for trial in trials if trial.x.shape[1] == width]


def _population(job: Job, trials: Sequence[Trial]) -> list[Trained]:
    checkpoints = Checkpoints(job, trials)
    watching = job.protocol.checkpoint == "best test"
    results = fitted(job, trials, callbacks=[checkpoints]) if watching else fitted(job, trials, resumes=True)
    epochs = [len(result.history) for result in results]
    each = results[0].seconds / sum(epochs)
    if not watching:
        for at, result in enumerate(results):
            checkpoints.look(at, *(logits_of(result.model, rows) for rows in checkpoints.inputs[at]))
    return [Trained(checkpoints.values[at], count, each) for at, count in enumerate(epochs)]


def fitted(
    job: Job,
    trials: Sequence[Trial],
    *,
    lr: Sequence[float] | None = None,
    callbacks: Sequence[Callback] = (),
    objective: torch.nn.Module | None = None,
    models: Sequence[torch.nn.Module] | None = None,
    resumes: bool = False,
) -> list[FitResult]:
    """The trials' networks, trained as one population.

    ``lr`` gives each its own rate; ``objective`` is another loss than the job's, and ``models`` are networks that have
    begun already. With ``resumes``, for a cell's only training and no callbacks that remember, it goes on from the
    job's last checkpoint.
    """
    training = job.training
    assert training is not None
    assert job.loss is not None
    class_weight = job.row.class_weight
    watched_too = class_weight if training.monitor == "loss" else None
    x, y, offsets = _together(trials, apart=watched_too is not None)
    weights = [] if watched_too is None else [_class_weights(watched_too, y, trials, offsets)]
    if models is None:
        models = [network(training.network, x.shape[1], trial.number) for trial in trials]
    with warnings.catch_warnings():
        # Some published losses do stop learning; their numbers show it.
        warnings.simplefilter("ignore", DeadGradientWarning)
        return fit_population(
            models,
            (x, y, *weights),
            made(job.loss, vocabulary.LOSSES) if objective is None else objective,
            splits=[(trial.train + at, trial.validation + at) for trial, at in zip(trials, offsets, strict=True)],
            seeds=[seed_of("order", trial.number) for trial in trials],
            lr=training.lr if lr is None else lr,
            epochs=training.epochs,
            batch_size=training.batch_size or max(len(trial.train) for trial in trials),
            optimizer=partial(optimizer_of, training.optimizer),
            monitor=training.monitor,
            patience=training.patience or None,
            start_at_prior=False,
            class_weight=None if weights else class_weight,
            oversample=job.row.oversample,
            device=job.device,
            precision=training.precision,
            cuda_graphs=job.cuda_graphs,
            callbacks=callbacks,
            progress=False,
            **(_kept(job.checkpoints, training, trials) if resumes and job.checkpoints is not None else {}),
        )


def _kept(folder: Path, training: Training, trials: Sequence[Trial]) -> dict[str, Any]:
    """Ten checkpoints in all: those of deep networks are large."""
    longest = max(len(trial.train) for trial in trials)
    steps = -(-longest // (training.batch_size or longest))
    every = steps * max(1, training.epochs // 10)
    return {"checkpoint_dir": folder, "checkpoint_every": every, "resume": True}


class Checkpoints(Callback):
    """The best value of each number over the weights that were kept, or of those looked at last."""

    def __init__(self, job: Job, trials: Sequence[Trial]) -> None:
        self.job, self.trials = job, trials
        self.inputs = [(trial.test_rows()[0], trial.validation_rows()[0]) for trial in trials]
        self.values: dict[int, Values] = {}

    def improved(self, members: Sequence[int], outputs: Outputs) -> None:
        """Measure these members on their test rows."""
        both = outputs([torch.cat(self.inputs[member]) for member in members])
        for member, logits in zip(members, both, strict=True):
            ends = len(self.inputs[member][0])
            self.look(member, logits[:ends], logits[ends:])

    def look(self, member: int, test: Tensor, watched: Tensor) -> None:
        """Keep what is better."""
        self.values[member] = best_of(self.values.get(member), self.job.values(self.trials[member], test, watched))


def _together(trials: Sequence[Trial], apart: bool) -> tuple[Tensor, Tensor, list[int]]:
    """All trials' rows one after another, and where each trial's begin; shared tensors once.

    With ``apart`` trials that train on different rows share none.
    """
    keys = [(id(trial.x), id(trial.train) if apart else 0) for trial in trials]
    first: dict[tuple[int, int], int] = {}
    parts: list[Trial] = []
    rows = 0
    for trial, key in zip(trials, keys, strict=True):
        if key not in first:
            first[key] = rows
            rows += len(trial.x)
            parts.append(trial)
    offsets = [first[key] for key in keys]
    if len(parts) == 1:
        return parts[0].x, parts[0].y, offsets
    return torch.cat([each.x for each in parts]), torch.cat([each.y for each in parts]), offsets


def _class_weights(wanted: str, y: Tensor, trials: Sequence[Trial], offsets: Sequence[int]) -> Tensor:
    """A weight for every row, from its trial's training rows: the watched loss is weighted as the trained one."""
    weight = torch.ones(len(y))
    for trial, at in zip(trials, offsets, strict=True):
        of_class = of_classes(trial.y[trial.train], wanted, classes=2)
        weight[at : at + len(trial.y)] = of_class[trial.y]
    return weight


def optimizer_of(text: str, parameters: Any, lr: float) -> Any:
    """The optimiser that a text names."""
    return made(text, vocabulary.OPTIMIZERS, params=parameters, lr=lr)


@torch.no_grad()
def logits_of(model: torch.nn.Module, x: Tensor) -> Tensor:
    """A model's logits of these inputs, on the CPU."""
    device = next(model.parameters()).device
    return torch.cat([model.eval()(part.to(device)) for part in torch.split(x, ROWS_AT_ONCE)]).cpu()
