"""The threshold of a loss, as it was passed to its constructor."""

from __future__ import annotations

from numbers import Real
from typing import Literal

from torch import Tensor

from metricfit.core.steps import check_threshold
from metricfit.core.types import Thresholds
from metricfit.errors import InvalidValueError, quote


def read_threshold(threshold: Thresholds) -> float | Literal["dynamic"] | tuple[float, ...] | Tensor | None:
    """Check the threshold of a loss, and return several numbers as a tuple.

    Args:
        threshold: One or several probabilities, as a number, a tensor or a list, or "dynamic"; None for the default.

    Returns:
        The threshold.

    Raises:
        InvalidValueError: The threshold is something else, or out of range.
    """
    if isinstance(threshold, Tensor):
        if threshold.dim() > 1:
            raise InvalidValueError(f"thresholds are a number or a list of them, got shape {tuple(threshold.shape)}")
        if threshold.device.type == "cpu":
            for number in threshold.detach().reshape(-1).tolist():
                check_threshold(number)
        return threshold
    if threshold is None or isinstance(threshold, str):
        if threshold not in (None, "dynamic"):
            raise InvalidValueError(
                f"a threshold is a number, several, or for multiclass 'dynamic', got {quote(threshold)}"
            )
        return threshold
    if isinstance(threshold, Real):
        check_threshold(float(threshold))
        return float(threshold)
    numbers = tuple(float(number) for number in threshold)  # type: ignore[union-attr]
    if not numbers:
        raise InvalidValueError("threshold is empty; omit it to use the default")
    for number in numbers:
        check_threshold(number)
    return numbers
