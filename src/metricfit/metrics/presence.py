"""Whether counts hold the samples that a metric needs, and where it is 0/0."""

from __future__ import annotations

import math
from functools import reduce
from itertools import product

from metricfit.core.arrays import Array, exact, namespace
from metricfit.core.counts import Counts
from metricfit.core.numerics import maximum, minimum, where
from metricfit.metrics.metric import Metric

#: A count that is this share of the others changes a metric where it is defined by no more than rounding.
PROBE, JUMP = 1e-9, 1e-3


def has_samples(metric: Metric, counts: Counts, value: Array) -> Array:
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
        array([ True, False])
    """
    present = counts.n > 0
    for needed in metric.needs or ("positives",) * (metric.user_defined and counts.tp.shape[-1] > 1):
        present = present & (getattr(counts, needed) > 0)
    if metric.class_index is not None:
        present = present[..., metric.class_index : metric.class_index + 1]
    return present if present.shape == value.shape else present.any(-1)


def is_measured(metric: Metric, counts: Counts, value: Array) -> Array:
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
        array([ True, False,  True])
    """
    defined = ~is_undefined(metric, counts)
    return has_samples(metric, counts, value) | (defined if defined.shape == value.shape else defined.any(-1))


def is_undefined(metric: Metric, counts: Counts) -> Array:
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
        array([ True, False])
    """
    values = [metric(probe) for probe in _probes(counts)]
    low, high = reduce(minimum, values), reduce(maximum, values)
    return high - low > JUMP * (1 + minimum(abs(low), abs(high)))


def _probes(counts: Counts) -> list[Counts]:
    """Return the counts with a trace added to each of the four, or to each corner of a confusion matrix."""
    cells = [exact(cell) for cell in counts.tensors]
    xp = namespace(*cells)
    least = reduce(minimum, [where(cell > 0, cell, math.inf) for cell in cells])
    if len(cells) == 4:
        trace = PROBE * where(least == math.inf, 1.0, least)
        return [
            counts.with_tensors(cell + trace * (k == probed) for k, cell in enumerate(cells)) for probed in range(4)
        ]
    smallest = xp.amin(least, (-2, -1))
    trace = PROBE * where(smallest == math.inf, 1.0, smallest)
    probes = [cells[0] + 0.0 for _ in range(4)]
    for probe, (row, column) in zip(probes, product((0, -1), (0, -1)), strict=True):
        probe[..., row, column] += trace
    return [counts.with_tensors([probe]) for probe in probes]
