"""Averages of a metric over classes."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.core.types import Average
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Metric

AVERAGES: tuple[Average, ...] = ("macro", "micro", "weighted", None)


def averaged(metric: Metric, counts: Counts, average: Average = "macro", *, training: bool = False) -> Tensor:
    """Average a metric over the classes.

    The macro average has the same classes as in scikit-learn: those with a true or a predicted sample, and for
    multilabel counts all. In training every class has some soft prediction; classes without a true sample are then left
    out if the metric needs positives. The average does not change a binary metric, nor a metric of the whole confusion
    matrix of exclusive classes. The average of a gap between groups is the gap of the groups' averages.

    Args:
        metric: The metric.
        counts: Counts of shape ``(..., c)``; for a gap ``(..., groups, c)``.
        average: "macro" is the mean over classes, "micro" the metric of the summed counts, "weighted" the mean weighted
            by true samples, None one value per class.
        training: Whether the counts are soft counts of a training batch.

    Returns:
        The average, ``(...)``; for None ``(..., c)``.

    Raises:
        InvalidValueError: There is no such average, or "micro" makes no sense for the metric.

    Example:
        >>> from metricfit.metrics import f1
        >>> averaged(f1, Counts.from_labels(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), num_classes=3))
        tensor(0.6667, dtype=torch.float64)
    """
    check_average(metric, average)
    if isinstance(metric, GroupGap):
        return metric.difference(averaged(metric.metric, counts, average, training=training), counts)
    classes = counts.tp.shape[-1]
    if metric.whole_matrix and counts.exclusive:
        value = metric(counts)
        return value if value.dim() < counts.tp.dim() else value if average is None else value.squeeze(-1)
    if average == "micro" and classes > 1:
        return metric(counts.map(lambda cell: cell.sum(-1, keepdim=True))).squeeze(-1)
    value = metric(counts)
    if average is None:
        return value
    if value.shape[-1] == 1:
        return value.squeeze(-1)
    if average == "weighted":
        share = counts.positives.detach()
    elif not training and counts.exclusive:
        share = ((counts.positives > 0) | (counts.predicted > 0)).to(value.dtype)
    elif training and "positives" in metric.needs:
        share = (counts.positives.detach() > 0).to(value.dtype)
    else:
        share = torch.ones_like(value)
    return ratio((share * value).sum(-1), share.sum(-1))


def check_average(metric: Metric, average: str | None) -> None:
    """Raise an error for an average that does not exist or makes no sense for the metric."""
    if average not in AVERAGES:
        raise InvalidValueError(f"average must be 'macro', 'micro', 'weighted' or None, got {quote(average)}")
    if average == "micro" and metric.of_one_class:
        raise InvalidValueError(f"{metric.name} is of one class, which average='micro' sums with the others")
    if (
        average == "micro"
        and not metric.whole_matrix
        and any(isinstance(value, tuple) for value in metric.parameters.values())
    ):
        raise InvalidValueError(f"{metric.name} has a parameter per class, which average='micro' has no classes for")
