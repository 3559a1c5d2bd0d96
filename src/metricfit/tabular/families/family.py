"""What a family of models is: it fits the folds of a table, and its fitted models give logits and are stored.

All families get the same rows and the same folds, so that their out-of-fold logits can be compared and combined.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricfit._schema import HasKinds
from metricfit.core.arrays import Floats, Integers
from metricfit.errors import InvalidValueError, MetricfitError, ModelFileError

if TYPE_CHECKING:
    from metricfit.tabular.large_rows import CompactFeatures
    from metricfit.tabular.storage import Folder

#: For each fold, the rows to train on and the rows that are held out.
Splits = Sequence[tuple[Integers, Integers]]


class OutOfTime(MetricfitError):
    """The time budget ran out while a family was training."""


class MissingArgumentError(InvalidValueError):
    """The folder does not hold a function of the user, which ``load`` needs as an argument."""


@dataclass(frozen=True)
class Deadline:
    """When training has to end.

    Attributes:
        at: The time of ``time.monotonic`` at which it ends; None for no limit.
        cancelled: Set to end training at once, in every thread that checks this deadline.
        stopped: Set by the user to end training, of all families.
    """

    at: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def after(cls, seconds: float | None, stopped: threading.Event | None = None) -> Deadline:
        """Return the deadline that is this many seconds from now; None is no limit."""
        at = None if seconds is None else time.monotonic() + seconds
        return cls(at, stopped=threading.Event() if stopped is None else stopped)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, infinity without one, and below 0 once it is cancelled or stopped."""
        if self.cancelled.is_set() or self.stopped.is_set():
            return -1.0
        return float("inf") if self.at is None else self.at - time.monotonic()

    def check(self) -> None:
        """Raise OutOfTime if the deadline has passed."""
        if self.seconds_left < 0:
            raise OutOfTime("the time budget is used up")


def take_rows(table: Any, index: Integers) -> Any:
    """Return rows of a table as the user passed it, or None."""
    return table.iloc[index] if hasattr(table, "iloc") else None if table is None else table[index]


@dataclass(frozen=True)
class Features:
    """The columns of some rows, in the two forms that families learn from.

    Attributes:
        encoded: Numbers on one scale, without missing values.
        table: The table as the user passed it, for pipelines that encode it themselves.
    """

    encoded: NDArray[np.float32]
    table: Any = None

    def take(self, index: Integers) -> Features:
        """Return these rows."""
        return Features(self.encoded[index], take_rows(self.table, index))

    def parts(self, index: Integers) -> list[Integers]:
        """Return the row numbers in parts that are predicted at a time: here all at once."""
        return [index]

    def __len__(self) -> int:
        return len(self.encoded)


@dataclass(frozen=True)
class TrainingRows:
    """Rows to learn from.

    Attributes:
        features: Their columns.
        y: Their class numbers; of two classes, 1 is the positive one.
        weight: Their weights in training, or None.
        classes: The number of classes of the whole table.
    """

    features: Features | CompactFeatures
    y: Integers
    weight: Floats | None
    classes: int

    @property
    def x(self) -> NDArray[np.float32]:
        """The encoded columns."""
        return self.features.encoded

    @property
    def outputs(self) -> int:
        """The number of logits per row: 1 for two classes, otherwise one per class."""
        return 1 if self.classes == 2 else self.classes

    def take(self, index: Integers) -> TrainingRows:
        """Return these rows."""
        weight = None if self.weight is None else self.weight[index]
        return TrainingRows(self.features.take(index), self.y[index], weight, self.classes)

    def __len__(self) -> int:
        return len(self.y)


class FittedModel(HasKinds, ABC):
    """A model that was fitted on some rows. It is a dataclass that is stored, or ``stored`` returns one."""

    @property
    def folds(self) -> int:
        """The number of folds whose models are known; 1 for models that keep the mean of the folds alone."""
        return 1

    def of_fold(self, fold: int) -> FittedModel:
        """Return the model of one fold."""
        return self

    @abstractmethod
    def logits(self, features: Features) -> Floats:
        """Return logits ``(n, 1)`` of the positive class of two, or ``(n, c)`` of several classes."""


@dataclass(frozen=True)
class Candidates:
    """Models of one fold that differ in a setting, such as the penalty or the number of trees.

    Attributes:
        select: Returns the model with this number. The settings of every fold are in the same order.
        losses: The summed cross-entropy of each model on rows that it was not trained on.
    """

    select: Callable[[int], FittedModel]
    losses: Floats


