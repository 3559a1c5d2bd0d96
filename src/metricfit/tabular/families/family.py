"""What a family of models is: it fits the folds of a table, and its fitted models give logits and are stored.

All families get the same rows and the same folds, so that their out-of-fold logits can be compared and combined.
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Floats as Floats
from metricfit.core.arrays import Integers as Integers
from metricfit.core.threads import thread_count
from metricfit.errors import InvalidValueError, MetricfitError, ModelFileError, quote

if TYPE_CHECKING:
    from metricfit.tabular.large_rows import CompactFeatures

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


class FittedModel(ABC):
    """A model that was fitted on some rows."""

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

    @abstractmethod
    def state(self) -> ModelState:
        """Return what the model consists of."""

    @classmethod
    @abstractmethod
    def restored(cls, state: ModelState, expected: Expected) -> FittedModel:
        """Return the model that a state describes.

        Raises:
            ModelFileError: The state is damaged, or does not fit the table and its classes.
        """


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

    def state(self) -> ModelState:
        """Return the states of the models."""
        return ModelState("mean_of_folds", parts=tuple(model.state() for model in self.models))

    @classmethod
    def restored(cls, state: ModelState, expected: Expected) -> MeanOfFolds:
        """Return the models of a state.

        Raises:
            ModelFileError: There are none, or one is damaged.
        """
        if not state.parts:
            raise ModelFileError(f"{state.kind}: there are no models")
        return cls(tuple(restore_model(part, expected) for part in state.parts))


def to_logits(probabilities: Floats, classes: int) -> Floats:
    """Convert probabilities ``(n, c)`` above 0 to logits: ``(n, 1)`` for two classes, log-probabilities for several.

    >>> to_logits(np.array([[0.25, 0.75]]), 2).round(2)
    array([[1.1]])
    """
    logs = np.log(probabilities)
    return np.asarray(logs[:, 1:] - logs[:, :1] if classes == 2 else logs)


def log_losses(logits: Floats, y: Integers) -> Floats:
    """Return the cross-entropy of each row of logits ``(..., n, 1)`` of two classes or ``(..., n, c)`` of several.

    >>> log_losses(np.array([[0.0], [2.0]]), np.array([0, 1])).round(3)
    array([0.693, 0.127])
    """
    if logits.shape[-1] == 1:
        return np.logaddexp(0.0, np.where(y == 1, -logits[..., 0], logits[..., 0]))
    return np.asarray(np.logaddexp.reduce(logits, axis=-1) - logits[..., np.arange(len(y)), y])


def cross_entropy(logits: Floats, y: Integers, weight: Floats | None) -> float:
    """Return the summed cross-entropy of logits ``(n, 1)`` or ``(n, c)``."""
    losses = log_losses(logits, y)
    return float(losses.sum() if weight is None else losses @ weight)


@dataclass(frozen=True)
class ModelState:
    """What a fitted model consists of.

    Attributes:
        kind: The name under which the class of the model is registered.
        values: What JSON can hold.
        arrays: Arrays by name.
        files: Contents of files by name.
        parts: The states of the models that it is made of.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    parts: tuple[ModelState, ...] = ()

    def array(self, name: str, kind: str, shape: Sequence[int | None]) -> NDArray[Any]:
        """Return an array that has the expected kind, shape and finite numbers.

        Args:
            name: Its name.
            kind: "f" for floating-point numbers, "i" for integers.
            shape: The expected shape; None where any size is allowed.

        Raises:
            ModelFileError: It is missing, or not as expected.
        """
        array = self.arrays.get(name)
        if array is None:
            raise ModelFileError(f"{self.kind}: the array {name} is missing")
        fits = array.ndim == len(shape) and all(
            size is None or size == actual for size, actual in zip(shape, array.shape, strict=True)
        )
        if not fits:
            expected = " x ".join("any" if size is None else str(size) for size in shape)
            raise ModelFileError(f"{self.kind}: {name} has the shape {array.shape}, expected {expected}")
        if array.dtype.kind not in ("iu" if kind == "i" else kind):
            raise ModelFileError(f"{self.kind}: {name} has numbers of type {array.dtype}")
        if kind == "f" and not np.isfinite(array).all():
            raise ModelFileError(f"{self.kind}: {name} has numbers that are not finite")
        return array

    def indices(self, name: str, size: int | None, least: int, end: int) -> NDArray[np.int64]:
        """Return a list of whole numbers from ``least`` to below ``end``.

        Raises:
            ModelFileError: It is missing, of another size, or has other numbers.
        """
        array = self.array(name, "i", (size,))
        if array.size and not (least <= int(array.min()) and int(array.max()) < end):
            raise ModelFileError(f"{self.kind}: {name} has numbers outside of {least} to {end - 1}")
        return array.astype(np.int64)

    def whole_number(self, name: str, least: int, most: int) -> int:
        """Return one of the values, a whole number from ``least`` to ``most``.

        Raises:
            ModelFileError: It is missing or another value.
        """
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ModelFileError(
                f"{self.kind}: {name} must be a whole number from {least} to {most}, got {quote(value)}"
            )
        return value

    def positive_number(self, name: str) -> float:
        """Return one of the values, a finite number above 0.

        Raises:
            ModelFileError: It is missing or another value.
        """
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
            raise ModelFileError(f"{self.kind}: {name} must be a finite number above 0, got {quote(value)}")
        return float(value)


