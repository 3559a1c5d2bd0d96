"""Averages of a metric over classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metricfit.core.arrays import Array, cast, namespace
from metricfit.core.counts import Counts
from metricfit.core.numerics import Dual, constant, ratio, where
from metricfit.core.types import Average, ZeroDivision
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.class_subset import check_classes, class_mask
from metricfit.metrics.empty_classes import SKIP, check_zero_division
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Metric
from metricfit.metrics.presence import has_samples, is_undefined

AVERAGES: tuple[Average, ...] = ("macro", "micro", "weighted", None)

#: How scikit-learn's average over rows is computed: the labels of a row are the pixels of an image.
SAMPLES = (
    "; for the mean over rows of the metric of each row's labels, use per_image=True with logits.unsqueeze(1) and "
    "target.unsqueeze(1), (n, 1, c), or for evaluate the model nn.Sequential(model, nn.Unflatten(1, (1, -1)))"
)


def averaged(
    metric: Metric,
    counts: Counts,
    average: Average = "macro",
    classes: Sequence[int] | None = None,
    zero_division: ZeroDivision = None,
    *,
    training: bool = False,
) -> Array:
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
        classes: The classes to average over, for example ``[1, 2, 3]`` without background; by default all. Samples of
            other classes still count as false positives and false negatives of these. "micro" sums the counts of these
            classes, and None gives one value for each of them.
        zero_division: What a class counts for where its metric is 0/0, as F1 without true and predicted samples is: 0
            or 1 as in scikit-learn, or "skip", which leaves out every class without the samples that the metric needs,
            for F1 and Jaccard those without true samples (MONAI's ``ignore_empty=True``). By default 0/0 is 0, and the
            macro average is over the classes described above. "micro" sums the counts first, and then asks this of the
            sum: a class without true samples adds its false positives.
        training: Whether the counts are soft counts of a training batch.

    Returns:
        The average, ``(...)``; for None ``(..., c)``. With "skip" it is NaN where no class is left.

    Raises:
        InvalidValueError: There is no such average, class or zero_division, or it makes no sense for the metric.

    Example:
        >>> from metricfit.metrics import f1
        >>> averaged(f1, Counts.from_labels([0, 1, 1], [0, 1, 0], num_classes=3))
        np.float64(0.6666666666666666)
    """
    check_average(metric, average)
    chosen, zero_division = check_classes(metric, classes), check_zero_division(metric, zero_division)
    if isinstance(metric, GroupGap):
        return metric.difference(averaged(metric.metric, counts, average, training=training, classes=classes), counts)
    mask = None if chosen is None else class_mask(metric, counts, chosen)
    if metric.whole_matrix and counts.exclusive:
        value = metric(counts)
        value = value if zero_division is None else _skip(value, has_samples(metric, counts, value))
        return value if average is None else _without_class_axis(value, counts)
    if average == "micro" and counts.classes > 1:
        counts = counts.map(lambda cell: _sum_classes(cell if mask is None else cell * mask))
        mask, chosen = None, None
    value = metric(counts)
    if zero_division == 1:
        value = where(is_undefined(metric, counts), 1.0, value)
    present = has_samples(metric, counts, value) if zero_division == SKIP else None
    if average is None or counts.classes == 1 or metric.of_one_class:
        value = value if present is None else _skip(value, present)
        if average is not None:
            return _without_class_axis(value, counts)
        return value if chosen is None else value[..., list(chosen)]
    share = _shares(metric, counts, value, average, training, zero_division, present)
    share = share if mask is None else share * mask
    if average == "weighted" and zero_division == 1:  # without weights, the classes count alike
        share = where(share.sum(-1)[..., None] > 0, share, 1.0 if mask is None else mask)
    total = share.sum(-1)
    if isinstance(value, Dual):
        return (value * ratio(share, float(total))).sum()
    mean = ratio((share * value).sum(-1), total)
    return mean if present is None else _skip(mean, share.sum(-1) > 0)


def _sum_classes(cell: Any) -> Any:
    return cell.sum(-1) if isinstance(cell, Dual) else cell.sum(-1)[..., None]


def _without_class_axis(value: Any, counts: Counts) -> Any:
    """Return values ``(..., 1)`` as ``(...)``, and values of the whole matrix, or dual numbers, as they are."""
    return value if isinstance(value, Dual) or value.ndim < counts.tp.ndim else value[..., 0]


def _ones(value: Any) -> Any:
    return np.ones(value.value.shape) if isinstance(value, Dual) else namespace(value).ones_like(value)


def _skip(value: Array, present: Array) -> Array:
    return namespace(value).where(present, value, math.nan)


def _shares(
    metric: Metric,
    counts: Counts,
    value: Array,
    average: Average,
    training: bool,
    zero_division: ZeroDivision,
    present: Array | None,
) -> Array:
    """Return how much each class counts in an average that is a mean over the classes."""
    if average == "weighted":
        return constant(counts.positives)
    if present is not None:
        return cast(present, value.dtype)
    if zero_division is not None:
        return _ones(value)
    if not training and counts.exclusive:
        return cast(~((counts.positives <= 0) & (counts.predicted <= 0)), value.dtype)
    if training and "positives" in metric.needs:
        empty = constant(counts.positives) <= 0  # NaN is not left out: it shows that logits diverged
        return where(empty, 0.0, _ones(value))
    return _ones(value)


def loss_of_counts(
    metric: Metric,
    counts: Counts,
    average: Average,
    classes: Sequence[int] | None = None,
    zero_division: ZeroDivision = None,
) -> Array:
    """Compute the loss of a training batch: 1 minus the average of a metric, or the average if lower is better.

    Args:
        metric: The metric.
        counts: Soft counts ``(c,)``, or ``(thresholds, c)`` for the mean over several thresholds; for a gap between
            groups ``(..., groups, c)``.
        average: The average over the classes.
        classes: The classes to average over, as in ``averaged``.
        zero_division: What a class counts for where its metric is 0/0, as in ``averaged``.

    Returns:
        The loss, a scalar; without an average one loss per class.
    """
    single_value = classes is None and counts.exclusive and (metric.whole_matrix or counts.classes == 1)
    if isinstance(counts.tp, Dual) and single_value:
        single: Any = metric(counts)  # what ``averaged`` returns, without its checks
        return single if metric.minimize else 1.0 - single
    value = averaged(metric, counts, average, classes, zero_division, training=True)
    if isinstance(value, Dual):
        return value if metric.minimize else 1.0 - value
    if zero_division == SKIP:
        value = where(value != value, 0.0, value)  # no class has samples
    if counts.tp.ndim > 1 + isinstance(metric, GroupGap):  # several thresholds
        value = value.mean(0)
    return value if metric.minimize else 1 - value


def check_average(metric: Metric, average: str | None) -> None:
    """Raise an error for an average that does not exist or makes no sense for the metric."""
    if average not in AVERAGES:
        remedy = SAMPLES if isinstance(average, str) and average == "samples" else ""
        raise InvalidValueError(f"average must be 'macro', 'micro', 'weighted' or None, got {quote(average)}{remedy}")
    if average == "micro" and metric.of_one_class:
        raise InvalidValueError(f"{metric.name} is of one class, which average='micro' sums with the others")
    if (
        average == "micro"
        and not metric.whole_matrix
        and any(isinstance(value, tuple) for value in metric.parameters.values())
    ):
        raise InvalidValueError(f"{metric.name} has a parameter per class, which average='micro' has no classes for")
