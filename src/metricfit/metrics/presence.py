"""Whether counts hold the samples that a metric needs, and where it is 0/0."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.tensor_numerics import exact_dtype
from metricfit.metrics.metric import Metric

#: A count that is this share of the others changes a metric where it is defined by no more than rounding.
PROBE, JUMP = 1e-9, 1e-3


def has_samples(metric: Metric, counts: Counts, value: Tensor) -> Tensor:
    """Return for each value of a metric whether there were samples to measure it.

    With several classes, a user-defined metric is assumed to need positives unless ``@metric(needs=...)`` says
    otherwise.

    Args:
        metric: The metric.
        counts: The counts ``(..., c)``.
        value: The metric's values: one per class, of one class, or averaged over the classes, ``(...)``.

    Returns:
        Booleans of the shape of ``value``. An average is measured if one of its classes is.

    Example:
        >>> from metricfit import metrics
        >>> counts = Counts(tp=[3, 0], fp=[1, 2], fn=[1, 0], tn=[5, 8])
        >>> has_samples(metrics.recall, counts, metrics.recall(counts))
        tensor([ True, False])
    """
    present = counts.n > 0
    for needed in metric.needs or ("positives",) * (metric.user_defined and counts.tp.shape[-1] > 1):
        present = present & (getattr(counts, needed) > 0)
    if metric.class_index is not None:
        present = present[..., metric.class_index : metric.class_index + 1]
    return present if present.shape == value.shape else present.any(-1)


def is_measured(metric: Metric, counts: Counts, value: Tensor) -> Tensor:
    """Return for each value of a metric whether hard counts measure it: it has its samples, or is not 0/0.

    Without positives a model whose alarms are all wrong has a precision of 0, and a model without alarms has none.

    Args:
        metric: The metric.
        counts: The counts ``(..., c)``.
        value: The metric's values, as in ``has_samples``.

    Returns:
        Booleans of the shape of ``value``.

    Example:
        >>> from metricfit import metrics
        >>> counts = Counts(tp=[0, 0, 0], fp=[2, 0, 0], fn=[0, 0, 3], tn=[5, 7, 4])
        >>> is_measured(metrics.precision, counts, metrics.precision(counts))
        tensor([ True, False,  True])
    """
    defined = ~is_undefined(metric, counts)
    return has_samples(metric, counts, value) | (defined if defined.shape == value.shape else defined.any(-1))


@torch.no_grad()
def is_undefined(metric: Metric, counts: Counts) -> Tensor:
    """Return where a metric is 0/0: where its value jumps if one of the four counts grows by a trace.

    Without positives and predicted positives F1 is 0/0, and it would be 1 with a trace of a true positive and 0 with
    one of a false positive. This holds for any formula, those of users included.

    Args:
        metric: A metric.
        counts: Counts ``(..., c)``; of a metric of the whole confusion matrix, the matrix.

    Returns:
        Booleans of the shape of the metric's value.

    Example:
        >>> from metricfit import metrics
        >>> is_undefined(metrics.f1, Counts(tp=[0, 0], fp=[0, 1], fn=[0, 0], tn=[5, 4]))
        tensor([ True, False])
    """
    values = torch.stack([metric(probe) for probe in _probes(counts)])
    low, high = values.amin(0), values.amax(0)
    return high - low > JUMP * (1 + torch.minimum(low.abs(), high.abs()))


def _probes(counts: Counts) -> list[Counts]:
    """Return the counts with a trace added to each of the four, or to each corner of a confusion matrix."""
    exact = exact_dtype(counts.tensors[0].device)
    cells = torch.stack([cell.detach().to(exact) for cell in counts.tensors])
    of_matrix = len(cells) == 1
    smallest = torch.where(cells > 0, cells, torch.inf).amin((-2, -1) if of_matrix else 0, keepdim=True)
    trace = PROBE * torch.where(smallest.isinf(), 1.0, smallest)
    if not of_matrix:
        return [
            counts.with_tensors(cell + trace[0] * (k == probed) for k, cell in enumerate(cells)) for probed in range(4)
        ]
    probes = [cells.clone() for _ in range(4)]
    for probe, (row, column) in zip(probes, product((0, -1), (0, -1)), strict=True):
        probe[..., row, column] += trace[..., 0, 0]
    return [counts.with_tensors(probe) for probe in probes]
