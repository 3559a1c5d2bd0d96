"""The threshold of a loss, as it was passed to its constructor."""

from __future__ import annotations

from numbers import Real
from typing import Literal, Protocol

from torch import Tensor, nn

from metricfit.core.steps import check_threshold
from metricfit.core.threshold_vectors import PerLabel, ThresholdGrid, read_decision
from metricfit.core.types import Thresholds
from metricfit.errors import InvalidValueError, quote

#: The threshold of a loss: one for each label, one, or several for all labels.
ThresholdSetting = float | Literal["dynamic"] | tuple[float, ...] | ThresholdGrid | Tensor | None


def read_threshold(threshold: Thresholds) -> ThresholdSetting | PerLabel:
    """Check the threshold of a loss, and return several numbers as a tuple.

    Args:
        threshold: One or several probabilities, as a number, a tensor or a list, one per label, or "dynamic"; None for
            the default.

    Returns:
        The threshold.

    Raises:
        InvalidValueError: The threshold is something else, or out of range.
    """
    threshold = read_decision(threshold)
    if isinstance(threshold, PerLabel):
        return threshold.check_probabilities()
    if isinstance(threshold, ThresholdGrid):
        for number in threshold.numbers:
            check_threshold(number)
        return threshold
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
    setting = read_threshold(threshold)
    module.per_label = isinstance(setting, PerLabel)  # type: ignore[assignment]
    kept = setting.numbers if isinstance(setting, PerLabel) else setting
    if isinstance(setting, PerLabel) and not setting.numbers.requires_grad:
        kept = setting.numbers.clone()  # loading a state dict into the module must not change the setting
    if isinstance(kept, Tensor) and not isinstance(kept, nn.Parameter):
        module.register_buffer("threshold", kept)
    else:
        module.threshold = kept  # type: ignore[assignment]


def kept_threshold(module: HasThreshold) -> Thresholds:
    """Return the threshold of a module as it is counted with: thresholds of labels are a column ``(c, 1)``."""
    if not module.per_label:
        return module.threshold
    assert isinstance(module.threshold, Tensor)
    return module.threshold.unsqueeze(-1)
