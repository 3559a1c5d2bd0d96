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


@dataclass(frozen=True)
class Candidates:
    """Models of one fold that differ in a setting, such as the penalty or the number of trees.

    Attributes:
        models: The models. Those of every fold are in the same order.
        losses: The summed cross-entropy of each model on rows that it was not trained on.
    """

    models: Sequence[FittedModel]
    losses: Floats

    @property
    def best(self) -> FittedModel:
        """The model with the lowest loss. The rows of the loss must not judge it afterwards."""
        return self.models[int(self.losses.argmin())]


def choose_candidates(fitted: Sequence[FittedModel | Candidates]) -> list[FittedModel]:
    """Choose the setting of every fold on the rows that the other folds hold out.

    The rows of a fold judge its model, so they have no part in its setting: chosen on them, models of labels that are
    pure noise had an AUROC of 0.6. Chosen on all rows together, still 0.55. Where a fold has fewer candidates than
    others, as trees that stopped growing early, its last one stands for those that it lacks.

    Args:
        fitted: What was fitted on each fold. The losses of a single fold's candidates are of rows that ``set_apart``
            took from its training rows.

    Returns:
        One model per fold.

    Example:
        >>> losses = np.array([[1.0, 2.0], [3.0, 2.5], [3.0, 2.5]])
        >>> choose_candidates([Candidates(("weak", "strong"), loss) for loss in losses])
        ['strong', 'weak', 'weak']
    """
    candidates = [each for each in fitted if isinstance(each, Candidates)]
    if not candidates:
        return list(fitted)  # type: ignore[arg-type]
    if len(candidates) == 1:
        return [candidates[0].best]
    longest = max(len(each.losses) for each in candidates)
    losses = np.stack([np.pad(each.losses, (0, longest - len(each.losses)), mode="edge") for each in candidates])
    chosen = [int(np.delete(losses, fold, axis=0).sum(axis=0).argmin()) for fold in range(len(candidates))]
    return [each.models[min(at, len(each.models) - 1)] for each, at in zip(candidates, chosen, strict=True)]


#: The largest share and number of the training rows that are set apart to choose settings on.
APART_SHARE, MOST_APART = 1 / 8, 50_000


def set_apart(train: Integers, y: Integers, seed: int = 0) -> tuple[Integers, Integers]:
    """Set training rows apart to choose settings on, where there are no other folds to choose them.

    Args:
        train: The numbers of the training rows.
        y: The class numbers of all rows.
        seed: Seed of the draw.

    Returns:
        The rows that stay, among them a row of each class, and the rows apart: an eighth of each class that has several
        rows, but at least one, and at most 50,000 rows in all.

    Example:
        >>> stay, apart = set_apart(np.arange(32), np.repeat([0, 1], [24, 8]))
        >>> len(stay), len(apart)
        (28, 4)
    """
    generator = np.random.default_rng(seed)
    share = min(APART_SHARE, MOST_APART / len(train))
    labels, drawn = y[train], []
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        number = max(1, round(share * len(of_class))) if len(of_class) > 1 else 0
        drawn.append(generator.choice(of_class, number, replace=False, shuffle=False))
    is_apart = np.zeros(len(train), dtype=bool)
    is_apart[np.concatenate(drawn)] = True
    return train[~is_apart], train[is_apart]


class Family(ABC):
    """A kind of model that can be fitted on a fold.

    Attributes:
        name: The name of the family in ``models`` and in ``models_``.
        can_be_stopped: Whether a fit ends soon after its deadline.
        growth: The seconds of a fit grow with the number of rows to this power; for families that cannot be stopped.
        may_travel: Whether the workers of a cluster may fit it; the rows of a large table are not sent to them.
        trains_for_metric: Whether it is trained for the metric, which must then be one of counts.
        fitted_rows: The rows that the last model was fitted on, if these are a sample of a large table.
    """

    name: str
    can_be_stopped: bool = True
    may_travel: bool = True
    trains_for_metric: bool = False
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
        """Fit a model.

        Args:
            train: The rows to learn from; they have every class.
            held_out: Other rows, on which settings may be chosen. They must not judge the model afterwards.
            seed: Seed of everything random.
            deadline: When to stop with OutOfTime.

        Returns:
            The model.

        Raises:
            OutOfTime: The deadline passed.
        """

    def fit_candidates(
        self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline
    ) -> FittedModel | Candidates:
        """Fit a model on the rows of all folds but one, or several that differ in a setting.

        Args:
            train: The rows to learn from; they have every class.
            held_out: The rows of the other fold, which judge the model. Nothing is chosen on them: candidates have
                their losses on these rows, and ``choose_candidates`` chooses by the losses of other folds.
            seed: Seed of everything random.
            deadline: When to stop with OutOfTime.

        Returns:
            The model of a family without settings, otherwise the candidates.

        Raises:
            OutOfTime: The deadline passed.
        """
        return self.fit(train, held_out, seed=seed, deadline=deadline)

    def fit_folds(
        self,
        rows: TrainingRows,
        splits: Splits,
        *,
        seed: int,
        jobs: int,
        deadline: Deadline,
    ) -> Sequence[FittedModel | Candidates]:
        """Fit a model for each fold; ``jobs`` folds at a time, each in a thread.

        Args:
            rows: The rows of the table.
            splits: For each fold, the rows to train on and the rows that are held out.
            seed: Seed of the first fold; the others have the numbers after it.
            jobs: Number of threads.
            deadline: When to stop with OutOfTime.

        Returns:
            For each fold a model or candidates.
        """

        def fit(fold: int) -> FittedModel | Candidates:
            train, held_out = splits[fold]
            return self.fit_candidates(rows.take(train), rows.take(held_out), seed=seed + fold, deadline=deadline)

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
