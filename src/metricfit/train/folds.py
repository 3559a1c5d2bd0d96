"""fit_folds: an ensemble over folds, whose members are judged, and their threshold tuned, on what they left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.core.numerics import is_positive
from metricfit.decide.probability_thresholds import best_probability_threshold
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics.curves import Requirements
from metricfit.metrics.metric import Formula, Metric
from metricfit.train import checks
from metricfit.train.data.batches import SAMPLES_AT_ONCE
from metricfit.train.data.order import seed_of
from metricfit.train.data.samples import InMemory, as_tensor, source, type_of
from metricfit.train.engine.validation import UnmetRequirementWarning
from metricfit.train.population import Split, fit_population, numbers_of
from metricfit.train.result import FitResult
from metricfit.train.stage import Stage


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
    def logits(self, x: Any, chunk: int = SAMPLES_AT_ONCE) -> Tensor:
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
        if logits.dim() == 2 and logits.shape[1] == 1:
            logits = logits.squeeze(1)
        return is_positive(logits, 0.5 if self.threshold is None else self.threshold).long()


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
        raise InvalidTypeError(
            "make_model is called to make a fresh model for each fold, such as lambda: nn.Linear(3, 1); got a "
            f"{type(make_model).__name__}"
        )
    if subject_to is not None and metric is None:
        raise InvalidValueError("subject_to is of the threshold that metric= tunes; give metric= as well")
    data = source(train, "train")
    if not isinstance(data, InMemory):
        raise InvalidTypeError("fit_folds needs data in memory: (X, y) or (X, y, weight)")
    splits = stratified_folds(data.y, int(folds), seed) if isinstance(folds, (int, Integral)) else list(folds)
    models, seeds = [], [seed_of(seed, "member", member) for member in range(len(splits))]
    for each in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(each)
            models.append(make_model())
    sample = checks.sample_logits(models[0], data.x)
    if metric is not None and sample.dim() > 1 and sample.shape[1] > 1:
        raise InvalidValueError(
            f"metric= tunes the threshold of one output, the model has {sample.shape[1]}; leave it out, and give the "
            "metric to the objective or to monitor="
        )
    exclusive = checks.is_exclusive(sample, data.y)
    with warnings.catch_warnings():
        if subject_to is not None:  # the ensemble's own threshold is to meet the requirements, not each member at 0.5
            warnings.simplefilter("ignore", UnmetRequirementWarning)
        members = fit_population(models, data, objective, splits=splits, seeds=seeds, **settings)
    logits = _out_of_fold(members, data, splits)
    if metric is None:
        return Ensemble(members, logits, None, None, exclusive)
    seen = torch.zeros(len(data), dtype=torch.bool)
    for _, held_out in splits:
        seen[numbers_of(held_out)] = True
    weight = None if data.weight is None else data.weight.cpu()[seen]
    labels = data.y.cpu()[seen].reshape(-1)
    best = best_probability_threshold(logits.reshape(-1)[seen], labels, metric, subject_to, weight=weight)
    return Ensemble(members, logits, best.threshold, best.value)


def stratified_folds(y: Tensor, folds: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """For each fold the samples outside and inside it, each class dealt out evenly."""
    if y.dim() > 1 and y.shape[1:].numel() > 1:
        raise InvalidValueError(
            f"stratified folds need one label a sample, these have shape {tuple(y.shape)}; give folds as a list of "
            "(training, validation) samples"
        )
    labels = y.detach().cpu().reshape(-1)
    fewest = int(torch.unique(labels, return_counts=True)[1].min()) if len(labels) else 0
    if folds < 2:
        raise InvalidValueError(f"folds must be at least 2, got {folds}: each member trains on all folds but one")
    if folds > fewest:
        raise InvalidValueError(
            f"{folds} folds need {folds} samples of each class; the rarest has {fewest}. Give fewer folds"
        )
    generator = torch.Generator().manual_seed(seed_of(seed, "folds"))
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    fold = torch.empty(len(labels), dtype=torch.long)
    fold[by_class] = torch.arange(len(labels)) % folds
    return [((fold != each).nonzero().flatten(), (fold == each).nonzero().flatten()) for each in range(folds)]


@torch.no_grad()
def _out_of_fold(members: Sequence[FitResult], data: InMemory, splits: Sequence[Split]) -> Tensor:
    """Each sample's logits by the members that held it out, averaged where several did; NaN where none did."""
    total: Tensor | None = None
    times = torch.zeros(len(data))
    for member, (_, held_out) in zip(members, splits, strict=True):
        device = next(member.model.parameters()).device
        index = numbers_of(held_out)
        x = data.x[index.to(data.x.device)]
        x = x.to(type_of(member.model)) if x.is_floating_point() else x
        logits = torch.cat([member.model(part.to(device)) for part in torch.split(x, SAMPLES_AT_ONCE)]).cpu()
        if total is None:
            total = logits.new_zeros(len(data), *logits.shape[1:])
        total.index_add_(0, index, logits)
        times.index_add_(0, index, torch.ones(len(index)))
    assert total is not None
    return total / times.to(total.dtype).reshape(-1, *(1,) * (total.dim() - 1))
