"""The axis of thresholds: probabilities as they are, or their logits where the interesting ones are close to 0 or 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: If a class has a smaller share than this, or a chosen threshold is so close to 0 or 1, the axis is in logits.
RARE = 0.02
EDGE = 1e-6
TICKS = (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 - 1e-5, 1 - 1e-6)


@dataclass(frozen=True)
class ThresholdAxis:
    """How thresholds are placed along an axis.

    Attributes:
        kind: "linear", or "logit".
        low: The position of the left end.
        high: The position of the right end.

    Example:
        >>> axis = ThresholdAxis("logit", -4.0, 4.0)
        >>> axis.place(0.5), axis.place(0.0), [text for _, text in axis.ticks()]
        (0.0, -4.0, ['0.1', '0.5', '0.9'])
    """

    kind: Literal["linear", "logit"] = "linear"
    low: float = 0.0
    high: float = 1.0

    def places(self, thresholds: Any) -> Floats:
        """Return the positions of thresholds, those beyond an end at the end."""
        given = np.asarray(thresholds, dtype=np.float64)
        if self.kind == "logit":
            with np.errstate(divide="ignore"):
                inside = np.clip(given, 0.0, 1.0)
                given = np.log(inside) - np.log1p(-inside)
        positions: Floats = np.clip(given, self.low, self.high)
        return positions

    def place(self, threshold: float) -> float:
        """Return the position of a threshold."""
        return float(self.places(threshold))

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions of ticks and their labels; none for a linear axis, which needs no help."""
        if self.kind == "linear":
            return []
        positions = [(float(np.log(at) - np.log1p(-at)), f"{at:.7g}") for at in TICKS]
        return [(position, text) for position, text in positions if self.low < position < self.high]


LINEAR = ThresholdAxis()


def choose_axis(scores: Sequence[Any], labels: Any, thresholds: Sequence[float]) -> ThresholdAxis:
    """Choose the axis of an explorer.

    Args:
        scores: The scores of each method.
        labels: 1 for positive rows, otherwise 0.
        thresholds: The chosen threshold of each method.

    Returns:
        A linear axis from 0 to 1, or one in logits. It covers the scores of the rarer class and half of the others.

    Example:
        >>> choose_axis([[0.1, 0.9]], [0, 1], [0.5]).kind, choose_axis([[0.001, 0.002]], [0, 1], [0.0015]).kind
        ('linear', 'logit')
    """
    share = float(np.mean(np.asarray(labels)))
    edges = [min(threshold, 1 - threshold) for threshold in thresholds if threshold <= 1]
    if RARE <= share <= 1 - RARE and all(edge >= RARE for edge in edges):
        return LINEAR
    positive = np.asarray(labels) == 1
    lows, highs = zip(*(_ends(np.asarray(each, dtype=np.float64), positive) for each in scores), strict=True)
    low, high = (float(end) for end in np.clip([min(lows), max(highs)], EDGE, 1 - EDGE))
    reached = [threshold for threshold in thresholds if EDGE <= threshold <= 1 - EDGE]
    low, high = min([low, 0.4, *reached]), max([high, 0.6, *reached])
    margin = 0.02 * (np.log(high / (1 - high)) - np.log(low / (1 - low)))
    return ThresholdAxis("logit", float(np.log(low / (1 - low)) - margin), float(np.log(high / (1 - high)) + margin))


def _ends(scores: Floats, positive: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return the range of scores that matters: that of the rarer class, and half of the other class beside it."""
    rare = positive if positive.mean() < 0.5 else ~positive
    if not rare.any():
        return float(scores.min()), float(scores.max())
    middle = float(np.median(scores))
    low, high = float(scores[rare].min()), float(scores[rare].max())
    if positive.mean() < 0.5:
        return min(low, middle), float(scores.max())
    return float(scores.min()), max(high, middle)
