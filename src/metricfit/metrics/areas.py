"""The areas under the curves of one column of scores, of several labels, and of several classes."""

from __future__ import annotations

import math
from typing import overload

from metricfit.core.arrays import Array, cast, exact, in_kind_of, is_floating, namespace
from metricfit.core.types import Average, ScalarAverage
from metricfit.errors import InvalidValueError
from metricfit.metrics.label_rankings import (
    Questions,
    Versus,
    ask_classes,
    auroc_of,
    average_precision_of,
    check_ranking_average,
)
from metricfit.metrics.sweep import area_under_precision_recall, area_under_roc, as_array, check_scores, sweep

#: How far probabilities of classes may be from a sum of 1, by the precision of their type.
ROUNDED_SUM = {"float64": 1e-6, "float32": 1e-4}
ROUNDED_HALF = 2e-2


@overload
def auroc(
    scores: Array,
    target: Array,
    weight: Array | None = None,
    *,
    average: ScalarAverage = "macro",
    versus: Versus = "rest",
) -> float: ...
@overload
def auroc(
    scores: Array, target: Array, weight: Array | None = None, *, average: None, versus: Versus = "rest"
) -> Array: ...
def auroc(
    scores: Array,
    target: Array,
    weight: Array | None = None,
    *,
    average: Average = "macro",
    versus: Versus = "rest",
) -> float | Array:
    """The area under the ROC curve: the share of (positive, negative) pairs that are ranked correctly; ties count half.

    The shapes decide what is measured, and the averages are those of scikit-learn's ``roc_auc_score``:

    - scores ``(n,)`` or ``(n, 1)`` with targets 0 and 1 ``(n,)``: the area;
    - scores ``(n, c)`` with targets 0 and 1 ``(n, c)``: several labels, the average of the areas of the columns;
    - scores ``(n, c)`` with class numbers ``(n,)``: exclusive classes, each one against the rest, or in pairs.

    Args:
        scores: One score per sample, or one per sample and label: logits or probabilities. Scores of exclusive classes
            are probabilities that sum to 1, because logits of one class do not rank samples as its probabilities do.
        target: The labels.
        weight: One weight per sample, at least 0; by default all are 1. For several labels also one per score,
            ``(n, c)``; a weight of 0 leaves out an unknown label.
        average: For several labels or classes: "macro" is the mean of the areas, "weighted" their mean weighted by
            positives, "micro" the area of all columns as one, None one area per column.
        versus: For exclusive classes: "rest" compares each class with all others together (scikit-learn's "ovr"),
            "one" takes the mean over all pairs of classes (Hand and Till 2001, "ovo"), which does not depend on how
            frequent classes are; "macro" and "weighted" only.

    Returns:
        The area, from 0 to 1; for ``average=None`` one per column, as an array of the kind of ``scores``.

    Raises:
        InvalidValueError: The arrays do not fit each other, hold NaN, or lack a class of a single column; or the
            probabilities of exclusive classes do not sum to 1.

    Warns:
        UndefinedRankingWarning: One of several labels or classes lacks positives or negatives. Its area is NaN, and so
            is a macro average. A weighted average leaves out columns without positives.

    Example:
        >>> auroc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
        0.875
        >>> auroc([[0.9, 0.2], [0.4, 0.3], [0.3, 0.8]], [[1, 0], [0, 1], [0, 1]])
        1.0
        >>> auroc([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.1, 0.3]], [0, 1, 2], versus="one")
        1.0
    """
    check_ranking_average(average, versus)
    questions = read_questions(scores, target, weight)
    if questions is None:
        _, counts = sweep(scores, target, weight, both_classes_for="the AUROC")
        area = area_under_roc(counts.tp[..., 0], counts.fp[..., 0])
        return _as_result(area, average)
    return _as_result(auroc_of(questions, average, versus), average)