def choose_candidates(fitted: Sequence[FittedModel | Candidates]) -> list[FittedModel]:
    """Choose the setting of every fold on the rows that the other folds hold out.

    The rows of a fold judge its model, so they have no part in its setting: chosen on them, models of labels that are
    pure noise had an AUROC of 0.6. Chosen on all rows together, still 0.55. Where a fold has fewer candidates than
    others, such as trees that stopped growing early, its last candidate takes the missing places.

    Args:
        fitted: What was fitted on each fold. The losses of a single fold's candidates are of rows that ``set_apart``
            took from its training rows.

    Returns:
        One model per fold.

    Example:
        >>> losses = np.array([[1.0, 2.0], [3.0, 2.5], [3.0, 2.5]])
        >>> choose_candidates([Candidates(("weak", "strong").__getitem__, loss) for loss in losses])
        ['strong', 'weak', 'weak']
    """
    candidates = [each for each in fitted if isinstance(each, Candidates)]
    if not candidates:
        return list(fitted)  # type: ignore[arg-type]
    longest = max(len(each.losses) for each in candidates)
    losses = np.stack([np.pad(each.losses, (0, longest - len(each.losses)), mode="edge") for each in candidates])
    models = []
    for fold, each in enumerate(candidates):
        of_others = np.delete(losses, fold, axis=0) if len(candidates) > 1 else losses
        models.append(each.select(min(int(of_others.sum(axis=0).argmin()), len(each.losses) - 1)))
    return models


class Family(ABC):
    """A kind of model that can be fitted on a fold.

    Attributes:
        name: The name of the family in ``models`` and in ``models_``.
        can_be_stopped: Whether a fit ends soon after its deadline.
        growth: The seconds of a fit grow with the number of rows to this power; for families that cannot be stopped.
        trains_for_metric: Whether it is trained for the metric, which must then be one of counts.
        fits_all_folds: Whether all folds are fitted as one computation.
        takes_all_rows: Whether it is fitted on all rows of a large table, and not on a sample.
        jobs: Threads of one fit; above 1 only where folds are fitted one after the other.
    """

    name: str
    can_be_stopped: bool = True
    growth: float = 1.0
    trains_for_metric: bool = False
    fits_all_folds: bool = False
    takes_all_rows: bool = False
    jobs: int = 1

    def reason_to_skip(self, rows: TrainingRows) -> str | None:
        """Return why the family is not for these rows, for example because there are too many; None if it is.

        Raises:
            InvalidValueError: The family can never be fitted on such rows.
        """
        return None

    def prepare(self, rows: TrainingRows) -> Family:
        """Return the family with what all folds have in common, computed from the columns of all rows."""
        return self

    def estimate(self, rows: TrainingRows, splits: Splits, *, deadline: Deadline) -> float | None:
        """Return the seconds that ``fit_folds`` will take; None if that is not known beforehand."""
        return None

    @abstractmethod
    def fit(
        self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline
    ) -> FittedModel | Candidates:
        """Fit a model, or several that differ in a setting.

        Args:
            train: The rows to learn from; they have every class.
            held_out: Other rows, which judge the model. Nothing is chosen on them: candidates have their losses on
                these rows, and ``choose_candidates`` chooses by the losses of other folds.
            seed: Seed of everything random.
            deadline: When to stop with OutOfTime.

        Returns:
            The model of a family without settings, otherwise the candidates.

        Raises:
            OutOfTime: The deadline passed.
        """

    def fit_folds(
        self, rows: TrainingRows, splits: Splits, *, seed: int, deadline: Deadline
    ) -> Sequence[FittedModel | Candidates]:
        """Fit a model for each fold, one after the other.

        Args:
            rows: The rows of the table.
            splits: For each fold, the rows to train on and the rows that are held out.
            seed: Seed of the first fold; the others have the numbers after it.
            deadline: When to stop with OutOfTime.

        Returns:
            For each fold a model or candidates.
        """
        return [
            self.fit(rows.take(train), rows.take(held_out), seed=seed + fold, deadline=deadline)
            for fold, (train, held_out) in enumerate(splits)
        ]

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Return one model whose logits are the mean of the logits of the folds' models."""
        return MeanOfFolds(tuple(models))


@dataclass(frozen=True)
class MeanOfFolds(FittedModel):
    """The mean of several models' logits."""

    models: tuple[FittedModel, ...]

    @property
    def folds(self) -> int:
        """The number of folds."""
        return len(self.models)

    def of_fold(self, fold: int) -> FittedModel:
        """Return the model of one fold."""
        return self.models[fold]

    def logits(self, features: Features) -> Floats:
        """Return the mean of the models' logits."""
        return np.mean([model.logits(features) for model in self.models], axis=0)

    def restored(self, folder: Folder) -> MeanOfFolds:
        """Refuse a mean of no models."""
        if not self.models:
            raise ModelFileError("there are no models")
        return self


#: The module and the class of each kind of model in a folder; networks need torch, which others do not.
FittedModel.kinds = {
    name: f"metricfit.tabular.families.{place}"
    for name, place in {
        "mean_of_folds": "family:MeanOfFolds",
        "boosted_trees": "boosting:StoredTrees",
        "forests": "forest:StoredForests",
        "linear": "linear:LinearModel",
        "text": "linear:TextModel",
        "kernel": "kernel:KernelModel",
        "network": "network_models:StoredNetworks",
        "in_context": "in_context:StoredContext",
        "user_model": "user_model:FittedUserModel",
    }.items()
}
