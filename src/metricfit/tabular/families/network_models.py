"""Networks as a family: one member per fold, trained side by side for the metric. Only this family needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError, ModelFileError, quote
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.models import Blend, TabM, embedded_mlp, mlp, piecewise_linear, quantile_bins
from metricfit.tabular.families.family import (
    Deadline,
    Expected,
    Family,
    Features,
    FittedModel,
    Floats,
    MissingArgumentError,
    ModelState,
    Splits,
    TrainingRows,
    set_apart,
)
from metricfit.tabular.families.network import KINDS, WITHOUT_METRIC, Network, OwnNetwork
from metricfit.tabular.families.network_training import Recipe, Trainer, choose_schedule, history_rows

#: Rows of one forward pass of a prediction.
ROWS_AT_ONCE = 1024
HIDDEN = (64, 64)
DROPOUT = 0.15
BINS = 32
#: Rows from which the edges of the bins are computed.
ROWS_FOR_EDGES = 100_000
#: Maximum width of an embedding times the number of columns.
EMBEDDED_NUMBERS = 1024
TABM_MEMBERS = 16
MOST_LAYERS, WIDEST = 100, 2**31
#: The minimum number of weights per input number and per output of a TabM.
TABM_WEIGHTS = 64


@dataclass(frozen=True)
class Architecture:
    """The description of a network, from which it can be built several times.

    Attributes:
        kind: "blend", "tabm", "embedded", "mlp", or "own" for a user-defined network.
        in_features: Number of inputs.
        out_features: 1 for two classes, otherwise the number of classes.
        width: Width of the embedding of each input; 0 for no embeddings.
        hidden: Number of units of each hidden layer of "blend", "embedded" and "mlp".

    Raises:
        InvalidValueError: There is no such kind.
    """

    kind: str
    in_features: int
    out_features: int
    width: int = 0
    hidden: tuple[int, ...] = HIDDEN

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS[1:], "own"):
            raise InvalidValueError(f"there is no network of the kind {quote(self.kind)}")

    @property
    def parts(self) -> int:
        """Number of networks that it consists of, each with its own loss."""
        return {"tabm": TABM_MEMBERS, "blend": 2}.get(self.kind, 1)

    @property
    def numbers_per_row(self) -> int:
        """Approximate number of activations per row, which decides how many members fit into memory together."""
        return self.in_features * max(1, self.width) + sum(self.hidden) * self.parts

    def build(self, edges: Tensor | None = None, own: OwnNetwork | None = None) -> nn.Module:
        """Build a new network.

        Args:
            edges: The edges of the bins of embeddings.
            own: The user's function, for the kind "own".

        Returns:
            The network, with random weights.

        Raises:
            InvalidValueError: The edges or the function are missing.
        """
        if self.kind == "own":
            if own is None:
                raise InvalidValueError("the network is the user's own: give the function that makes it")
            return own(self.in_features, self.out_features)
        embedding = None
        if self.width:
            if edges is None:
                raise InvalidValueError(f"the network {self.kind!r} needs the edges of its embeddings")
            embedding = piecewise_linear(edges, self.width)
        if self.kind == "tabm":
            return TabM(self.in_features, self.out_features, embedding=embedding, k=TABM_MEMBERS)
        plain = mlp(self.in_features, self.hidden, self.out_features, DROPOUT)
        if embedding is None:
            return plain
        embedded = embedded_mlp(embedding, self.hidden, self.out_features, DROPOUT)
        return embedded if self.kind == "embedded" else Blend(plain, embedded)

    def state(self) -> dict[str, Any]:
        """Return the description as values that JSON can hold."""
        return asdict(self)


def choose_architecture(kind: str | OwnNetwork, in_features: int, out_features: int) -> Architecture:
    """Describe the network of a kind; tables with very many columns get no embeddings."""
    if callable(kind):
        return Architecture("own", in_features, out_features)
    width = 0 if kind == "mlp" else min(8 if kind == "tabm" else 16, EMBEDDED_NUMBERS // in_features)
    width = width if width > 1 else 0
    return Architecture(kind if width or kind == "tabm" else "mlp", in_features, out_features, width)


def bin_edges(x: Tensor) -> Tensor:
    """Compute the edges of the bins of embeddings: quantiles of at most 100,000 training rows.

    A column that is constant in these rows gets a single bin, of width 1.

    >>> bin_edges(torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]]))
    tensor([[0., 1., 2.],
            [5., 6., inf]])
    """
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    sample = x[order[:ROWS_FOR_EDGES]]
    constant = (sample == sample[0]).all(0)
    bins = min(BINS, len(sample) - 1)
    edges = sample.new_full((x.shape[1], bins + 1), torch.inf)
    edges[constant, 0], edges[constant, 1] = sample[0, constant], sample[0, constant] + 1.0
    if not bool(constant.all()):
        edges[~constant] = quantile_bins(sample[:, ~constant], BINS)
    return edges


@dataclass(frozen=True)
class NetworkModel(FittedModel):
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

    Raises:
        InvalidValueError: The recipe "constrained" has no requirements.
    """

    name = "network"
    fits_all_folds = True

    def __init__(
        self,
        settings: Network,
        metric: Metric,
        average: ScalarAverage = "macro",
        *,
        requirements: Sequence[Requirement] = (),
        device: str | torch.device | None = None,
    ) -> None:
        if settings.recipe == "constrained" and not requirements:
            raise InvalidValueError("recipe='constrained' needs requirements: subject_to=['recall >= 0.9']")
        self.settings, self.metric, self.average = settings, metric, average
        self.trains_for_metric = settings.recipe not in WITHOUT_METRIC
        self.requirements = tuple(requirements)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def reason_to_skip(self, rows: TrainingRows) -> str | None:
        """Refuse a GPU that is not there."""
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InvalidValueError(f"device={str(self.device)!r}: torch finds no GPU; use device='cpu', or None")
        return None

    def estimate(self, rows: TrainingRows, splits: Splits, *, deadline: Deadline) -> float:
        """Estimate the seconds of ``fit_folds`` from the time of a few steps."""
        return self._trainer(rows, splits).seconds(_tensors(rows), splits, deadline=deadline)

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Train one network, as ``fit_folds`` does; the held-out rows have no part in it."""
        split = np.arange(len(train)), np.arange(0)
        return self.fit_folds(train, [split], seed=seed, deadline=deadline)[0]

    def fit_folds(self, rows: TrainingRows, splits: Splits, *, seed: int, deadline: Deadline) -> list[FittedModel]:
        """Train one network per fold, all as one computation.

        The weights of the epoch with the lowest loss on rows apart are kept, which are some of the training rows. The
        edges of the embeddings' bins are those of all rows.
        """
        deadline.check()
        splits = [set_apart(train, rows.y, seed + fold) for fold, (train, _) in enumerate(splits)]
        trainer = self._trainer(rows, splits)
        results = trainer.train(_tensors(rows), splits, seed=seed, deadline=deadline)
        return [
            NetworkModel(trainer.architecture, (result.model.cpu().double().eval(),), (history,))
            for result, history in zip(results, history_rows(results), strict=True)
        ]

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
        edges = bin_edges(torch.from_numpy(rows.x)) if architecture.width else None
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


def stored_architecture(state: ModelState, expected: Expected) -> Architecture:
    """Return the architecture of stored networks.

    Raises:
        ModelFileError: It is none, or does not fit the table and its classes.
    """
    hidden = state.values.get("hidden")
    if not isinstance(hidden, list) or len(hidden) > MOST_LAYERS or not all(map(_is_size, hidden)):
        raise ModelFileError(f"network: hidden must be a list of numbers of units, got {quote(hidden)}")
    try:
        architecture = Architecture(
            state.values.get("kind", ""),
            state.whole_number("in_features", 1, WIDEST),
            state.whole_number("out_features", 1, WIDEST),
            state.whole_number("width", 0, WIDEST),
            tuple(hidden),
        )
    except (InvalidValueError, TypeError):
        raise ModelFileError(f"network: there is no kind {quote(state.values.get('kind'))}") from None
    unknown = set(state.values) - {field.name for field in fields(Architecture)} - {"members"}
    if unknown:
        raise ModelFileError(f"network: {quote(sorted(unknown)[0])} is not known")
    if architecture.in_features != expected.columns:
        raise ModelFileError(
            f"network: it takes {architecture.in_features} numbers, the table gives {expected.columns}"
        )
    if architecture.out_features != expected.outputs:
        raise ModelFileError(f"network: {architecture.out_features} outputs, the classes need {expected.outputs}")
    return architecture


def stored_weights(state: ModelState, member: int, architecture: Architecture) -> dict[str, Tensor]:
    """Return the weights of a member.

    Raises:
        ModelFileError: They are missing, or fewer than the architecture needs.
    """
    prefix = f"{member}."
    weights = {
        name.removeprefix(prefix): torch.from_numpy(array.copy())
        for name, array in state.arrays.items()
        if name.startswith(prefix)
    }
    if not weights:
        raise ModelFileError(f"network: the weights of member {member} are missing")
    needed, numbers = _fewest_weights(architecture), sum(tensor.numel() for tensor in weights.values())
    if needed > numbers:
        raise ModelFileError(f"network: its sizes need at least {needed} weights, arrays.safetensors holds {numbers}")
    return weights


def _is_size(units: object) -> bool:
    return isinstance(units, int) and not isinstance(units, bool) and 0 < units < WIDEST


def _fewest_weights(architecture: Architecture) -> int:
    """Return a number of weights that every network of this architecture has at least."""
    inputs = architecture.in_features * max(1, architecture.width)
    if architecture.kind == "own":
        return 0
    if architecture.kind == "tabm" or not architecture.hidden:
        return TABM_WEIGHTS * (inputs + architecture.out_features)
    sizes = [inputs, *architecture.hidden, architecture.out_features]
    return sum(first * second for first, second in pairwise(sizes))
