"""Networks as a family: one member per fold, trained for the metric.

Only this family needs torch. Its settings are in ``network``, so that they can be written and stored without torch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

import metricfit.train as engine
from metricfit.core.arrays import Floats
from metricfit.core.threads import one_thread
from metricfit.core.types import ScalarAverage, Task
from metricfit.errors import InvalidValueError, ModelFileError, quote
from metricfit.losses import FocalLoss
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.models import PerMember, TabM, embedded_mlp, mlp, piecewise_linear, quantile_bins
from metricfit.tabular.families.arithmetic import set_apart
from metricfit.tabular.families.family import (
    Deadline,
    Family,
    Features,
    FittedModel,
    MissingArgumentError,
    Splits,
    TrainingRows,
)
from metricfit.tabular.families.network import KINDS, WITHOUT_METRIC, Network, OwnNetwork, RecipeName
from metricfit.train import Stage, recipes
from metricfit.train.data.batches import derive_seed

if TYPE_CHECKING:
    from metricfit.tabular.storage import Folder

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

#: Members that train on ROWS rows make STEPS steps with batches of BATCH rows. The batch grows with the square root of
#: the rows, and the steps with its square root.
ROWS, STEPS, BATCH = 2000, 1000, 128
SMALLEST_BATCH, LARGEST_BATCH = 32, 1024
LARGEST_BATCH_OF_ONE_THREAD = 256
#: Steps of an epoch, after each of which there is a validation, even if the batches are smaller for it.
STEPS_PER_EPOCH = 10
LR = 4e-3
#: The share of the epochs without a lower validation loss after which a member stops.
PATIENCE, FEWEST_EPOCHS_OF_PATIENCE = 0.2, 3
WARM_UP = 0.1
WIDEST = 2**31
#: The minimum number of weights per input number and per output of a TabM.
TABM_WEIGHTS = 64


@dataclass(frozen=True)
class Architecture:
    """The description of a network, from which it can be built several times.

    Attributes:
        kind: "tabm", "embedded", "mlp", or "own" for a user-defined network.
        in_features: Number of inputs.
        out_features: 1 for two classes, otherwise the number of classes.
        width: Width of the embedding of each input; 0 for no embeddings.
        hidden: Number of units of each hidden layer of "embedded" and "mlp".

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
        if not all(0 < units < WIDEST for units in (self.in_features, self.out_features, *self.hidden)):
            raise InvalidValueError(f"a network of {self.in_features} inputs, {self.hidden} and {self.out_features}")

    @property
    def parts(self) -> int:
        """Number of networks that it consists of, each with its own loss."""
        return TABM_MEMBERS if self.kind == "tabm" else 1

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
        if embedding is None:
            return mlp(self.in_features, self.hidden, self.out_features, DROPOUT)
        return embedded_mlp(embedding, self.hidden, self.out_features, DROPOUT)


def choose_architecture(kind: str | OwnNetwork, in_features: int, out_features: int) -> Architecture:
    """Describe the network of a kind; tables with very many columns get no embeddings."""
    if callable(kind):
        return Architecture("own", in_features, out_features)
    kind = "embedded" if kind == "auto" else kind
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

        In double precision a row's logits do not depend on the other rows of its batch, except in the last digits.
        """
        result = np.empty((len(features), self.architecture.out_features))
        for first in range(0, len(features), ROWS_AT_ONCE):
            x = torch.from_numpy(features.encoded[first : first + ROWS_AT_ONCE].astype(np.float64))
            outputs = [member(x).reshape(len(x), -1) for member in self.members]
            result[first : first + ROWS_AT_ONCE] = torch.stack(outputs).mean(0).numpy()
        return result

    def stored(self) -> StoredNetworks:
        """Return the architecture and the members' weights; they were trained in single precision."""
        members = []
        for member in self.members:
            tensors = {name: tensor.detach().cpu() for name, tensor in member.state_dict().items()}
            single = {name: each.float() if each.is_floating_point() else each for name, each in tensors.items()}
            members.append({name: each.numpy() for name, each in single.items()})
        return StoredNetworks(self.architecture, tuple(members))


