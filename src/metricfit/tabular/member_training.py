"""Training of the members: each one trains on all folds but one, and is validated on that one."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import metricfit.train as engine  # its fit_folds is loaded when first used: predicting needs no Lightning
from metricfit.data import folds
from metricfit.errors import InvalidValueError
from metricfit.tabular.budget import Effort, affordable, seconds_per_step
from metricfit.tabular.networks import Network, OwnNetwork, edges_of, network_named
from metricfit.tabular.recipe import Recipe

log = logging.getLogger("metricfit.tabular")

NUMBERS_AT_ONCE = 2**25  # activations per layer of all stacked members: about 500 MB with gradients

Splits = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


@dataclass(frozen=True)
class Rows:
    """The training rows as numbers, with class numbers, training weights and groups."""

    x: Tensor
    y: Tensor
    weight: Tensor | None
    groups: NDArray[Any] | None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


@dataclass(frozen=True)
class Settings:
    """How to train; None is decided from the data."""

    network: str | OwnNetwork
    recipe: Recipe
    members: int
    epochs: int | None
    patience: int | None
    batch_size: int
    lr: float
    time_budget: float | None
    device: torch.device
    verbose: bool
    seed: int


@dataclass(frozen=True)
class Trained:
    """The members, and each row's logits by the member that did not train on it (NaN if all did)."""

    network: Network
    effort: Effort
    members: list[nn.Module]
    out_of_fold: Tensor
    history: list[dict[str, Any]]


def plan(rows: Rows, settings: Settings) -> tuple[Network, Effort]:
    """Return the network and the effort that ``train`` would choose now."""
    return _choose(rows, settings, len(folds_of(rows, settings.members, settings.seed)), _blueprint(rows, settings))


def train(rows: Rows, settings: Settings) -> Trained:
    """Choose the network and the effort, split the rows into folds, and train the members."""
    splits = folds_of(rows, settings.members, settings.seed)
    blueprint = _blueprint(rows, settings)
    network, effort = _choose(rows, settings, len(splits), blueprint)
    if effort.members < len(splits):
        splits = folds_of(rows, effort.members, settings.seed)
    stages = settings.recipe.stages(network.parts)
    data = (rows.x, rows.y) if rows.weight is None else (rows.x, rows.y, rows.weight)
    together = 1
    if network.name != "tabm" or settings.device.type != "cpu":  # on a CPU, stacked TabMs are no faster
        batch = min(settings.batch_size, len(rows.x))
        together = max(1, min(len(splits), NUMBERS_AT_ONCE // (batch * network.numbers_per_row)))
    members: list[nn.Module] = []
    history: list[dict[str, Any]] = []
    logits: Tensor | None = None
    for first in range(0, len(splits), together):
        with warnings.catch_warnings():
            # The decision of the whole ensemble is chosen later, and reported, under the requirements.
            warnings.simplefilter("ignore", engine.UnmetRequirementWarning)
            result = engine.fit_folds(
                lambda: blueprint.build(network),
                data,
                stages,
                folds=splits[first : first + together],
                seed=settings.seed + first,
                epochs=effort.epochs,
                patience=effort.patience if settings.patience is None else settings.patience,
                batch_size=settings.batch_size,
                lr=settings.lr,
                device=settings.device,
                progress=settings.verbose,
            )
        for index, member in enumerate(result.members):
            members.append(member.model.cpu())
            history += [{"member": first + index, **row} for row in member.history.rows]
        part = result.out_of_fold.double().reshape(len(rows.x), -1)
        logits = part if logits is None else torch.where(part.isnan(), logits, part)
    assert logits is not None
    return Trained(network, effort, members, logits, history)


def folds_of(rows: Rows, members: int, seed: int) -> Splits:
    """Split the rows into one fold per member, or as many as the rarest class allows.

    Copies of a row and rows of one group stay together. If so few rows differ that two folds cannot both have every
    class, copies are distributed over the folds. The only row of a class is used by every member and held out by none.
    """
    counts = torch.bincount(rows.y)
    alone = (counts[rows.y] < 2).numpy()
    fewest = int(counts[counts > 1].min()) if int((counts > 1).sum()) > 1 else 0
    if not fewest:
        raise InvalidValueError(
            f"{int((counts < 2).sum())} of {len(counts)} classes have a single row; at least two classes need two "
            "rows, one to learn from and one to validate on"
        )
    splittable = np.flatnonzero(~alone)
    x, y = rows.x.numpy()[splittable], rows.y.numpy()[splittable]
    groups = None if rows.groups is None else rows.groups[splittable]
    for together in (True, False):
        for number in range(min(members, fewest), 1, -1):
            try:
                splits = folds(x, y, number, seed=seed, groups=groups, keep_duplicates_together=together)
            except ValueError as error:
                reason = error
                continue
            if number < members:
                log.info("%d members in place of %d: the rarest class has %d rows", number, members, fewest)
            if not together:
                log.warning("copies of rows are distributed over folds: too few rows differ to keep them together")
            single = np.flatnonzero(alone)
            return [(np.concatenate([splittable[rest], single]), splittable[fold]) for rest, fold in splits]
    raise InvalidValueError(f"the rows cannot be split into two folds that both have every class: {reason}")


class _Blueprint:
    """Builds networks; the edges of their embeddings are computed once, if any network needs them."""

    def __init__(self, x: Tensor, own: OwnNetwork | None) -> None:
        self._x, self._own = x, own
        self._edges: Tensor | None = None

    def build(self, network: Network) -> nn.Module:
        if network.width and self._edges is None:
            self._edges = edges_of(self._x)
        return network.build(self._edges, self._own)


def _blueprint(rows: Rows, settings: Settings) -> _Blueprint:
    return _Blueprint(rows.x, settings.network if callable(settings.network) else None)


def _choose(rows: Rows, settings: Settings, members: int, blueprint: _Blueprint) -> tuple[Network, Effort]:
    """Choose the network and how long to train it; "auto" is a blend if the recipe can train one."""
    outputs = 1 if rows.classes == 2 else rows.classes
    steps = -(-len(rows.x) * (members - 1) // members // settings.batch_size)
    name = settings.network
    if name == "auto":
        name = "blend" if settings.recipe.trains_parts else "embedded"
    network = network_named(name, rows.x.shape[1], outputs)
    stages = settings.recipe.stages(network.parts)
    with torch.random.fork_rng(devices=[]):
        model = blueprint.build(network)
    batch = torch.randperm(len(rows.x), generator=torch.Generator().manual_seed(settings.seed))[: settings.batch_size]
    step = seconds_per_step(model, stages[-1], rows.x[batch], rows.y[batch], settings.device)
    effort = affordable(step, steps, len(stages), epochs=settings.epochs, members=members, budget=settings.time_budget)
    log.info(
        "network %s, %d inputs, %d members, at most %d epochs of %d steps, at most %.0f s",
        *(network.name, network.in_features, effort.members, effort.epochs, steps, effort.seconds),
    )
    return network, effort
