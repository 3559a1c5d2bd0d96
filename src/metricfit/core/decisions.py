"""Counts of hard decisions, which are made of logits or are labels already; of tensors and of NumPy arrays."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from metricfit.core.arrays import (
    Array,
    cast,
    exact_type,
    full,
    in_kind_of,
    is_array,
    is_floating,
    is_tensor,
    namespace,
    sum_at,
)
from metricfit.core.canonical_batch import Batch, Classes
from metricfit.core.class_shares import TargetJudge
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING, constant
from metricfit.core.settings import DEFAULT, CountSettings
from metricfit.core.tasks import canonical
from metricfit.core.thresholds import thresholds_of_batch
from metricfit.core.validation import check_nan_logits, looks_at_values
from metricfit.errors import InvalidValueError


def count_hard(
    logits: Array,
    target: Array,
    settings: CountSettings = DEFAULT,
    *,
    weight: Array | None = None,
    group: Array | None = None,
    matrix: bool = False,
) -> Counts:
    """Count hard decisions, exactly and without gradient.

    Args:
        logits: The outputs of the model.
        target: The labels.
        settings: How to count.
        weight: One weight per sample.
        group: One group number per row.
        matrix: Whether counts of exclusive classes must hold the whole confusion matrix. Binary counts are one.

    Returns:
        The counts, as ``Counts.hard`` returns them.
    """
    batch = canonical(constant(logits), target, settings, weight=weight, group=group, judge=TargetJudge(), arrays=True)
    if looks_at_values(batch.logits, settings.validate):
        check_nan_logits(batch.logits)
    thresholds = thresholds_of_batch(settings.threshold, batch, soft=False)
    with _full_precision(batch.logits):
        if isinstance(thresholds, list):
            return Counts.stack([count_batch(batch, number, matrix=matrix) for number in thresholds])
        return count_batch(batch, thresholds, matrix=matrix)


def _full_precision(logits: Array) -> AbstractContextManager[None]:
    if not is_tensor(logits):
        return nullcontext()
    from metricfit.core.tensor_numerics import full_precision

    return full_precision(logits.device)


def count_batch(batch: Batch, threshold: float | Array | None, *, matrix: bool = False) -> Counts:
    """Count the hard decisions of a batch in its final shape at one threshold; ``matrix`` as in ``count_hard``."""
    if matrix and isinstance(batch, Classes):
        return ConfusionMatrix(batch.hard_matrix())
    return Counts(*batch.hard(threshold), exclusive=batch.exclusive)


def count_labels(
    predicted: Any,
    target: Any,
    *,
    num_classes: int | None = None,
    weight: Any = None,
    matrix: bool = False,
) -> Counts:
    """Count labels against labels.

    The arguments are as in ``Counts.from_labels``, and ``matrix`` is as in ``count_hard``.
    """
    like = next((labels for labels in (target, predicted) if is_tensor(labels)), None)
    predicted, target = (in_kind_of(_as_array(labels), like) for labels in (predicted, target))
    if predicted.ndim > 1 and math.prod(predicted.shape[1:]) != 1:
        raise InvalidValueError(
            f"labels must have shape (n,) or (n, 1), got {tuple(predicted.shape)}; flatten pixels first"
        )
    predicted, target = predicted.reshape(-1), target.reshape(-1)
    if predicted.shape != target.shape:
        raise InvalidValueError(f"{len(predicted)} predicted labels for {len(target)} targets")
    xp, exact = namespace(target), exact_type(target)
    if weight is None:
        weights = full(target, (len(target),), 1.0, exact)
    else:
        weights = cast(in_kind_of(_as_array(weight), target), exact).reshape(-1)
    if weights.shape != target.shape:
        raise InvalidValueError(f"{len(weights)} weights for {len(target)} targets")
    if not bool(((weights >= 0) & xp.isfinite(weights)).all()):
        raise InvalidValueError("weights must be finite and at least 0")
    classes = 2 if num_classes is None else num_classes
    predicted = _read_labels(predicted, "predicted", classes, num_classes is None)
    target = _read_labels(target, "target", classes, num_classes is None)
    if matrix and num_classes is not None:
        return ConfusionMatrix(sum_at(target * classes + predicted, weights, classes**2).reshape(classes, classes))
    right = predicted == target
    tp, fn, fp = (
        sum_at(labels, weights * chosen, classes)
        for labels, chosen in ((target, right), (target, ~right), (predicted, ~right))
    )
    rest = weights.sum() - tp - fn - fp
    counts = Counts(tp, fp, fn, xp.where(rest > ROUNDING * weights.sum(), rest, 0.0), exclusive=True)
    return counts.map(lambda cell: cell[1:]) if num_classes is None else counts


def _as_array(labels: Any) -> Array:
    return labels if is_array(labels) else np.asarray(labels)


def _read_labels(labels: Array, name: str, classes: int, binary: bool) -> Array:
    """Return labels as integers, after a check of their range."""
    if is_floating(labels) and bool((labels != labels.round()).any()):
        raise InvalidValueError(f"{name} must hold labels, got fractions; threshold scores first, or use Counts.hard")
    if len(labels) and bool((labels.min() < 0) | (labels.max() >= classes)):
        low, high = float(labels.min()), float(labels.max())
        hint = "; give num_classes= for more than two classes" if binary else ""
        raise InvalidValueError(f"{name} labels must lie in 0..{classes - 1}, got {low:g} to {high:g}{hint}")
    return cast(labels, namespace(labels).int64)