@overload
def average_precision(
    scores: Array, target: Array, weight: Array | None = None, *, average: ScalarAverage = "macro"
) -> float: ...
@overload
def average_precision(scores: Array, target: Array, weight: Array | None = None, *, average: None) -> Array: ...
def average_precision(
    scores: Array, target: Array, weight: Array | None = None, *, average: Average = "macro"
) -> float | Array:
    """The sum over thresholds of the gain in recall times the precision, not interpolated.

    Several labels and exclusive classes, each against the rest, are measured as by ``auroc``.

    Args:
        scores: One score per sample, or one per sample and label: logits or probabilities. Scores of exclusive classes
            are probabilities that sum to 1.
        target: 0 or 1 for each score; for exclusive classes the class number of each sample.
        weight: One weight per sample, at least 0; by default all are 1. For several labels also one per score.
        average: For several labels or classes: "macro", "weighted", "micro", or None for one value per column.

    Returns:
        The average precision, from 0 to 1; for ``average=None`` one per column.

    Raises:
        InvalidValueError: The arrays do not fit each other, hold NaN, or a single column lacks positives.

    Warns:
        UndefinedRankingWarning: One of several labels or classes has no positives; its average precision is 0.

    Example:
        >>> average_precision([0.9, 0.4, 0.4, 0.1], [1, 0, 1, 0])
        0.8333333333333333
        >>> average_precision([[0.9, 0.2], [0.4, 0.3], [0.3, 0.8]], [[1, 1], [0, 0], [1, 1]], average=None)
        array([0.83333333, 0.83333333])
    """
    check_ranking_average(average)
    questions = read_questions(scores, target, weight)
    if questions is None:
        _, counts = sweep(scores, target, weight, positives_for="average precision")
        value = area_under_precision_recall(counts.tp[..., 0], counts.fp[..., 0])
        return _as_result(value, average)
    return _as_result(average_precision_of(questions, average), average)


def read_questions(scores: Array, target: Array, weight: Array | None) -> Questions | None:
    """Read scores of several labels or classes; None for a single column, which ``sweep`` reads.

    Raises:
        InvalidValueError: The arrays do not fit each other, or hold values that are not allowed.
    """
    s = as_array(scores, "scores")
    if s.ndim != 2 or s.shape[1] == 1:
        return None
    y = in_kind_of(as_array(target, "target"), s)
    w = None if weight is None else exact(in_kind_of(as_array(weight, "weight"), s))
    s = check_scores(s)
    if w is not None and not bool(((w >= 0) & (w < math.inf)).all()):
        raise InvalidValueError("weights must be finite and at least 0")
    if y.shape == s.shape:
        return _read_labels(s, y, w)
    if y.shape in ((len(s),), (len(s), 1)):
        return _read_classes(s, y.reshape(-1), w)
    raise InvalidValueError(
        f"target has shape {tuple(y.shape)}; for scores {tuple(s.shape)} it is {tuple(s.shape)}, 0 or 1 for each "
        f"label, or ({len(s)},), the class of each sample"
    )


def _read_labels(s: Array, y: Array, w: Array | None) -> Questions:
    if not bool(((y == 0) | (y == 1)).all()):
        raise InvalidValueError(
            f"target must hold 0 and 1 only, got values from {float(y.min()):g} to {float(y.max()):g}; give unknown "
            "labels the weight 0, weight=(n, c)"
        )
    if w is not None:
        w = _check_weight(w, s, (tuple(s.shape), (len(s),), (len(s), 1)))
        w = namespace(s).broadcast_to(w.reshape(len(s), -1), s.shape).T
    return Questions(s.T, exact(y.T), w)


def _read_classes(s: Array, y: Array, w: Array | None) -> Questions:
    classes = s.shape[1]
    if is_floating(y) and not bool((y == y.round()).all()):
        raise InvalidValueError("target must hold class numbers, got fractions or NaN")
    if not bool(((y >= 0) & (y < classes)).all()):
        raise InvalidValueError(
            f"target must hold class numbers from 0 to {classes - 1}, got {float(y.min()):g} to {float(y.max()):g}"
        )
    sums = exact(s).sum(1)
    tolerance = ROUNDED_SUM.get(str(s.dtype).removeprefix("torch."), ROUNDED_HALF)
    if bool((s < 0).any()) or not bool((abs(sums - 1) <= tolerance).all()):
        raise InvalidValueError(
            f"scores of {classes} exclusive classes are probabilities that sum to 1: pass logits.softmax(1). Logits of "
            "one class do not rank samples as its probabilities do"
        )
    weight = None if w is None else _check_weight(w, s, ((len(s),), (len(s), 1))).reshape(-1)
    return ask_classes(s.T, cast(y, namespace(y).int64), weight)


def _check_weight(w: Array, s: Array, shapes: tuple[tuple[int, ...], ...]) -> Array:
    if tuple(w.shape) not in shapes:
        raise InvalidValueError(f"scores have shape {tuple(s.shape)}, but weight has {tuple(w.shape)}")
    if not bool((w > 0).any()):
        raise InvalidValueError("all weights are 0")
    return w


def _as_result(value: Array, average: Average) -> float | Array:
    return value.reshape(-1) if average is None else float(value)
