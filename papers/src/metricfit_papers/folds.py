"""fit_folds: an ensemble over folds, with logits of every sample from the members that did not train on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.core.numerics import is_positive
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.train import label_checks
from metricfit.train.data.batches import SAMPLES_AT_ONCE, derive_seed
from metricfit.train.data.sources import InMemory, as_source, as_tensor, get_weight_dtype
from metricfit.train.result import FitResult
from metricfit.train.stage import Stage
from metricfit_papers.populations import Split, as_sample_numbers, fit_population


@dataclass(frozen=True)
class Ensemble:
    """An ensemble over folds, which averages the logits of its members.

    ``decide.best_decision(ensemble.out_of_fold, y, "f1")`` chooses a decision for a metric, also under requirements.

    Attributes:
        members: The FitResult of each member.
        out_of_fold: The logits of each training sample by the members that did not train on it.
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
        inputs = as_tensor(x, "x", keep_dtype=True)
        return torch.stack([_compute_logits(member.model, inputs, chunk) for member in self.members]).mean(0)

    def predict(self, x: Any, threshold: float = 0.5) -> Tensor:
        """Return decisions: at a threshold, or of exclusive classes, the class with the largest logit.

        Args:
            x: The inputs.
            threshold: The probability above which a sample is positive.

        Returns:
            Class numbers, or 0 and 1 for two classes and for labels.
        """
        logits = self.logits(x)
        if self.exclusive:
            return logits.argmax(1)
        if logits.dim() == 2 and logits.shape[1] == 1:
            logits = logits.squeeze(1)
        return is_positive(logits, threshold).long()


def fit_folds(
    make_model: Callable[[], nn.Module],
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    folds: int | Sequence[Split] = 8,
    seed: int = 0,
    **settings: Any,
) -> Ensemble:
    """Train an ensemble over folds: each member trains on all folds but one, and is validated on that one.

    Args:
        make_model: Returns a fresh model.
        train: ``(X, y)`` or ``(X, y, weight)``.
        objective: A loss, or stages.
        folds: The number of stratified folds, or for each member its training and validation samples.
        seed: Seed of the folds, of the members' initial weights and of their batches.
        **settings: Settings of ``fit_population``.

    Returns:
        The ensemble, with the logits of all samples by the members that held them out.

    Raises:
        ValueError: The folds or the settings do not go with the data.
        TypeError: ``make_model`` is not a function, or the data are not in memory.

    Example:
        >>> from metricfit.losses import WeightedBCELoss
        >>> x = torch.randn(80, 3)
        >>> data, loss = (x, x[:, 0] > 0), WeightedBCELoss()
        >>> ensemble = fit_folds(lambda: nn.Linear(3, 1), data, loss, folds=4, epochs=2)
        >>> ensemble.out_of_fold.shape, len(ensemble.members)
        (torch.Size([80, 1]), 4)
    """
    if isinstance(make_model, nn.Module) or not callable(make_model):
        raise InvalidTypeError(
            "make_model is called to make a fresh model for each fold, such as lambda: nn.Linear(3, 1); got a "
            f"{type(make_model).__name__}"
        )
    data = as_source(train, "train")
    if not isinstance(data, InMemory):
        raise InvalidTypeError("fit_folds needs data in memory: (X, y) or (X, y, weight)")
    splits = stratified_folds(data.y, int(folds), seed) if isinstance(folds, (int, Integral)) else list(folds)
    models, seeds = [], [derive_seed(seed, "member", member) for member in range(len(splits))]
    for member_seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(member_seed)
            models.append(make_model())
    exclusive = label_checks.is_exclusive(label_checks.sample_logits(models[0], data.x), data.y)
    members = fit_population(models, data, objective, splits=splits, seeds=seeds, **settings)
    return Ensemble(members, _out_of_fold(members, data, splits), exclusive)


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
        index = as_sample_numbers(held_out)
        logits = _compute_logits(member.model, data.x[index.to(data.x.device)]).cpu()
        total = logits.new_zeros(len(data), *logits.shape[1:]) if total is None else total
        total.index_add_(0, index, logits)
        times.index_add_(0, index, torch.ones(len(index)))
    assert total is not None
    return total / times.to(total.dtype).reshape(-1, *(1,) * (total.dim() - 1))


def _compute_logits(model: nn.Module, x: Tensor, chunk: int = SAMPLES_AT_ONCE) -> Tensor:
    """Return the logits of a model on its device, for inputs in its type."""
    x = x.to(get_weight_dtype(model)) if x.is_floating_point() else x
    device = next(model.parameters()).device
    return torch.cat([model(part.to(device)) for part in torch.split(x, chunk)])