@dataclass(frozen=True)
class StoredNetworks:
    """Trained networks in a folder."""

    architecture: Architecture
    members: tuple[Mapping[str, NDArray[Any]], ...]

    def restored(self, folder: Folder) -> NetworkModel:
        """Return the networks; sizes are compared with the stored weights before a network is built.

        Raises:
            ModelFileError: There are no networks for this table.
            MissingArgumentError: The network is the user's own, and the function that makes it is needed.
        """
        own, needed = folder.user_functions.get("network"), _fewest_weights(self.architecture)
        if self.architecture.kind == "own" and own is None:
            raise MissingArgumentError("the network was the user's own function: load(path, network=...)")
        sizes = (self.architecture.in_features, self.architecture.out_features)
        if sizes != (folder.columns, folder.outputs) or not self.members:
            raise ModelFileError(f"{sizes} inputs and outputs; the table needs {folder.columns} and {folder.outputs}")
        members = []
        for arrays in self.members:
            weights = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
            numbers = sum(tensor.numel() for tensor in weights.values())
            if needed > numbers:
                raise ModelFileError(f"its sizes need at least {needed} weights, arrays.safetensors holds {numbers}")
            edges = next((tensor for name, tensor in weights.items() if name.endswith("edges")), None)
            member = self.architecture.build(edges, own)
            member.load_state_dict(weights)
            if not all(bool(torch.isfinite(parameter).all()) for parameter in member.parameters()):
                raise ModelFileError("a network has weights that are not finite")
            members.append(member.double().eval())
        return NetworkModel(self.architecture, tuple(members))


def training_stages(
    name: RecipeName,
    metric: Metric,
    *,
    classes: int,
    average: ScalarAverage,
    lr: float,
    requirements: Sequence[Requirement] = (),
) -> list[Stage]:
    """Return the stages of a recipe.

    Args:
        name: One of ``RECIPES``. "focal" is a baseline for two classes.
        metric: The metric to optimise.
        classes: The number of classes.
        average: The average over several classes.
        lr: The learning rate of the first stage.
        requirements: The requirements of "constrained".

    Raises:
        InvalidValueError: The baseline for two classes is asked for several.
    """
    task: Task = "binary" if classes == 2 else "multiclass"
    if name == "focal":
        if classes > 2:
            raise InvalidValueError(f"recipe={name!r} is for two classes; the data have {classes}")
        return [Stage(FocalLoss(gamma=2.0), name=name)]
    if name == "bce":
        return recipes.bce(task=task)
    if name == "two_stage":
        return recipes.two_stage(metric, lr=recipes.SECOND_STAGE_LR * lr, task=task, average=average)
    if name == "constrained":
        # Average precision needs no threshold: the estimator chooses the threshold afterwards.
        monitor = "average_precision" if classes == 2 else None
        return recipes.constrained(metric, list(requirements), monitor=monitor, task=task, average=average)
    return (recipes.mix if name == "mix" else recipes.metric)(metric, task=task, average=average)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes:
        epochs: Epochs per stage.
        batch_size: Rows per step.
        lr: The highest learning rate.
        patience: Epochs without a lower validation loss after which a member stops.
    """

    epochs: int
    batch_size: int
    lr: float
    patience: int


def choose_schedule(rows: int, settings: Network) -> Schedule:
    """Return the schedule for members that train on this many rows; what is None in the settings is chosen by the rows.

    >>> choose_schedule(2000, Network())
    Schedule(epochs=62, batch_size=128, lr=0.004, patience=12)
    """
    growth = math.sqrt(rows / ROWS)
    wanted = min(BATCH * max(1.0, growth), rows / STEPS_PER_EPOCH)
    batch_size = settings.batch_size or min(LARGEST_BATCH, max(SMALLEST_BATCH, 2 ** round(math.log2(wanted))))
    epochs = settings.epochs or max(1, round(STEPS * math.sqrt(growth) / math.ceil(rows / batch_size)))
    patience = settings.patience or max(FEWEST_EPOCHS_OF_PATIENCE, round(PATIENCE * epochs))
    return Schedule(epochs, batch_size, settings.lr or LR, patience)


class CheckDeadline(engine.Callback):
    """Stops training with OutOfTime at the first step after the deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline

    def stepped(self, step: int, losses: Tensor) -> None:
        """Check the deadline."""
        self.deadline.check()


