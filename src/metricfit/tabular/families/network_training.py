"""Training of networks for a table: all folds side by side, on a schedule of few steps with a falling learning rate.

The recipes are those of ``train.recipes``, and two baselines.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

import metricfit.train as engine  # its fit_folds is loaded when first used: predicting needs no Lightning
from metricfit.core.threads import one_thread
from metricfit.core.types import ScalarAverage, Task
from metricfit.errors import InvalidValueError
from metricfit.losses import FocalLoss, SurrogateFBetaLoss
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.models import PerMember
from metricfit.tabular.families.family import Deadline, Splits
from metricfit.tabular.families.network import RecipeName, trains_parts
from metricfit.train import Stage, recipes

if TYPE_CHECKING:
    from metricfit.tabular.families.network_models import Architecture

#: Activations per layer of all members that are trained together: about 500 MB with gradients.
NUMBERS_AT_ONCE = 2**25

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


@dataclass(frozen=True)
class Recipe:
    """A recipe with everything it needs to make its stages.

    Attributes:
        name: One of ``RECIPES``. "focal" and "surrogate" are baselines for two classes.
        metric: The metric to optimise.
        classes: The number of classes.
        average: The average over several classes.
        lr: The learning rate of the first stage.
        requirements: The requirements of "constrained".
        prior: The share of positives, which the surrogate needs.
    """

    name: RecipeName
    metric: Metric
    classes: int
    average: ScalarAverage
    lr: float
    requirements: tuple[Requirement, ...] = ()
    prior: float = 0.5

    def __post_init__(self) -> None:
        if self.name in ("focal", "surrogate") and self.classes > 2:
            raise InvalidValueError(f"recipe={self.name!r} is for two classes; the data have {self.classes}")

    def stages(self, parts: int = 1) -> list[Stage]:
        """Make the stages for a network of this many parts; every part has its own loss.

        Raises:
            InvalidValueError: The recipe trains networks of one part only.
        """
        if parts > 1 and not trains_parts(self.name):
            raise InvalidValueError(f"recipe={self.name!r} trains one network; use kind='embedded'")
        stages = self._stages()
        if parts == 1:
            return stages
        return [replace(stage, objective=PerMember(stage.objective, parts)) for stage in stages]

    def _stages(self) -> list[Stage]:
        task: Task = "binary" if self.classes == 2 else "multiclass"
        match self.name:
            case "bce":
                return recipes.bce(task=task)
            case "metric":
                return recipes.metric(self.metric, task=task, average=self.average)
            case "mix":
                return recipes.mix(self.metric, task=task, average=self.average)
            case "two_stage":
                lr = recipes.SECOND_STAGE_LR * self.lr
                return recipes.two_stage(self.metric, lr=lr, task=task, average=self.average)
            case "constrained":
                # Average precision needs no threshold: the estimator chooses the threshold afterwards.
                monitor = "average_precision" if self.classes == 2 else None
                return recipes.constrained(
                    self.metric, list(self.requirements), monitor=monitor, task=task, average=self.average
                )
            case "focal":
                return [Stage(FocalLoss(gamma=2.0), name="focal")]
            case "surrogate":
                return [Stage(SurrogateFBetaLoss(_beta(self.metric), prior=self.prior), name="surrogate")]


def _beta(metric: Metric) -> float:
    """Return the beta of F-beta, and 1 for other metrics and for one beta per class."""
    beta = metric.parameters.get("beta", 1.0) if metric.base_name == "fbeta" else 1.0
    return float(beta) if not isinstance(beta, tuple) else 1.0


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


def choose_schedule(
    rows: int, *, epochs: int | None, batch_size: int | None, lr: float | None, patience: int | None
) -> Schedule:
    """Return the schedule for members that train on this many rows; what is None is chosen by the rows.

    >>> choose_schedule(2000, epochs=None, batch_size=None, lr=None, patience=None)
    Schedule(epochs=62, batch_size=128, lr=0.004, patience=12)
    """
    growth = math.sqrt(rows / ROWS)
    if batch_size is None:
        wanted = min(BATCH * max(1.0, growth), rows / STEPS_PER_EPOCH)
        batch_size = min(LARGEST_BATCH, max(SMALLEST_BATCH, 2 ** round(math.log2(wanted))))
    if epochs is None:
        epochs = max(1, round(STEPS * math.sqrt(growth) / math.ceil(rows / batch_size)))
    if patience is None:
        patience = max(FEWEST_EPOCHS_OF_PATIENCE, round(PATIENCE * epochs))
    return Schedule(epochs, batch_size, LR if lr is None else lr, patience)


class CheckDeadline(engine.Callback):
    """Stops training with OutOfTime at the first step after the deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline

    def stepped(self, step: int, losses: Tensor) -> None:
        """Check the deadline."""
        self.deadline.check()


