"""The best thresholds of binary logits and of labels, as probabilities that reproduce the same decisions.

Choosing on probabilities would lose information: in float32 all logits above 17 have the probability 1, and in float64
all above 37. The search therefore runs on the logits, and only the chosen threshold becomes a probability.

One limit remains, because the result is a float64 probability: no such number below 1 separates two logits above about
36.7. Logits above this value are tied, whatever their order. They are decided alike, and the best value can be lower
than the one that ``curves.best_threshold`` finds on the same logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Columns
from metricfit.core.numerics import is_positive
from metricfit.core.types import ScalarAverage
from metricfit.metrics.curves import best_of_sweep, metric_of_label
from metricfit.metrics.metric import Metric
from metricfit.metrics.sweep import Sweep, sweep


def best_label_thresholds(labels: Columns, metric: Metric, average: ScalarAverage) -> float | Tensor:
    """Find the thresholds with the best average value of a metric, as probabilities.

    Under "macro" and "weighted" every label contributes to the average separately, so each label gets its own best
    threshold and no other thresholds are better. "micro" pools the decisions on all labels into one binary problem, and
    this problem has one threshold, the best single number for all labels. (Different thresholds per label could raise a
    micro average further, but they would depend on each other.)

    Args:
        labels: Logits and 0/1 labels ``(c, n)`` with optional weights.
        metric: The metric of one label's decisions.
        average: "macro", "weighted" or "micro".

    Returns:
        One number for a single label and for "micro", otherwise a float64 tensor ``(c,)``. A label whose decisions do
        not matter, because it has no samples with weight or the metric is of another class, has 0.5.

    Raises:
        ValueError: If the metric has parameters per class for another number of labels.

    Example:
        >>> from metricfit.core.tasks import canonical
        >>> from metricfit.metrics import f1
        >>> logits = torch.tensor([[2.0, -1.0], [1.0, -3.0]])
        >>> best_label_thresholds(canonical(logits, torch.tensor([[1, 1], [0, 0]])), f1, "macro").round(decimals=2)
        tensor([0.8200, 0.1200], dtype=torch.float64)
    """
    count = labels.logits.shape[0]
    if count == 1 or average == "micro":
        weight = None if labels.weight is None else labels.weight.reshape(-1)
        pooled_metric = metric if count > 1 else metric_of_label(metric, 0, 1)
        candidates = probability_sweep(labels.logits.reshape(-1), labels.target.reshape(-1), weight)
        return best_of_sweep(candidates, pooled_metric, []).threshold
    thresholds = torch.full((count,), 0.5, dtype=torch.float64)
    for label in range(count):
        weight = None if labels.weight is None else labels.weight[label]
        matters = metric.class_index in (None, label) and (weight is None or bool((weight > 0).any()))
        if matters:
            candidates = probability_sweep(labels.logits[label], labels.target[label], weight)
            thresholds[label] = best_of_sweep(candidates, metric_of_label(metric, label, count), []).threshold
    return thresholds


def probability_sweep(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Sweep:
    """Compute the counts at every probability threshold that makes different decisions.

    Each candidate lies halfway, in logits, between two neighbouring logits, one below the lowest or one above the
    highest, so the decisions do not depend on rounding: ``numerics.is_positive(logits, threshold)`` makes
    exactly the decisions that were counted. Logits that no float64 probability separates (neighbours above 36.7) are
    always decided alike.

    Args:
        logits: One logit per sample, of any floating type.
        target: Labels 0 and 1.
        weight: One weight per sample.

    Returns:
        Decreasing thresholds and the counts at each.

    Example:
        >>> from metricfit.metrics import f1
        >>> candidates = probability_sweep(torch.tensor([30.0, 25.0, 20.0, 18.5]), torch.tensor([1, 1, 0, 0]))
        >>> best_of_sweep(candidates, f1, []).value
        1.0
    """
    falling, counts = sweep(logits, target, weight)  # infinity first, then the distinct logits
    dtype = logits.dtype if logits.is_floating_point() else falling.dtype  # decisions depend on their precision
    upper, lower = falling, torch.cat([falling[1:], falling.new_full((1,), -math.inf)])
    middle = (upper + lower) / 2
    middle[0], middle[-1] = falling[1] + 1, falling[-1] - 1
    thresholds = torch.sigmoid(middle)
    separates = _separates(thresholds, lower.to(dtype), upper.to(dtype))
    if not bool(separates.all()):
        # Instead, the highest probabilities below 1 at which these logits are positive.
        thresholds = torch.where(separates, thresholds, torch.sigmoid(upper).clamp(max=1 - 2.0**-53))
        separates = separates | _separates(thresholds, lower.to(dtype), upper.to(dtype))
        thresholds, counts = thresholds[separates], counts.map(lambda count: count[separates])
    return Sweep(thresholds, counts)


def _separates(thresholds: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Whether decisions at these thresholds fall between the two logits: ``lower`` is negative, ``upper`` positive."""
    inside = (thresholds > 0) & (thresholds < 1)
    return inside & is_positive(upper, thresholds) & ~(is_positive(lower, thresholds) & (lower > -math.inf))