@dataclass(frozen=True)
class Trainer:
    """Trains the members of one table.

    Attributes:
        architecture: The network.
        build: Makes a network with new weights.
        stages: The stages of the recipe.
        schedule: How long to train.
        device: Where to train.
    """

    architecture: Architecture
    build: Callable[[], nn.Module]
    stages: Sequence[engine.Stage]
    schedule: Schedule
    device: torch.device

    def train(
        self, data: tuple[Tensor, ...], splits: Splits, *, seed: int, deadline: Deadline
    ) -> list[engine.FitResult]:
        """Train one member per split.

        Args:
            data: Inputs, class numbers and, if rows have weights, the weights.
            splits: For each member, the rows to train on and those whose loss decides which epoch is kept.
            seed: Seed of the initial weights and the batches.
            deadline: When to stop with OutOfTime.

        Returns:
            The members in the order of the splits.
        """
        seeds = [derive_seed(seed, "member", member) for member in range(len(splits))]
        return [self._fit(data, split, of_member, deadline) for split, of_member in zip(splits, seeds, strict=True)]

    def _threads(self) -> AbstractContextManager[None]:
        """Return a context with one thread for small batches, on which threads mostly wait for each other.

        Two threads took ten times the processor time of one when other programs used the processor as well.
        """
        small = self.device.type == "cpu" and self.schedule.batch_size <= LARGEST_BATCH_OF_ONE_THREAD
        return one_thread() if small else nullcontext()

    def _fit(self, data: tuple[Tensor, ...], split: tuple[Any, Any], seed: int, deadline: Deadline) -> engine.FitResult:
        train, held_out = (tuple(part[torch.as_tensor(rows)] for part in data) for rows in split)
        with warnings.catch_warnings(), self._threads():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = self.build()
            # The decision of the whole ensemble is chosen later, and reported, under the requirements.
            warnings.simplefilter("ignore", engine.UnmetRequirementWarning)
            return engine.fit(
                model,
                train,
                [stage.filled(scheduler=rise_and_fall, scheduler_step="batch") for stage in self.stages],
                validation=held_out,
                seed=seed,
                epochs=self.schedule.epochs,
                batch_size=self.schedule.batch_size,
                lr=self.schedule.lr,
                patience=self.schedule.patience,
                optimizer=partial(AdamW, fused=True),
                hardware=engine.Hardware(accelerator=f"{self.device.type}:{self.device.index or 0}"),
                callbacks=[CheckDeadline(deadline)],
                progress=False,
            )


def rise_and_fall(optimizer: Optimizer, total_steps: int) -> LambdaLR:
    """Make a learning rate that rises linearly for a tenth of the steps, and then falls to nearly 0 by a cosine."""
    warm = max(1.0, WARM_UP * total_steps)

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        return max(1e-3, 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1.0, total_steps - warm))))

    return LambdaLR(optimizer, factor)


class NetworkFamily(Family):
    """Networks that are trained on one fold after the other.

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

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Train one network, as ``fit_folds`` does; the held-out rows have no part in it."""
        split = np.arange(len(train)), np.arange(0)
        return self.fit_folds(train, [split], seed=seed, deadline=deadline)[0]

    def fit_folds(self, rows: TrainingRows, splits: Splits, *, seed: int, deadline: Deadline) -> list[FittedModel]:
        """Train one network per fold, all as one computation.

        The weights of the epoch with the lowest loss on rows apart are kept, which are some of the training rows. The
        edges of the embeddings' bins are taken from all rows.
        """
        deadline.check()
        splits = [set_apart(train, rows.y, seed + fold) for fold, (train, _) in enumerate(splits)]
        trainer = self._trainer(rows, splits)
        results = trainer.train(_tensors(rows), splits, seed=seed, deadline=deadline)
        return [
            NetworkModel(
                trainer.architecture, (result.model.cpu().double().eval(),), (tuple(map(dict, result.history)),)
            )
            for result in results
        ]

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Return one model with the members of all folds."""
        networks = [model for model in models if isinstance(model, NetworkModel)]
        return NetworkModel(
            networks[0].architecture,
            tuple(member for model in networks for member in model.members),
            tuple(history for model in networks for history in model.histories),
        )

    def _trainer(self, rows: TrainingRows, splits: Splits) -> Trainer:
        settings, schedule = self.settings, choose_schedule(max(len(train) for train, _ in splits), self.settings)
        architecture = choose_architecture(settings.kind, rows.x.shape[1], rows.outputs)
        edges = bin_edges(torch.from_numpy(rows.x)) if architecture.width else None
        own = settings.kind if callable(settings.kind) else None
        stages = training_stages(
            settings.recipe,
            self.metric,
            classes=rows.classes,
            average=self.average,
            lr=schedule.lr,
            requirements=self.requirements,
        )
        if architecture.parts > 1:
            parts = architecture.parts
            stages = [replace(stage, objective=PerMember(stage.objective, parts)) for stage in stages]
        return Trainer(architecture, lambda: architecture.build(edges, own), stages, schedule, self.device)


def _tensors(rows: TrainingRows) -> tuple[Tensor, ...]:
    data = torch.from_numpy(rows.x), torch.from_numpy(rows.y)
    return data if rows.weight is None else (*data, torch.from_numpy(rows.weight))


def _fewest_weights(architecture: Architecture) -> int:
    """Return a number of weights that every network of this architecture has at least."""
    inputs = architecture.in_features * max(1, architecture.width)
    if architecture.kind == "own":
        return 0
    if architecture.kind == "tabm" or not architecture.hidden:
        return TABM_WEIGHTS * (inputs + architecture.out_features)
    sizes = [inputs, *architecture.hidden, architecture.out_features]
    return sum(first * second for first, second in pairwise(sizes))
