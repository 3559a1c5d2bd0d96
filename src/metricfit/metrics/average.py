"""One number from a metric's values per class."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.core.types import Average
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.metric import Metric

AVERAGES: tuple[Average, ...] = ("macro", "micro", "weighted", None)


def averaged(metric: Metric, counts: Counts, average: Average = "macro", *, training: bool = False) -> Tensor:
    """The metric of counts ``(..., c)`` averaged over the classes, ``(...)``; ``(..., c)`` for None.

    ``macro`` is the mean over classes, ``micro`` the metric of the summed counts, ``weighted`` the mean weighted by
    true samples. A binary metric, having one class, is itself under each, and so is a metric of the whole matrix.

    The classes of a macro average are scikit-learn's, those with a true or a predicted sample, or for multilabel counts
    all; there a metric of the whole matrix is one of each column's matrix. While training all
    classes have some soft prediction: then those without a true sample are left out, if the metric needs one.

    >>> from metricfit.metrics import f1
    >>> averaged(f1, Counts.from_labels(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), num_classes=3))
    tensor(0.6667, dtype=torch.float64)
    """
    check_average(metric, average)
    classes = counts.tp.shape[-1]
    if metric.whole_matrix and counts.exclusive:
        value = metric(counts)
        return value if value.dim() < counts.tp.dim() else value if average is None else value.squeeze(-1)
    if average == "micro" and classes > 1:
        return metric(counts.map(lambda given: given.sum(-1, keepdim=True))).squeeze(-1)
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
    """Refuse an average that does not exist, or that the metric has no meaning under."""
    if average not in AVERAGES:
        raise InvalidValueError(f"average must be 'macro', 'micro', 'weighted' or None, got {quote(average)}")
    if average == "micro" and metric.class_index is not None:
        raise InvalidValueError(f"{metric.name} is of one class, which average='micro' sums with the others")
    if average == "micro" and any(isinstance(given, tuple) for given in metric.parameters.values()):
        raise InvalidValueError(f"{metric.name} has a parameter per class, which average='micro' has no classes for")
