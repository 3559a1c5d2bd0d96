"""Members over folds: each trains on all folds but one and is judged on that one."""

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
from metricfit.tabular.objectives import Recipe

log = logging.getLogger("metricfit.tabular")

NUMBERS_AT_ONCE = 2**25  # of all stacked members' activations, a layer: some 500 MB with gradients

Splits = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


@dataclass(frozen=True)
class Rows:
    """The training rows as numbers; labels from 0 on; weights of training and groups where there are any."""

    x: Tensor
    y: Tensor
    weight: Tensor | None
    groups: NDArray[Any] | None

    @property
    def classes(self) -> int:
        """How many."""
        return int(self.y.max()) + 1


@dataclass(frozen=True)
class Settings:
    """How to train; what is None is decided from the data."""

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
    """The members, and each row's logits by the one that did not train on it, NaN where all did."""

    network: Network
    effort: Effort
    members: list[nn.Module]
    out_of_fold: Tensor
    history: list[dict[str, Any]]


def plan(rows: Rows, settings: Settings) -> tuple[Network, Effort]:
    """The network and the effort that ``train`` would choose now."""
    return _chosen(rows, settings, len(folds_of(rows, settings.members, settings.seed)), _blueprint(rows, settings))


def train(rows: Rows, settings: Settings) -> Trained:
    """Choose the network and the effort, part the rows, train."""
    splits = folds_of(rows, settings.members, settings.seed)
    blueprint = _blueprint(rows, settings)
    network, effort = _chosen(rows, settings, len(splits), blueprint)
    if effort.members < len(splits):
        splits = folds_of(rows, effort.members, settings.seed)
    stages = settings.recipe.stages(network.parts)
    data = (rows.x, rows.y) if rows.weight is None else (rows.x, rows.y, rows.weight)
    together = 1
    if network.name != "tabm" or settings.device.type != "cpu":  # there TabMs stacked are no faster than in a row
        batch = min(settings.batch_size, len(rows.x))
        together = max(1, min(len(splits), NUMBERS_AT_ONCE // (batch * network.numbers_per_row)))
    members: list[nn.Module] = []
    history: list[dict[str, Any]] = []
    logits: Tensor | None = None
    for first in range(0, len(splits), together):
        with warnings.catch_warnings():
            # The decision of the whole ensemble is chosen later, and reported, under the requirements.
            warnings.simplefilter("ignore", engine.UnmetRequirementWarning)
            found = engine.fit_folds(
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
        for at, member in enumerate(found.members):
            members.append(member.model.cpu())
            history += [{"member": first + at, **row} for row in member.history.rows]
        part = found.out_of_fold.double().reshape(len(rows.x), -1)
        logits = part if logits is None else torch.where(part.isnan(), logits, part)
    assert logits is not None
    return Trained(network, effort, members, logits, history)


def folds_of(rows: Rows, members: int, seed: int) -> Splits:
    """As many folds as members, or as the rarest class allows; copies of a row and groups stay together.

    Where so few rows differ that no two folds can both have every class, copies are dealt out singly. The row of a
    class that has no other is in every member's training and held out by none.
    """
    counts = torch.bincount(rows.y)
    alone = (counts[rows.y] < 2).numpy()
    fewest = int(counts[counts > 1].min()) if int((counts > 1).sum()) > 1 else 0
    if not fewest:
        raise InvalidValueError(
            f"{int((counts < 2).sum())} of {len(counts)} classes have one row alone; two classes at least need two, "
            "one to learn from and one to judge by"
        )
    parted = np.flatnonzero(~alone)
    x, y = rows.x.numpy()[parted], rows.y.numpy()[parted]
    groups = None if rows.groups is None else rows.groups[parted]
    for together in (True, False):
        for several in range(min(members, fewest), 1, -1):
            try:
                found = folds(x, y, several, seed=seed, groups=groups, keep_duplicates_together=together)
            except ValueError as error:
                reason = error
                continue
            if several < members:
                log.info("%d members in place of %d: the rarest class has %d rows", several, members, fewest)
            if not together:
                log.warning("copies of rows are parted over folds: too few rows differ to keep them together")
            single = np.flatnonzero(alone)
            return [(np.concatenate([parted[rest], single]), parted[fold]) for rest, fold in found]
    raise InvalidValueError(f"the rows cannot be parted into two folds that both have every class: {reason}")


class _Blueprint:
    """Builds networks; the edges of their embeddings are found once, if any needs them."""

    def __init__(self, x: Tensor, own: OwnNetwork | None) -> None:
        self._x, self._own = x, own
        self._edges: Tensor | None = None

    def build(self, network: Network) -> nn.Module:
        if network.width and self._edges is None:
            self._edges = edges_of(self._x)
        return network.build(self._edges, self._own)


def _blueprint(rows: Rows, settings: Settings) -> _Blueprint:
    return _Blueprint(rows.x, settings.network if callable(settings.network) else None)


def _chosen(rows: Rows, settings: Settings, members: int, blueprint: _Blueprint) -> tuple[Network, Effort]:
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
