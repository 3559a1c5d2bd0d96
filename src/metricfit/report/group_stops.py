"""The counts and the metric of each group of rows, at every stop of the explorer."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from metricfit.core.counts import Counts
from metricfit.metrics import Metric
from metricfit.metrics.sweep import one_class

Floats = npt.NDArray[np.float64]
#: More groups than these are identifiers, such as patients, and no table of them is shown.
MAX_GROUPS = 12


@dataclass(frozen=True)
class GroupValues:
    """A group of rows: its size, and its counts and values at each stop.

    Attributes:
        name: The group.
        n: Its rows, by weight.
        positives: Its positive rows, by weight.
        tp: True positives at each stop.
        fp: False positives at each stop.
        values: The metric at each stop.
    """

    name: str
    n: float
    positives: float
    tp: Floats
    fp: Floats
    values: Floats

    def payload(self) -> dict[str, Any]:
        """What the page's script looks up; single precision is enough for what it shows."""
        return {
            "positives": self.positives,
            "tp": _packed_singles(self.tp),
            "fp": _packed_singles(self.fp),
            "values": _packed_singles(self.values),
        }


def are_few_groups(groups: Any) -> bool:
    """Return whether there are so few groups that the explorer has a table of them."""
    return 1 < len(np.unique(np.asarray(groups).astype(str))) <= MAX_GROUPS


def compute_groups(
    scores: Floats, labels: Floats, weight: Floats | None, groups: Any, thresholds: Floats, metric: Metric
) -> list[GroupValues]:
    """Compute what each group's decisions are worth at each stop.

    Args:
        scores: Scores of the positive class.
        labels: 1 for positive rows, otherwise 0.
        weight: One weight per row, or None.
        groups: The group of each row.
        thresholds: The stops.
        metric: The metric.

    Returns:
        The groups, the largest first; none if there are more than 12 or only one.

    Example:
        >>> from metricfit import metrics
        >>> scores, labels = np.array([0.2, 0.9, 0.8]), np.array([0.0, 1.0, 0.0])
        >>> found = compute_groups(scores, labels, None, ["a", "a", "b"], np.array([0.5]), metrics.accuracy)
        >>> [(group.name, group.n, float(group.values[0])) for group in found]
        [('a', 2.0, 1.0), ('b', 1.0, 0.0)]
    """
    if not are_few_groups(groups):
        return []
    names = np.asarray(groups).astype(str)
    distinct = np.unique(names)
    weights = np.ones_like(scores) if weight is None else weight
    found = []
    for name in distinct:
        inside = names == name
        tp, fp = (
            _sum_from(scores[part], weights[part], thresholds)
            for part in (inside & (labels == 1), inside & (labels == 0))
        )
        n, positives = float(weights[inside].sum()), float(weights[inside & (labels == 1)].sum())
        counts = Counts(*(torch.from_numpy(part)[:, None] for part in (tp, fp, positives - tp, n - positives - fp)))
        found.append(GroupValues(str(name), n, positives, tp, fp, one_class(metric, counts).numpy()))
    return sorted(found, key=lambda group: -group.n)


def _sum_from(scores: Floats, weights: Floats, thresholds: Floats) -> Floats:
    """Return the sum of weights of scores that are at least each threshold."""
    order = np.argsort(scores)
    summed = np.concatenate([[0.0], np.cumsum(weights[order])])
    total: Floats = summed[-1] - summed[np.searchsorted(scores[order], thresholds)]
    return total


def _packed_singles(numbers: Floats) -> str:
    return base64.b64encode(numbers.astype("<f4").tobytes()).decode()
