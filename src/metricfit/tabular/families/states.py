"""A fitted model as plain data: JSON values, arrays and files, from which it is built again after they were checked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from metricfit.core.threads import thread_count
from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote
from metricfit.tabular.families.family import Features, FittedModel, Floats, MeanOfFolds

#: Rows that a thread predicts at a time. The parts do not depend on the number of threads, so that the predictions do
#: not either.
ROWS_PER_PART = 8192
MEAN = "mean_of_folds"
#: The module and the class that reads each kind of state; networks need torch, which others do not.
KINDS = {
    "boosted_trees": ("boosting", "BoostedTrees"),
    "forests": ("forest", "Forests"),
    "linear": ("linear", "LinearModel"),
    "kernel": ("kernel", "KernelModel"),
    "network": ("network_models", "NetworkModel"),
    "user_model": ("user_model", "FittedUserModel"),
}


class MissingArgumentError(InvalidValueError):
    """The folder does not hold a function of the user, which ``load`` needs as an argument."""


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
    """

    columns: int
    classes: int
    trusted: tuple[str, ...] = ()
    network: Any = None

    @property
    def outputs(self) -> int:
        """The number of logits per row."""
        return 1 if self.classes == 2 else self.classes


class StoredModel(Protocol):
    """A fitted model that can be saved."""

    def logits(self, features: Features) -> Floats:
        """Return the logits, as every fitted model does."""
        ...

    def state(self) -> ModelState:
        """Return what the model consists of."""
        ...

    @classmethod
    def restored(cls, state: ModelState, expected: Expected) -> StoredModel:
        """Return the model that a state describes.

        Raises:
            ModelFileError: The state is not one of such a model, or does not fit the table and its classes.
        """
        ...


def to_state(model: FittedModel) -> ModelState:
    """Return what a fitted model consists of.

    Raises:
        InvalidTypeError: The model is of a class that cannot be saved.
    """
    if isinstance(model, MeanOfFolds):
        return ModelState(MEAN, parts=tuple(to_state(part) for part in model.models))
    if not hasattr(model, "state"):
        raise InvalidTypeError(f"models of type {type(model).__name__} cannot be saved")
    return cast(StoredModel, model).state()


def from_state(state: ModelState, expected: Expected) -> FittedModel:
    """Return the model that a state describes.

    Args:
        state: What `to_state` returned, read from files.
        expected: What the model has to fit.

    Raises:
        ModelFileError: The state is damaged, or is not of a model for this table.
        UntrustedTypeError: It has a scikit-learn model of types that nobody trusts.
    """
    if state.kind == MEAN:
        if not state.parts:
            raise ModelFileError(f"{MEAN}: there are no models")
        return MeanOfFolds(tuple(from_state(part, expected) for part in state.parts))
    if state.kind not in KINDS:
        raise ModelFileError(f"models of kind {quote(state.kind)} are not known; known are {', '.join(KINDS)}")
    module, name = KINDS[state.kind]
    kind = getattr(import_module(f"metricfit.tabular.families.{module}"), name)
    return cast(FittedModel, kind.restored(state, expected))


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
