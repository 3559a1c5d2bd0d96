"""One number from a metric's values per class."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.metrics.base import Metric

AVERAGES = ("macro", "micro", "weighted", None)


def averaged(metric: Metric, counts: Counts, average: str | None) -> Tensor:
    """The metric of counts ``(..., c)`` averaged over the classes, ``(...)``; ``(..., c)`` for None.

    ``macro`` is the mean over classes, leaving out those without a true sample where the metric needs one; ``micro``
    the metric of the summed counts; ``weighted`` the mean weighted by true samples. A binary metric, having one class,
    is itself under each, and so is a metric of the whole matrix.
    """
    classes = counts.tp.shape[-1]
    if metric.whole_matrix and classes > 1:
        return metric(counts)
    if average == "micro" and classes > 1:
        return metric(counts.map(lambda given: given.sum(-1, keepdim=True))).squeeze(-1)
    value = metric(counts)
    if average is None:
        return value
    if value.shape[-1] == 1:
        return value.squeeze(-1)
    if average == "weighted":
        share = counts.positives.detach()
    elif "positives" in metric.needs:
        share = (counts.positives.detach() > 0).to(value.dtype)
    else:
        share = torch.ones_like(value)
    return ratio((share * value).sum(-1), share.sum(-1))
