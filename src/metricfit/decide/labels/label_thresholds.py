"""The best thresholds of independent labels: one per label, or one for all of them under a micro average."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Columns
from metricfit.core.tensor_numerics import counting_dtype
from metricfit.core.types import ScalarAverage
from metricfit.decide.probability_thresholds import best_probability_threshold, halfway_probabilities
from metricfit.errors import InvalidValueError, MetricfitError
from metricfit.metrics.metric import Metric
from metricfit.metrics.threshold_search import search_columns


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
        return best_probability_threshold(
            labels.logits.reshape(-1), labels.target.reshape(-1), pooled_metric, weight=weight
        ).threshold
    together = _search_together(labels, metric)
    if together is not None:
        return together
    thresholds = torch.full((count,), 0.5, dtype=torch.float64)
    for label in range(count):
        if metric.class_index not in (None, label):
            continue
        weight = None if labels.weight is None else labels.weight[label]
        if weight is not None and not bool((weight > 0).any()):
            continue
        label_metric = metric_of_label(metric, label, count)
        best = best_probability_threshold(labels.logits[label], labels.target[label], label_metric, weight=weight)
        thresholds[label] = best.threshold
    return thresholds


def _search_together(labels: Columns, metric: Metric) -> Tensor | None:
    """Search all labels at once; None if they have weights, need a metric of their own, or are not all separated."""
    if labels.weight is not None or metric.class_index is not None or metric.needs_matrix:
        return None
    if any(isinstance(value, tuple) for value in metric.parameters.values()):
        return None
    logits, target = labels.logits.detach(), labels.target.detach()
    logits = logits.to(counting_dtype(logits.dtype))
    try:
        found = search_columns(logits, target, metric)
    except MetricfitError:  # the metric is not one of the counts at each threshold
        return None
    halfway = halfway_probabilities(logits, found.thresholds) if bool(found.valid.all()) else None
    return None if halfway is None else halfway.cpu()


def metric_of_label(metric: Metric, label: int, labels: int) -> Metric:
    """Return the metric for the counts ``(..., 1)`` of one label, with this label's values of parameters per class."""
    if metric.needs_matrix:
        return metric
    parameters = {}
    for key, value in metric.parameters.items():
        if isinstance(value, tuple) and len(value) != labels:
            raise InvalidValueError(f"{metric.name} has {len(value)} values of {key}, but there are {labels} labels")
        parameters[key] = value[label] if isinstance(value, tuple) else value
    return Metric(
        metric.base_name,
        metric.formula,
        parameters=parameters,
        minimize=metric.minimize,
        bounds=metric.bounds,
        needs=metric.needs,
        whole_matrix=metric.whole_matrix,
        user_defined=metric.user_defined,
    )
