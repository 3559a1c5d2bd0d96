"""What a family of models is: it fits the folds of a table and gives logits.

All families get the same rows and the same folds, so that their out-of-fold logits can be compared and combined.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import MetricfitError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: For each fold, the rows to train on and the rows that are held out.
Splits = Sequence[tuple[Integers, Integers]]


class OutOfTime(MetricfitError):
    """The time budget ran out while a family was training."""


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
        table = self.table
        if table is not None:
            table = table.iloc[index] if hasattr(table, "iloc") else table[index]
        return Features(self.encoded[index], table)

    def parts(self, index: Integers) -> list[Integers]:
        """Return the row numbers in parts that are predicted at a time: here all at once."""
        return [index]

    def __len__(self) -> int:
        return len(self.encoded)


class AnyFeatures(Protocol):
    """The columns of rows, encoded or in a compact form from which the columns of some rows can be encoded."""

    @property
    def encoded(self) -> NDArray[np.float32]:
        """Numbers on one scale, without missing values."""
        ...

    @property
    def table(self) -> Any:
        """The table as the user passed it, or None."""
        ...

    def take(self, index: Integers) -> Features:
        """Return these rows, encoded."""
        ...

    def parts(self, index: Integers) -> list[Integers]:
        """Return the row numbers in parts that are predicted at a time."""
        ...


@dataclass(frozen=True)
class TrainingRows:
    """Rows to learn from.

    Attributes:
        features: Their columns.
        y: Their class numbers; of two classes, 1 is the positive one.
        weight: Their weights in training, or None.
        classes: The number of classes of the whole table.
    """

    features: AnyFeatures
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


class FittedModel(Protocol):
    """A model that was fitted on some rows."""

    def logits(self, features: Features) -> Floats:
        """Return logits ``(n, 1)`` of the positive class of two, or ``(n, c)`` of several classes."""
        ...


@runtime_checkable
class ModelOfFolds(Protocol):
    """A model whose logits are the mean over folds, and which still knows the model of each fold.

    Models that keep the mean of the folds' coefficients alone are not of this kind.
    """

    @property
    def folds(self) -> int:
        """The number of folds."""
        ...

    def of_fold(self, fold: int) -> FittedModel:
        """Return the model of one fold."""
        ...


class Family(ABC):
    """A kind of model that can be fitted on a fold.

    Attributes:
        name: The name of the family in ``models`` and in ``models_``.
        can_be_stopped: Whether a fit ends soon after its deadline.
        growth: The seconds of a fit grow with the number of rows to this power; for families that cannot be stopped.
        fitted_rows: The rows that the last model was fitted on, if these are a sample of a large table.
    """

    name: str
    can_be_stopped: bool = True
    growth: float = 1.0
    fitted_rows: int | None = None

    def check(self, rows: TrainingRows) -> None:
        """Raise an error if the family can never be fitted on such rows. All families are checked before training."""
        return None

    def reason_to_skip(self, rows: TrainingRows) -> str | None:
        """Return why the family is not for these rows, for example because there are too many; None if it is."""
        return None

    def prepare(self, rows: TrainingRows) -> Family:
        """Return the family with what all folds have in common, computed from the columns of all rows."""
        return self

    def estimate(
        self, rows: TrainingRows, splits: Sequence[tuple[Integers, Integers]], *, deadline: Deadline
    ) -> float | None:
        """Return the seconds that ``fit_folds`` will take; None if that is not known beforehand."""
        return None

    @abstractmethod
    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Fit a model on the rows of all folds but one.

        Args:
            train: The rows to learn from; they have every class.
            held_out: The rows of the other fold, which may be used to choose when to stop.
            seed: Seed of everything random.
            deadline: When to stop with OutOfTime.

        Returns:
            The model.

        Raises:
            OutOfTime: The deadline passed.
        """

    def fit_folds(
        self,
        rows: TrainingRows,
        splits: Splits,
        *,
        seed: int,
        jobs: int,
        deadline: Deadline,
    ) -> list[FittedModel]:
        """Fit a model for each fold; ``jobs`` folds at a time, each in a thread.

        Args:
            rows: The rows of the table.
            splits: For each fold, the rows to train on and the rows that are held out.
            seed: Seed of the first fold; the others have the numbers after it.
            jobs: Number of threads.
            deadline: When to stop with OutOfTime.

        Returns:
            One model per fold.
        """

        def fit(fold: int) -> FittedModel:
            train, held_out = splits[fold]
            return self.fit(rows.take(train), rows.take(held_out), seed=seed + fold, deadline=deadline)

        if jobs == 1:
            return [fit(fold) for fold in range(len(splits))]
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(fit, fold) for fold in range(len(splits))]
            try:
                return [future.result() for future in futures]
            except BaseException:
                deadline.cancelled.set()  # ends the other folds at their next check
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def batches(self, splits: Splits, jobs: int) -> list[Splits]:
        """Return the folds in the groups that are fitted at a time, one fold per job."""
        return [splits[first : first + jobs] for first in range(0, len(splits), jobs)]

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Return one model whose logits are the mean of the logits of the folds' models."""
        return MeanOfFolds(tuple(models))


@dataclass(frozen=True)
class MeanOfFolds:
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
        total = self.models[0].logits(features)
        for model in self.models[1:]:
            total = total + model.logits(features)
        return total / len(self.models)


def to_logits(probabilities: Floats, classes: int) -> Floats:
    """Convert probabilities ``(n, c)`` above 0 to logits: ``(n, 1)`` for two classes, log-probabilities for several.

    >>> to_logits(np.array([[0.25, 0.75]]), 2).round(2)
    array([[1.1]])
    """
    logs = np.log(probabilities)
    return np.asarray(logs[:, 1:] - logs[:, :1] if classes == 2 else logs)
