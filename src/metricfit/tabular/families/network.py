"""Networks as a family: one member per fold, trained side by side for the metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError, ModelFileError, quote
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.checks import check_positive, check_whole
from metricfit.tabular.families.family import (
    Deadline,
    Family,
    Features,
    FittedModel,
    Floats,
    TrainingRows,
    set_apart,
)
from metricfit.tabular.families.model_state import Expected, MissingArgumentError, ModelState
from metricfit.tabular.families.network_checks import stored_architecture, stored_weights
from metricfit.tabular.families.network_kinds import (
    KINDS,
    Architecture,
    OwnNetwork,
    bin_edges,
    choose_architecture,
)
from metricfit.tabular.families.network_recipes import RECIPES, Recipe, RecipeName, trains_parts
from metricfit.tabular.families.network_training import Splits, Trainer, choose_schedule, history_rows

#: Rows of one forward pass of a prediction.
ROWS_AT_ONCE = 1024


@dataclass(frozen=True, repr=False)
class Network:
    """Settings of the networks of MetricClassifier.

    Args:
        kind: "mlp", "embedded" (an MLP with piecewise-linear embeddings), "blend" (the mean of these two), "tabm", or
            a function of the numbers of inputs and outputs that returns a module. "auto" is "embedded".
        recipe: "bce" (cross-entropy), "mix" (cross-entropy plus half the metric's loss), "metric", "two_stage" or
            "constrained"; as baselines also "focal" and "surrogate". For F1 with a tuned threshold, "bce" and "mix"
            were level in our comparison, and "bce" is faster.
        epochs: Epochs per stage, each of which has a learning rate that rises and falls; None to choose by the rows.
        patience: Epochs without a lower validation loss after which a member stops; None for a fifth of the epochs. The
            weights of the epoch with the lowest validation loss are kept.
        lr: The highest learning rate; None for 0.004.
        batch_size: Rows per step; None to choose by the rows.

    Raises:
        InvalidTypeError: A setting has a type that cannot be used.
        InvalidValueError: A setting has a value that cannot be used.

    Example:
        >>> Network(recipe="mix", epochs=20)
        Network(recipe='mix', epochs=20)
        >>> Network("blend", recipe="constrained")
        Traceback (most recent call last):
        metricfit.errors.InvalidValueError: recipe='constrained' trains one network; use kind='embedded' or kind='mlp'
    """

    kind: str | OwnNetwork = "auto"
    recipe: RecipeName = "bce"
    epochs: int | None = None
    patience: int | None = None
    lr: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.kind) and self.kind not in KINDS:
            raise InvalidValueError(
                f"kind is one of {', '.join(map(repr, KINDS))}, or a function of the numbers of inputs and outputs "
                f"that returns a module; got {quote(self.kind)}"
            )
        if self.recipe not in RECIPES:
            raise InvalidValueError(f"recipe is one of {', '.join(map(repr, RECIPES))}; got {quote(self.recipe)}")
        if self.kind in ("blend", "tabm") and not trains_parts(self.recipe):
            raise InvalidValueError(f"recipe={self.recipe!r} trains one network; use kind='embedded' or kind='mlp'")
        if self.epochs is not None:
            check_whole("epochs", self.epochs, 1, "epochs per stage, or None to choose by the rows")
        if self.patience is not None:
            check_whole(
                "patience", self.patience, 1, "epochs without a better value, or None for a fifth of the epochs"
            )
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size, 1, "rows per step, or None to choose by the rows")
        if self.lr is not None:
            check_positive("lr", self.lr, "the learning rate, or None to choose it")

    def __repr__(self) -> str:
        changed = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = [
            f"{field.name}={changed[field.name]!r}" for field in fields(self) if changed[field.name] != field.default
        ]
        return f"Network({', '.join(shown)})"


@dataclass(frozen=True)
class NetworkModel:
    """One or several trained networks; their mean logits are the prediction.

    Attributes:
        architecture: What the networks are built from.
        members: The networks, in double precision and eval mode.
        histories: For each member, one row per epoch.
    """

    architecture: Architecture
    members: tuple[nn.Module, ...]
    histories: tuple[tuple[dict[str, Any], ...], ...] = ()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row per member and epoch."""
        return [{"member": number, **row} for number, rows in enumerate(self.histories) for row in rows]

    @property
    def folds(self) -> int:
        """The number of folds; each has one member."""
        return len(self.members)

    def of_fold(self, fold: int) -> NetworkModel:
        """Return the network of one fold."""
        return NetworkModel(self.architecture, self.members[fold : fold + 1], self.histories[fold : fold + 1])

    @torch.no_grad()
    def logits(self, features: Features) -> Floats:
        """Return the mean of the members' logits, in double precision and for some rows at a time.

        In double precision a row's logits do not depend on the rows beside it, except in the last digits.
        """
        result = np.empty((len(features), self.architecture.out_features))
        for first in range(0, len(features), ROWS_AT_ONCE):
            x = torch.from_numpy(features.encoded[first : first + ROWS_AT_ONCE].astype(np.float64))
            outputs = [member(x).reshape(len(x), -1) for member in self.members]
            result[first : first + ROWS_AT_ONCE] = torch.stack(outputs).mean(0).numpy()
        return result

    def state(self) -> ModelState:
        """Return the architecture and the members' weights; they were trained in single precision."""
        arrays = {}
        for number, member in enumerate(self.members):
            for name, tensor in member.state_dict().items():
                weights = tensor.detach().cpu()
                arrays[f"{number}.{name}"] = (weights.float() if weights.is_floating_point() else weights).numpy()
        values = self.architecture.state() | {"hidden": list(self.architecture.hidden), "members": len(self.members)}
        return ModelState("network", values, arrays)

    @classmethod
    def restored(cls, state: ModelState, expected: Expected) -> NetworkModel:
        """Return the networks of a state; sizes are compared with the stored weights before a network is built.

        Raises:
            ModelFileError: The state does not describe networks for this table.
            MissingArgumentError: The network is the user's own, and the function that makes it is needed.
        """
        architecture = stored_architecture(state, expected)
        if architecture.kind == "own" and expected.network is None:
            raise MissingArgumentError("the network was the user's own function: load(path, network=...)")
        members = []
        for number in range(state.whole_number("members", 1, len(state.arrays))):
            weights = stored_weights(state, number, architecture)
            edges = next((tensor for name, tensor in weights.items() if name.endswith("edges")), None)
            member = architecture.build(edges, expected.network)
            member.load_state_dict(weights)
            if not all(bool(torch.isfinite(parameter).all()) for parameter in member.parameters()):
                raise ModelFileError(f"network: member {number} has weights that are not finite")
            members.append(member.double().eval())
        return cls(architecture, tuple(members))


class NetworkFamily(Family):
    """Networks that are trained on all folds side by side.

    Args:
        settings: The kind of network and how to train it.
        metric: The metric that the recipe trains for.
        average: The metric's average over several classes.
        requirements: The requirements of the recipe "constrained".
        device: Where to train; by default on a GPU if there is one.
        edges: The edges of the bins of embeddings, if ``prepare`` has computed them.

    Raises:
        InvalidValueError: The recipe "constrained" has no requirements.
    """

    name = "network"

    def __init__(
        self,
        settings: Network,
        metric: Metric,
        average: ScalarAverage = "macro",
        *,
        requirements: Sequence[Requirement] = (),
        device: str | torch.device | None = None,
        edges: Tensor | None = None,
    ) -> None:
        if settings.recipe == "constrained" and not requirements:
            raise InvalidValueError("recipe='constrained' needs requirements: subject_to=['recall >= 0.9']")
        self.settings, self.metric, self.average = settings, metric, average
        self.requirements = tuple(requirements)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.edges = edges

    def check(self, rows: TrainingRows) -> None:
        """Refuse a GPU that is not there."""
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InvalidValueError(f"device={str(self.device)!r}: torch finds no GPU; use device='cpu', or None")

    def prepare(self, rows: TrainingRows) -> NetworkFamily:
        """Compute the edges of the embeddings' bins, the same for all folds."""
        if not self._architecture(rows).width:
            return self
        return NetworkFamily(
            self.settings,
            self.metric,
            self.average,
            requirements=self.requirements,
            device=self.device,
            edges=bin_edges(torch.from_numpy(rows.x)),
        )

    def estimate(self, rows: TrainingRows, splits: Splits, *, deadline: Deadline) -> float:
        """Estimate the seconds of ``fit_folds`` from the time of a few steps."""
        return self._trainer(rows, splits).seconds(_tensors(rows), splits, deadline=deadline)

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Train one network, as ``fit_folds`` does."""
        rows = _joined(train, held_out)
        split = np.arange(len(train)), np.arange(len(train), len(rows))
        return self.fit_folds(rows, [split], seed=seed, jobs=1, deadline=deadline)[0]

    def fit_folds(
        self,
        rows: TrainingRows,
        splits: Splits,
        *,
        seed: int,
        jobs: int,
        deadline: Deadline,
    ) -> list[FittedModel]:
        """Train one network per fold, all as one computation, whatever ``jobs`` is.

        The weights of the epoch with the lowest loss on rows apart are kept, which are some of the training rows.
        """
        deadline.check()
        splits = [set_apart(train, rows.y, seed + fold) for fold, (train, _) in enumerate(splits)]
        trainer = self._trainer(rows, splits)
        results = trainer.train(_tensors(rows), splits, seed=seed, deadline=deadline)
        return [
            NetworkModel(trainer.architecture, (result.model.cpu().double().eval(),), (history,))
            for result, history in zip(results, history_rows(results), strict=True)
        ]

    def batches(self, splits: Splits, jobs: int) -> list[Splits]:
        """Return all folds together."""
        return [splits]

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Return one model with the members of all folds."""
        networks = [model for model in models if isinstance(model, NetworkModel)]
        return NetworkModel(
            networks[0].architecture,
            tuple(member for model in networks for member in model.members),
            tuple(history for model in networks for history in model.histories),
        )

    def _architecture(self, rows: TrainingRows) -> Architecture:
        kind = "embedded" if self.settings.kind == "auto" else self.settings.kind
        return choose_architecture(kind, rows.x.shape[1], rows.outputs)

    def _trainer(self, rows: TrainingRows, splits: Splits) -> Trainer:
        settings, architecture = self.settings, self._architecture(rows)
        schedule = choose_schedule(
            max(len(train) for train, _ in splits),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            lr=settings.lr,
            patience=settings.patience,
        )
        recipe = Recipe(
            settings.recipe,
            self.metric,
            classes=rows.classes,
            average=self.average,
            lr=schedule.lr,
            requirements=self.requirements,
            prior=float((rows.y == 1).mean()),
        )
        edges = self.edges
        if architecture.width and edges is None:
            edges = bin_edges(torch.from_numpy(rows.x))
        own = settings.kind if callable(settings.kind) else None
        return Trainer(
            architecture,
            lambda: architecture.build(edges, own),
            recipe.stages(architecture.parts),
            schedule,
            self.device,
        )


def _tensors(rows: TrainingRows) -> tuple[Tensor, ...]:
    data = torch.from_numpy(rows.x), torch.from_numpy(rows.y)
    return data if rows.weight is None else (*data, torch.from_numpy(rows.weight))


def _joined(first: TrainingRows, second: TrainingRows) -> TrainingRows:
    """Return the encoded columns, classes and weights of both."""
    weight = None
    if first.weight is not None and second.weight is not None:
        weight = np.concatenate([first.weight, second.weight])
    x = np.concatenate([first.x, second.x])
    return TrainingRows(Features(x), np.concatenate([first.y, second.y]), weight, first.classes)
