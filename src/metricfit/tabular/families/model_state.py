"""A fitted model as plain data: JSON values, arrays and files, from which it is built again after they were checked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError, ModelFileError, quote
from metricfit.tabular.families.family import Features, Floats


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
