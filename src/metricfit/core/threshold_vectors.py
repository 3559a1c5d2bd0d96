"""Several thresholds in one setting: one for each label, or a grid of thresholds that each apply to all labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError, quote

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
    as there are labels could also mean several thresholds for all labels (``ThresholdGrid``), and is refused where both
    are possible.

    Args:
        thresholds: Probabilities ``(c,)`` as a list, an array or a tensor, for example those of
            ``curves.best_thresholds``; or a ``decide.Decision``, whose thresholds of logits become probabilities.
            Numbers are kept as float64; a tensor is kept as it is, with its gradient.
            They lie from 0 to 1, or are infinite: then a label is never called. Losses need numbers strictly between 0
            and 1.

    Attributes:
        numbers: The thresholds, a tensor ``(c,)``.

    Raises:
        InvalidTypeError: The thresholds are no numbers.
        InvalidValueError: There are none, they are no list, or one is no probability.

    Example:
        >>> from metricfit import MetricLoss
        >>> loss = MetricLoss("f1", threshold=PerLabel([0.2, 0.6]))
        >>> loss(torch.tensor([[2.0, -1.0], [-2.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor(0.1283)
    """

    def __init__(self, thresholds: Sequence[float] | Tensor | Any) -> None:
        self.numbers = _read_numbers(thresholds, "PerLabel")
        if self.numbers.device.type == "cpu":
            outside = [number for number in self.tolist() if math.isfinite(number) and not 0.0 <= number <= 1.0]
            if outside:
                raise InvalidValueError(f"PerLabel needs probabilities, got {outside[0]}; {FROM_LOGITS}")

    @classmethod
    def from_logits(cls, thresholds: Sequence[float] | Tensor | Any) -> PerLabel:
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
        numbers = _read_numbers(thresholds, "PerLabel.from_logits").detach().double()
        return cls(torch.where(numbers.isinf(), numbers, numbers.sigmoid()))

    def tolist(self) -> list[float]:
        """Return the thresholds as a list.

        Returns:
            One number per label.
        """
        numbers: list[float] = self.numbers.detach().tolist()
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
        if self.numbers.device.type == "cpu":
            outside = [number for number in self.tolist() if not 0.0 < number < 1.0]
            if outside:
                raise InvalidValueError(
                    f"thresholds must lie strictly between 0 and 1, got {outside[0]}; give a label that is never "
                    f"called a threshold such as 0.99; {FROM_LOGITS}"
                )
        return self

    def as_column(self, labels: int, device: torch.device) -> Tensor:
        """Return the thresholds in the shape ``(c, 1)`` in which they are compared with logits ``(..., c, n)``.

        Args:
            labels: The number of labels.
            device: Where the logits are.

        Returns:
            The column.

        Raises:
            InvalidValueError: There are not as many thresholds as labels.
        """
        return check_length(self.numbers.unsqueeze(-1), labels).to(device)


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

    def __init__(self, thresholds: Sequence[float] | Tensor | Any) -> None:
        self.numbers: tuple[float, ...] = tuple(_read_numbers(thresholds, "ThresholdGrid").detach().tolist())

    def __len__(self) -> int:
        return len(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThresholdGrid) and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __repr__(self) -> str:
        return f"ThresholdGrid({list(self.numbers)})"


def check_length(thresholds: Tensor, labels: int) -> Tensor:
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
    numbers = threshold.tolist() if isinstance(threshold, Tensor) else list(threshold)  # type: ignore[call-overload]
    text = quote(numbers)
    return InvalidValueError(
        f"{labels} thresholds for {labels} labels can mean two things: one threshold per label, "
        f"threshold=metrics.PerLabel({text}), or {labels} thresholds that each apply to all labels, "
        f"threshold=metrics.ThresholdGrid({text})"
    )


def _read_numbers(thresholds: Any, owner: str) -> Tensor:
    if hasattr(thresholds, "as_threshold"):
        thresholds = thresholds.as_threshold()
        if not isinstance(thresholds, PerLabel):
            raise InvalidValueError(f"{owner} needs one threshold per label, and this decision is for two classes")
    if isinstance(thresholds, (PerLabel, ThresholdGrid)):
        thresholds = thresholds.numbers
    numbers = thresholds
    if not isinstance(numbers, Tensor):
        plain = numbers.tolist() if hasattr(numbers, "tolist") else numbers  # of NumPy and pandas
        try:
            numbers = torch.tensor(plain, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise InvalidTypeError(f"{owner} needs a list of numbers, got {quote(thresholds)}") from None
    if numbers.dim() != 1 or not numbers.numel():
        raise InvalidValueError(f"{owner} needs a list of numbers, got shape {tuple(numbers.shape)}")
    if not numbers.is_floating_point():
        numbers = numbers.double()
    if numbers.device.type == "cpu" and bool(numbers.detach().isnan().any()):
        raise InvalidValueError(f"{owner}: a threshold is NaN, in {quote(numbers.detach().tolist())}")
    return numbers
