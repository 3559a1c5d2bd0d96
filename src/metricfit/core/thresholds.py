"""Thresholds as users pass them, checked once and brought into the shape of a batch.

A threshold is one number for all labels, one number for each label (``PerLabel``), or several numbers that each apply
to all labels (``ThresholdGrid``). This module imports torch only where thresholds become tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from metricfit.core.arrays import Array, in_kind_of, is_floating, is_tensor, to_numpy
from metricfit.core.numerics import sigmoid
from metricfit.errors import InvalidTypeError, InvalidValueError, quote

if TYPE_CHECKING:
    from torch import Tensor, nn

    from metricfit.core.canonical_batch import Batch
    from metricfit.core.types import Thresholds

#: The threshold of a loss: one for each label, one, or several for all labels.
ThresholdSetting: TypeAlias = "float | Literal['dynamic'] | tuple[float, ...] | ThresholdGrid | Tensor | None"

#: The remedy for thresholds that are no probabilities.
FROM_LOGITS = "pass a decide.Decision itself, and other thresholds of logits to PerLabel.from_logits"

#: How many thresholds the text of a PerLabel shows at most.
SHOWN = 8


class ThresholdOfLogits(Protocol):
    """A decision at thresholds of logits, such as a ``decide.Decision``."""

    def as_threshold(self) -> float | PerLabel:
        """Return the same threshold, or one per label, as probabilities."""


def read_decision(threshold: Any) -> Any:
    """Return the thresholds of a decision as probabilities, and any other threshold as it is."""
    return threshold.as_threshold() if hasattr(threshold, "as_threshold") else threshold


class PerLabel:
    """One threshold per label, in the order of the columns of the logits.

    Everything that takes a threshold takes it: ``MetricLoss``, ``Counts``, ``metrics.Accumulator``, ``train.Monitor``,
    ``evaluate``, ``constraints.RequirementConstraint`` and ``decide.DecisionModule``. A plain list of as many numbers
    as there are labels could also mean several thresholds for all labels (``ThresholdGrid``). It is refused where both
    are possible.

    Args:
        thresholds: Probabilities ``(c,)`` as a list, an array or a tensor, for example from
            ``curves.best_thresholds``; or a ``decide.Decision``, whose thresholds of logits become probabilities.
            Numbers are kept as a float64 array; a tensor is kept as it is, with its gradient.
            They lie from 0 to 1, or are infinite: then a label is never called. Losses need numbers strictly between 0
            and 1.

    Attributes:
        numbers: The thresholds, an array or a tensor ``(c,)``.

    Raises:
        InvalidTypeError: The thresholds are no numbers.
        InvalidValueError: There are none, they are no list, or one is no probability.

    Example:
        >>> from metricfit import MetricLoss
        >>> loss = MetricLoss("f1", threshold=PerLabel([0.2, 0.6]))
        >>> loss(torch.tensor([[2.0, -1.0], [-2.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor(0.1283)
    """

    def __init__(self, thresholds: Sequence[float] | Array) -> None:
        self.numbers = _read_numbers(thresholds, "PerLabel")
        if _can_be_read(self.numbers):
            outside = [number for number in self.tolist() if math.isfinite(number) and not 0.0 <= number <= 1.0]
            if outside:
                raise InvalidValueError(f"PerLabel needs probabilities, got {outside[0]}; {FROM_LOGITS}")

    @classmethod
    def from_logits(cls, thresholds: Sequence[float] | Array) -> PerLabel:
        """Make thresholds of probabilities from thresholds of logits.

        Args:
            thresholds: One threshold of logits per label. An infinite one stays infinite.

        Returns:
            The thresholds of probabilities, in float64.

        Example:
            >>> PerLabel.from_logits([0.0, -1.0])
            PerLabel([0.5, 0.2689414213699951])
        """
        if hasattr(thresholds, "as_threshold"):  # a decision knows that its thresholds are of logits
            return cls(thresholds)
        numbers = to_numpy(_read_numbers(thresholds, "PerLabel.from_logits"), np.float64)
        return cls(np.where(np.isinf(numbers), numbers, sigmoid(numbers)))

    def tolist(self) -> list[float]:
        """Return the thresholds as a list.

        Returns:
            One number per label.
        """
        numbers: list[float] = self.numbers.tolist()
        return numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerLabel) and self.tolist() == other.tolist()

    def __hash__(self) -> int:
        return hash(tuple(self.tolist()))

    def __repr__(self) -> str:
        numbers = self.tolist()
        if len(numbers) <= SHOWN:
            return f"PerLabel({numbers})"
        shown = ", ".join(map(repr, numbers[: SHOWN - 1]))
        return f"PerLabel([{shown}, ..., {numbers[-1]!r}], {len(numbers)} labels)"

    def check_probabilities(self) -> PerLabel:
        """Raise an error for thresholds at which no soft decision is left to make; a GPU is not waited for.

        Returns:
            The thresholds as they are.

        Raises:
            InvalidValueError: A threshold is not strictly between 0 and 1.
        """
        if _can_be_read(self.numbers):
            outside = [number for number in self.tolist() if not 0.0 < number < 1.0]
            if outside:
                raise InvalidValueError(
                    f"thresholds must lie strictly between 0 and 1, got {outside[0]}; give a label that is never "
                    f"called a threshold such as 0.99; {FROM_LOGITS}"
                )
        return self


class ThresholdGrid:
    """Several thresholds, each of which applies to all labels: a loss is the mean of its values at them.

    A list of numbers means the same, except where it could also mean one threshold per label (``PerLabel``).

    Args:
        thresholds: Probabilities, as a list, an array or a tensor.

    Attributes:
        numbers: The thresholds.

    Raises:
        InvalidTypeError: The thresholds are no numbers.
        InvalidValueError: There are none, they are no list, or one is NaN.

    Example:
        >>> logits, target = torch.tensor([[2.0, -1.0], [-2.0, 1.0]]), torch.tensor([[1, 0], [0, 1]])
        >>> Counts.hard(logits, target, threshold=ThresholdGrid([0.2, 0.6])).predicted
        tensor([[1., 2.],
                [1., 1.]], dtype=torch.float64)
    """

    def __init__(self, thresholds: Sequence[float] | Array) -> None:
        self.numbers: tuple[float, ...] = tuple(_read_numbers(thresholds, "ThresholdGrid").tolist())

    def __len__(self) -> int:
        return len(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThresholdGrid) and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __repr__(self) -> str:
        return f"ThresholdGrid({list(self.numbers)})"


def check_threshold(threshold: float | Tensor) -> None:
    """Raise an error for a number that is not strictly between 0 and 1, where no decision is left to make."""
    if not is_tensor(threshold) and not 0.0 < threshold < 1.0:
        raise InvalidValueError(
            f"a threshold must lie strictly between 0 and 1, got {threshold}; thresholds apply to probabilities, "
            "so convert a threshold on logits with sigmoid"
        )


def read_threshold(threshold: Thresholds, *, soft: bool = True) -> Any:
    """Check a threshold, and return a number, several as a tuple, a tensor, a PerLabel, a ThresholdGrid or "dynamic".

    Args:
        threshold: What the user passed; None for the default.
        soft: Whether each number must be a probability, as for soft counts. Hard counts can be made at any number.

    Returns:
        The threshold. The numbers of tensors are not looked at.

    Raises:
        InvalidValueError: The threshold is something else, or out of range.
    """
    threshold = read_decision(threshold)
    if threshold is None or is_tensor(threshold):
        return threshold
    if isinstance(threshold, str):
        if threshold != "dynamic":
            raise InvalidValueError(
                f"a threshold is a number, several, or for multiclass 'dynamic', got {quote(threshold)}"
            )
        return threshold
    if isinstance(threshold, PerLabel):
        return threshold.check_probabilities() if soft else threshold
    if isinstance(threshold, Real):
        return _check_number(float(threshold), soft=soft)
    if isinstance(threshold, ThresholdGrid):
        for number in threshold.numbers:
            _check_number(number, soft=soft)
        return threshold
    numbers = [number if is_tensor(number) else float(number) for number in threshold]  # type: ignore[union-attr]
    if not numbers:
        raise InvalidValueError("threshold is empty; omit it to use the default")
    return tuple(_check_number(number, soft=soft) for number in numbers)


def _check_number(number: Any, *, soft: bool) -> Any:
    if soft:
        check_threshold(number)
    elif not is_tensor(number) and math.isnan(number):
        raise InvalidValueError("a threshold is NaN")
    return number


def thresholds_of_batch(
    threshold: Thresholds, batch: Batch, *, soft: bool
) -> float | Tensor | list[float | Tensor] | None:
    """Return the threshold of a batch: one number, a column ``(c, 1)``, a list of several, or None for the default.

    Args:
        threshold: What the user passed. A tensor ``(c, 1)`` has one number for each label.
        batch: The batch in its final shape.
        soft: As for ``read_threshold``.

    Raises:
        InvalidValueError: The threshold is something else, or does not fit the batch.
    """
    setting, labels = read_threshold(threshold, soft=soft), batch.labels
    if isinstance(setting, str):
        if labels is not None:
            raise InvalidValueError(
                "the dynamic threshold is for multiclass logits; a binary or multilabel one is a number"
            )
        return None
    if setting is None or isinstance(setting, float) or (is_tensor(setting) and setting.dim() == 0):
        return setting
    if isinstance(setting, PerLabel) or (is_tensor(setting) and setting.dim() == 2):
        if labels is None:
            raise refuse_classes()
        column = setting.numbers[..., None] if isinstance(setting, PerLabel) else setting
        return in_kind_of(check_length(column, labels), batch.logits)
    several = list(setting.numbers if isinstance(setting, ThresholdGrid) else setting)
    if not isinstance(setting, ThresholdGrid) and labels is not None and len(several) == labels > 1:
        raise refuse_two_readings(threshold, labels)
    return several


class HasThreshold(Protocol):
    """A module that keeps a threshold; ``per_label`` says whether it is one per label."""

    threshold: ThresholdSetting
    per_label: bool


def keep_threshold(module: nn.Module, threshold: Thresholds) -> None:
    """Keep the threshold in ``module.threshold``: tensors, and thresholds of labels, in a buffer.

    Args:
        module: The loss. Its ``per_label`` becomes whether the threshold is one per label.
        threshold: As for ``read_threshold``.

    Raises:
        InvalidValueError: The threshold is something else, or out of range.
    """
    import torch
    from torch import nn

    kept = read_threshold(threshold)
    module.per_label = isinstance(kept, PerLabel)  # type: ignore[assignment]
    if isinstance(kept, PerLabel):  # copied, because loading a state dict into the module must not change the setting
        kept = torch.as_tensor(kept.numbers)
        kept = kept if kept.requires_grad else kept.clone()
    elif is_tensor(kept):
        if kept.dim() > 1:
            raise InvalidValueError(f"thresholds are a number or a list of them, got shape {tuple(kept.shape)}")
        for number in kept.detach().reshape(-1).tolist() if kept.device.type == "cpu" else ():
            check_threshold(number)
    if is_tensor(kept) and not isinstance(kept, nn.Parameter):
        module.register_buffer("threshold", kept)
    else:
        module.threshold = kept


def kept_threshold(module: HasThreshold) -> Thresholds:
    """Return the threshold of a module as it is counted with: thresholds of labels are a column ``(c, 1)``."""
    return module.threshold.unsqueeze(-1) if module.per_label else module.threshold  # type: ignore[union-attr]


def refuse_classes() -> InvalidValueError:
    """Return the error for thresholds of labels where the classes exclude each other."""
    return InvalidValueError(
        "these classes exclude each other, so the largest logit decides, at no threshold; curves.best_offsets "
        "tunes such decisions, and for independent labels give task='multilabel'"
    )


def check_length(thresholds: Array, labels: int) -> Array:
    """Return thresholds ``(c, 1)`` if there are as many as labels.

    Raises:
        InvalidValueError: There are more or fewer.
    """
    if tuple(thresholds.shape) != (labels, 1):
        what = "threshold" if len(thresholds) == 1 else "thresholds"
        raise InvalidValueError(f"{len(thresholds)} {what} for {labels} {'output' if labels == 1 else 'labels'}")
    return thresholds


def refuse_two_readings(threshold: object, labels: int) -> InvalidValueError:
    """Return the error for a list of as many thresholds as labels, which names both readings."""
    numbers = threshold.tolist() if is_tensor(threshold) else list(threshold)  # type: ignore[attr-defined, call-overload]
    text = quote(numbers)
    return InvalidValueError(
        f"{labels} thresholds for {labels} labels can mean two things: one threshold per label, "
        f"threshold=metrics.PerLabel({text}), or {labels} thresholds that each apply to all labels, "
        f"threshold=metrics.ThresholdGrid({text})"
    )


def _read_numbers(thresholds: Any, owner: str) -> Array:
    if hasattr(thresholds, "as_threshold"):
        thresholds = thresholds.as_threshold()
        if not isinstance(thresholds, PerLabel):
            raise InvalidValueError(f"{owner} needs one threshold per label, and this decision is for two classes")
    if isinstance(thresholds, (PerLabel, ThresholdGrid)):
        thresholds = thresholds.numbers
    numbers = thresholds
    if not is_tensor(numbers):
        try:
            numbers = np.array(numbers, np.float64)
        except (TypeError, ValueError, RuntimeError):
            raise InvalidTypeError(f"{owner} needs a list of numbers, got {quote(thresholds)}") from None
    if numbers.ndim != 1 or not len(numbers):
        raise InvalidValueError(f"{owner} needs a list of numbers, got shape {tuple(numbers.shape)}")
    if not is_floating(numbers):
        numbers = numbers.double()
    if _can_be_read(numbers) and bool((numbers != numbers).any()):
        raise InvalidValueError(f"{owner}: a threshold is NaN, in {quote(numbers.tolist())}")
    return numbers


def _can_be_read(numbers: Array) -> bool:
    """Return whether numbers can be read without waiting for a device."""
    return not is_tensor(numbers) or numbers.device.type == "cpu"
