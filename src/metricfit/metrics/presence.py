"""Whether counts hold the samples that a metric needs."""

from __future__ import annotations

from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.metrics.metric import Metric


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