class StepTimes(engine.Callback):
    """Notes when each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def stepped(self, step: int, losses: Tensor) -> None:
        """Note the time, once the losses are computed."""
        losses.sum().item()
        self.times.append(time.perf_counter())


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
        """Train one member per split, as many together as fit into memory.

        Args:
            data: Inputs, class numbers and, if rows have weights, the weights.
            splits: For each member, the rows to train on and those whose loss decides which epoch is kept.
            seed: Seed of the initial weights and the batches.
            deadline: When to stop with OutOfTime.

        Returns:
            The members in the order of the splits.
        """
        results: list[engine.FitResult] = []
        together = self.members_together(len(splits), len(data[0]))
        for first in range(0, len(splits), together):
            part = splits[first : first + together]
            results += self._fit(data, part, seed + first, self.schedule.epochs, CheckDeadline(deadline))
        return results

    def seconds(self, data: tuple[Tensor, ...], splits: Splits, *, deadline: Deadline) -> float:
        """Estimate the seconds of ``train`` from the time of a few steps.

        Args:
            data: As for ``train``.
            splits: As for ``train``.
            deadline: When to stop with OutOfTime.

        Returns:
            The estimate.
        """
        clock, batch = StepTimes(), self.schedule.batch_size
        together = self.members_together(len(splits), len(data[0]))
        sample = [(train[: 4 * batch], held_out[:batch]) for train, held_out in splits[:together]]
        start = time.perf_counter()
        self._fit(data, sample, 0, 1, CheckDeadline(deadline), clock)
        times = [start, *clock.times]
        steps = self.schedule.epochs * len(self.stages) * math.ceil(max(len(train) for train, _ in splits) / batch)
        return min(after - before for before, after in pairwise(times)) * steps * math.ceil(len(splits) / together)

    def members_together(self, members: int, rows: int) -> int:
        """Return how many members are trained as one computation."""
        if self.architecture.kind == "tabm" and self.device.type == "cpu":  # stacked TabMs are no faster on a CPU
            return 1
        batch = min(self.schedule.batch_size, rows)
        return max(1, min(members, NUMBERS_AT_ONCE // (batch * self.architecture.numbers_per_row)))

    def _threads(self) -> AbstractContextManager[None]:
        """Return a context with one thread for small batches, on which threads mostly wait for each other.

        Two threads took ten times the processor time of one when other programs used the processor as well.
        """
        small = self.device.type == "cpu" and self.schedule.batch_size <= LARGEST_BATCH_OF_ONE_THREAD
        return one_thread() if small else nullcontext()

    def _fit(
        self, data: tuple[Tensor, ...], splits: Splits, seed: int, epochs: int, *callbacks: engine.Callback
    ) -> list[engine.FitResult]:
        with warnings.catch_warnings(), self._threads():
            # The decision of the whole ensemble is chosen later, and reported, under the requirements.
            warnings.simplefilter("ignore", engine.UnmetRequirementWarning)
            return engine.fit_folds(
                self.build,
                data,
                self.stages,
                folds=list(splits),
                seed=seed,
                epochs=epochs,
                batch_size=self.schedule.batch_size,
                lr=self.schedule.lr,
                patience=self.schedule.patience,
                optimizer=partial(AdamW, fused=True),
                scheduler=rise_and_fall,
                scheduler_step="batch",
                device=self.device,
                callbacks=callbacks,
                progress=False,
            ).members


def rise_and_fall(optimizer: Optimizer, total_steps: int) -> LambdaLR:
    """Make a learning rate that rises linearly for a tenth of the steps, and then falls to nearly 0 by a cosine."""
    warm = max(1.0, WARM_UP * total_steps)

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        return max(1e-3, 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1.0, total_steps - warm))))

    return LambdaLR(optimizer, factor)


def history_rows(results: Sequence[engine.FitResult]) -> list[tuple[dict[str, Any], ...]]:
    """Return the history of each member: one row per epoch."""
    return [tuple(dict(row) for row in result.history) for result in results]