@dataclass(frozen=True)
class Expected:
    """What a stored model has to fit.

    Attributes:
        columns: The number of encoded columns.
        classes: The number of classes.
        trusted: Names of types that the user trusts in a stored scikit-learn model.
        network: The user's function that makes networks, or None.
        weights: The file with the weights of a foundation model; None for those in its package's own cache.
    """

    columns: int
    classes: int
    trusted: tuple[str, ...] = ()
    network: Any = None
    weights: str | None = None

    @property
    def outputs(self) -> int:
        """The number of logits per row."""
        return 1 if self.classes == 2 else self.classes


#: The module and the class that reads each kind of state; networks need torch, which others do not.
KINDS = {
    "mean_of_folds": ("family", "MeanOfFolds"),
    "boosted_trees": ("boosting", "BoostedTrees"),
    "forests": ("forest", "Forests"),
    "linear": ("linear", "LinearModel"),
    "text": ("linear", "TextModel"),
    "kernel": ("kernel", "KernelModel"),
    "network": ("network_models", "NetworkModel"),
    "in_context": ("in_context", "InContextModel"),
    "user_model": ("user_model", "FittedUserModel"),
}


def restore_model(state: ModelState, expected: Expected) -> FittedModel:
    """Return the model that a state describes.

    Args:
        state: What ``model.state()`` returned, read from files.
        expected: What the model has to fit.

    Raises:
        ModelFileError: The state is damaged, or is not of a model for this table.
        UntrustedTypeError: It has a scikit-learn model of types that nobody trusts.
    """
    if state.kind not in KINDS:
        raise ModelFileError(f"models of kind {quote(state.kind)} are not known; known are {', '.join(KINDS)}")
    module, name = KINDS[state.kind]
    kind: type[FittedModel] = getattr(import_module(f"metricfit.tabular.families.{module}"), name)
    return kind.restored(state, expected)


#: Rows that a thread predicts at a time. The parts do not depend on the number of threads, so that the predictions do
#: not either.
ROWS_PER_PART = 8192


def predict_in_parts(predict: Callable[[NDArray[np.float32]], Floats], x: NDArray[np.float32]) -> Floats:
    """Apply a function to parts of the rows, in as many threads as torch would use.

    Args:
        predict: Takes rows and returns one row of numbers for each; it runs in several threads at the same time.
        x: The rows.

    Returns:
        The results of all rows.
    """
    parts = [x[first : first + ROWS_PER_PART] for first in range(0, max(1, len(x)), ROWS_PER_PART)]
    threads = min(thread_count(), len(parts))
    if threads == 1:
        return np.concatenate([predict(part) for part in parts])
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(predict, parts)))
