"""Exact curves and the best threshold, for any metric, from one sort.

Sorting the scores once and summing the labels in that order gives the counts at every threshold. A metric is then its
usual formula over them, so that all n + 1 thresholds cost O(n log n). Everything is computed in float64. A sample is
positive if its score is at least the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metricfit.core.arrays import Array, in_kind_of, namespace, take_along
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING, ratio, where
from metricfit.errors import InvalidValueError
from metricfit.metrics.areas import auroc as auroc
from metricfit.metrics.areas import average_precision as average_precision
from metricfit.metrics.feasibility import ChosenThreshold, RequirementValue, allowed_thresholds, what_is_reachable
from metricfit.metrics.feasibility import InfeasibleError as InfeasibleError
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.metric_parameters import Parameter
from metricfit.metrics.requirements import Requirement, parse_requirement
from metricfit.metrics.sweep import (
    Sweep,
    as_array,
    best_places,
    matrix,
    one_class,
    search_long_column,
    smallest_of_score,
    sweep,
)


class RocCurve(NamedTuple):
    """Points of the ROC curve, by falling threshold from infinity on, as in scikit-learn without ``drop_intermediate``.

    Attributes:
        fpr: False positive rates.
        tpr: True positive rates.
        thresholds: Thresholds.

    Example:
        >>> from metricfit.curves import roc
        >>> curve = roc([0.9, 0.2], [1, 0])
        >>> curve.fpr.tolist(), curve.tpr.tolist()
        ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    """

    fpr: Array
    tpr: Array
    thresholds: Array


class PrecisionRecallCurve(NamedTuple):
    """Points of the precision-recall curve, by rising threshold; the last point, (1, 0), has none, as in scikit-learn.

    Attributes:
        precision: Precisions, one more than thresholds.
        recall: Recalls, one more than thresholds.
        thresholds: Thresholds.

    Example:
        >>> from metricfit.curves import precision_recall
        >>> curve = precision_recall([0.9, 0.2], [1, 0])
        >>> curve.precision.tolist(), curve.recall.tolist()
        ([0.5, 1.0, 1.0], [1.0, 1.0, 0.0])
    """

    precision: Array
    recall: Array
    thresholds: Array


Requirements = str | Requirement | Sequence[str | Requirement]


class BestThreshold(NamedTuple):
    """A threshold and the value of the metric there.

    Attributes:
        threshold: The threshold; a score of at least this is positive.
        value: The value of the metric.

    Example:
        >>> threshold, value = best_threshold([0.75, 0.25], [1, 0], "f1")
        >>> threshold, value
        (0.75, 1.0)
    """

    threshold: float
    value: float


def roc(scores: Array, target: Array, weight: Array | None = None) -> RocCurve:
    """Compute the ROC curve.

    Args:
        scores: One score per sample, ``(n,)`` or ``(n, 1)``: logits or probabilities.
        target: One label per sample, 0 or 1.
        weight: One weight per sample, at least 0; by default all are 1.

    Returns:
        The points of the curve, as arrays of the kind of ``scores``.

    Raises:
        InvalidValueError: The arrays differ in length, hold NaN, or lack a class.

    Example:
        >>> roc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0]).tpr
        array([0. , 0.5, 1. , 1. ])
    """
    thresholds, counts = sweep(scores, target, weight, both_classes_for="the ROC curve")
    points = (ratio(counts.fp, counts.fp[-1]), ratio(counts.tp, counts.tp[-1]))
    fpr, tpr = (rate[..., 0] for rate in points)
    return RocCurve(fpr, tpr, thresholds)


def precision_recall(scores: Array, target: Array, weight: Array | None = None) -> PrecisionRecallCurve:
    """Compute the precision-recall curve.

    Args:
        scores: One score per sample, ``(n,)`` or ``(n, 1)``: logits or probabilities.
        target: One label per sample, 0 or 1.
        weight: One weight per sample, at least 0; by default all are 1.

    Returns:
        The points of the curve, as arrays of the kind of ``scores``.

    Raises:
        InvalidValueError: The arrays differ in length, hold NaN, or lack positives.

    Example:
        >>> precision_recall([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0]).recall
        array([1. , 1. , 0.5, 0. ])
    """
    thresholds, counts = sweep(scores, target, weight, positives_for="the precision-recall curve")
    precision = ratio(counts.tp, counts.predicted)[..., 0]
    precision[0] = 1.0
    recall = ratio(counts.tp, counts.tp[-1])[..., 0]
    return PrecisionRecallCurve(*(namespace(part).flip(part, (0,)) for part in (precision, recall, thresholds[1:])))


def partial_auroc(
    scores: Array, target: Array, max_fpr: float, weight: Array | None = None, *, standardized: bool = True
) -> float:
    """The area under the part of the ROC curve with false positive rates up to ``max_fpr``.

    Args:
        scores: One score per sample, ``(n,)`` or ``(n, 1)``: logits or probabilities.
        target: One label per sample, 0 or 1.
        max_fpr: The largest false positive rate, in (0, 1]. The curve is interpolated there.
        weight: One weight per sample, at least 0; by default all are 1.
        standardized: Return scikit-learn's number, 0.5 for random scores and 1 for perfect ones (McClish 1989).
            Otherwise return the area itself, from 0 to ``max_fpr``.

    Returns:
        The area.

    Raises:
        InvalidValueError: The arrays differ in length, hold NaN, or lack a class; or ``max_fpr`` is out of range.

    Example:
        >>> partial_auroc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0], max_fpr=0.5, standardized=False)
        0.375
    """
    if not 0 < max_fpr <= 1:
        raise InvalidValueError(f"max_fpr must lie in (0, 1], got {max_fpr}")
    fpr, tpr, _ = roc(scores, target, weight)
    widths = namespace(fpr).clip(fpr[1:], 0.0, max_fpr) - namespace(fpr).clip(fpr[:-1], 0.0, max_fpr)
    slopes = ratio(tpr[1:] - tpr[:-1], fpr[1:] - fpr[:-1])
    area = float((widths * (tpr[:-1] + slopes * widths / 2)).sum())
    if not standardized:
        return area
    lowest = max_fpr**2 / 2
    return 0.5 * (1 + (area - lowest) / (max_fpr - lowest)) if max_fpr < 1 else area


def fpr_at_tpr(scores: Array, target: Array, tpr: float, weight: Array | None = None) -> float:
    """The smallest false positive rate at which the true positive rate is at least ``tpr``, not interpolated.

    Args:
        scores: One score per sample, ``(n,)`` or ``(n, 1)``: logits or probabilities.
        target: One label per sample, 0 or 1.
        tpr: The true positive rate to reach, in (0, 1].
        weight: One weight per sample, at least 0; by default all are 1.

    Returns:
        The false positive rate.

    Raises:
        InvalidValueError: The arrays differ in length, hold NaN, or lack a class; or ``tpr`` is out of range.

    Example:
        >>> fpr_at_tpr([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0], tpr=0.9)
        0.5
    """
    if not 0 < tpr <= 1:
        hint = f"; did you mean {tpr / 100:g}?" if 2 <= tpr <= 100 else ""
        raise InvalidValueError(f"tpr must lie in (0, 1], got {tpr}{hint}")
    _, counts = sweep(scores, target, weight, both_classes_for="FPR at a TPR")
    return _fpr_where(counts, ratio(counts.tp, counts.tp[-1]) >= tpr - ROUNDING)


def fpr_at_fn(scores: Array, target: Array, fn: float = 0, weight: Array | None = None) -> float:
    """The smallest false positive rate with at most ``fn`` false negatives.

    Args:
        scores: One score per sample, ``(n,)`` or ``(n, 1)``: logits or probabilities.
        target: One label per sample, 0 or 1.
        fn: Maximum number of false negatives; with weights, their maximum weight.
        weight: One weight per sample, at least 0; by default all are 1.

    Returns:
        The false positive rate.

    Raises:
        InvalidValueError: The arrays differ in length, hold NaN, or lack a class; or ``fn`` is negative.

    Example:
        >>> fpr_at_fn([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0], fn=1)
        0.0
    """
    if not fn >= 0:
        raise InvalidValueError(f"fn is a number of false negatives, at least 0, got {fn}")
    _, counts = sweep(scores, target, weight, both_classes_for="FPR at false negatives")
    return _fpr_where(counts, counts.fn <= fn + ROUNDING * counts.tp[-1])


def best_threshold(
    scores: Array,
    target: Array,
    metric: str | Metric | Formula,
    subject_to: Requirements | None = None,
    *,
    weight: Array | None = None,
) -> BestThreshold:
    """Find the threshold with the best value of a metric among those that meet all requirements. Exact, by one sort.

    Candidates are the distinct scores and infinity (nothing is positive). Best is lowest for a metric to be minimised.
    Of equally good thresholds, one that finds more positives with the same false alarms is taken, and otherwise the
    largest.

    A score of type bfloat16 or float16 stands for all numbers that are rounded to it. The threshold is then the
    smallest of these, a float32 number. It makes the same decisions on the scores as on the scores before rounding; so
    ``Counts.hard(logits, target, threshold=best_threshold(logits.sigmoid(), target, "f1").threshold)`` gives the
    promised value for logits of any floating type.

    Args:
        scores: One score per sample, ``(n,)`` or ``(n, 1)``: logits or probabilities.
        target: One label per sample, 0 or 1.
        metric: A Metric, its name or a function of Counts.
        subject_to: One or several requirements, such as ``"precision >= 0.9"``.
        weight: One weight per sample, at least 0; by default all are 1.

    Returns:
        The threshold and the value of the metric there. A sample is positive if its score is at least the threshold.

    Raises:
        InfeasibleError: No threshold meets the requirements. The message says what is reachable; ``nearest`` holds the
            threshold that comes nearest.
        InvalidValueError: The arrays differ in length or hold NaN, or the metric or a requirement is unknown.

    Example:
        >>> best_threshold([0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0], "f1")
        BestThreshold(threshold=0.4, value=0.8)
        >>> best_threshold([0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0], "recall", subject_to="precision >= 0.9")
        BestThreshold(threshold=0.9, value=0.5)
    """
    measured, requirements = get_metric(metric), as_requirements(subject_to)
    found = None if requirements or weight is not None else search_long_column(scores, target, measured)
    best = BestThreshold(*found) if found else best_of_sweep(sweep(scores, target, weight), measured, requirements)
    return best._replace(threshold=smallest_of_score(best.threshold, scores))


def best_of_sweep(candidates: Sweep, metric: Metric, requirements: list[Requirement]) -> BestThreshold:
    """Return the best of these thresholds, as described in ``best_threshold``."""
    chosen = best_or_nearest(candidates, metric, requirements)
    nearest = BestThreshold(chosen.threshold, chosen.value)
    if not chosen.feasible:
        message = what_is_reachable(requirements, chosen.requirements, chosen.threshold)
        raise InfeasibleError(message, nearest, chosen.requirements)
    return nearest


def best_or_nearest(candidates: Sweep, metric: Metric, requirements: Sequence[Requirement]) -> ChosenThreshold:
    """Return the best threshold that meets all requirements, or if none does, the one that comes nearest.

    Args:
        candidates: The thresholds to choose from, falling, and the counts at each.
        metric: The metric.
        requirements: The requirements.

    Returns:
        The threshold and the results of the requirements there. Nearest is where the largest violation of a
        requirement is smallest; of equally near thresholds the best for the metric is taken.
    """
    allowed, feasible = allowed_thresholds(candidates.counts, requirements)
    chosen = best_of_allowed(candidates, metric, allowed)
    return ChosenThreshold(*chosen, feasible, judge_requirements(requirements, candidates, chosen.threshold))


def best_of_allowed(candidates: Sweep, metric: Metric, allowed: Array) -> BestThreshold:
    """Return the best of the allowed thresholds; ``choose_among_ties`` says which one of equally good ones."""
    value = one_class(metric, candidates.counts)
    place = best_places(value, allowed, candidates.counts, minimize=metric.minimize)
    # One read of both numbers: on a GPU every read is a wait.
    pair = namespace(value).stack([take_along(candidates.thresholds, place), take_along(value, place)])
    return BestThreshold(*pair[:, 0].tolist())


def as_requirements(subject_to: Requirements | None, *, gaps: bool = False) -> list[Requirement]:
    """Parse one requirement, several or none, into a list.

    Args:
        subject_to: The requirements.
        gaps: Whether requirements on gaps between groups are allowed. Decisions for all rows together know no groups.

    Returns:
        The requirements.

    Raises:
        InvalidValueError: A requirement cannot be read, or is on a gap that is not allowed.
    """
    if subject_to is None:
        return []
    several = [subject_to] if isinstance(subject_to, (str, Requirement)) else subject_to
    requirements = [parse_requirement(requirement) for requirement in several]
    for requirement in requirements:
        if isinstance(requirement.metric, GroupGap) and not gaps:
            raise InvalidValueError(
                f"{requirement} is between groups, but one decision is made for all rows; "
                "decide.best_group_thresholds(scores, target, group, metric, subject_to) chooses one per group"
            )
    return requirements


def _fpr_where(counts: Counts, allowed: Array) -> float:
    rates = where(allowed, ratio(counts.fp, counts.fp[-1]), math.inf)
    return float(rates.min())


def judge_requirements(
    requirements: Sequence[Requirement], candidates: Sweep, threshold: float
) -> dict[str, RequirementValue]:
    """Return whether requirements hold at a threshold, and the best value that each can have.

    Args:
        requirements: The requirements.
        candidates: All thresholds, falling, and the counts at each.
        threshold: Any threshold; it decides as the smallest of the candidates that is at least as large.

    Returns:
        The results by the requirement as text.
    """
    index = max(int((candidates.thresholds >= threshold).sum()) - 1, 0) if requirements else 0
    results = {}
    for requirement in requirements:
        values, violation = one_class(requirement.metric, candidates.counts), one_class(requirement, candidates.counts)
        met = bool(requirement.forgives(violation[index]))
        results[str(requirement)] = RequirementValue(float(values[index]), met, float(values[int(violation.argmin())]))
    return results


class BestThresholds(NamedTuple):
    """One threshold per column, and the values of the metric there.

    Attributes:
        thresholds: The thresholds ``(c,)``; a score of at least this is positive.
        values: The values of the metric ``(c,)``.

    Example:
        >>> best_thresholds([[0.75], [0.25]], [[1], [0]], "f1").values
        array([1.])
    """

    thresholds: Array
    values: Array


def best_thresholds(
    scores: Array, target: Array, metric: str | Metric | Formula, *, weight: Array | None = None
) -> BestThresholds:
    """Find the best threshold of each column of scores, as ``best_threshold`` does for one column.

    Args:
        scores: One column of scores per label, ``(n, c)``: logits or probabilities.
        target: Labels 0 or 1, ``(n, c)``.
        metric: A Metric, its name or a function of Counts; each column is measured separately.
        weight: One weight per sample ``(n,)``, or per score ``(n, c)``, at least 0; a weight of 0 leaves out an unknown
            label.

    Returns:
        One threshold and one value per column, as arrays of the kind of ``scores``.

    Raises:
        InvalidValueError: The arrays differ in shape or hold NaN; all weights of a column are 0; or the metric is
            unknown, of one class or has parameters per class.

    Example:
        >>> best_thresholds([[0.9, 0.2], [0.6, 0.8], [0.4, 0.1]], [[1, 0], [0, 1], [1, 0]], "f1").thresholds
        array([0.4, 0.8])
    """
    measured = get_metric(metric)
    if measured.of_one_class or any(isinstance(value, tuple) for value in measured.parameters.values()):
        raise InvalidValueError(
            f"{measured.name} is not the same for all columns; call best_threshold for each of them"
        )
    s, y = matrix(scores, "scores"), matrix(target, "target")
    if s.shape != y.shape:
        raise InvalidValueError(f"scores have shape {tuple(s.shape)}, but target has {tuple(y.shape)}")
    if 0 in s.shape:
        raise InvalidValueError("there are no scores")
    weights: Any = [None] * s.shape[1]
    if weight is not None:
        w = as_array(weight, "weight")
        if tuple(w.shape) not in ((len(s),), (len(s), 1), tuple(s.shape)):
            raise InvalidValueError(f"scores have shape {tuple(s.shape)}, but weight has {tuple(w.shape)}")
        weights = namespace(w).broadcast_to(w.reshape(len(s), -1), s.shape).T
    best = []
    for place, of_column in enumerate(zip(s.T, y.T, weights, strict=True)):
        try:
            best.append(best_threshold(*of_column[:2], measured, weight=of_column[2]))
        except InvalidValueError as error:
            raise InvalidValueError(f"column {place}: {error}") from None
    return BestThresholds(*(in_kind_of(np.array(column), s) for column in zip(*best, strict=True)))


def metric_of_label(metric: Metric, label: int, labels: int) -> Metric:
    """Return the metric for the counts ``(..., 1)`` of one label, with this label's values of parameters per class."""
    if metric.needs_matrix:
        return metric
    parameters: dict[str, Parameter] = {}
    for key, value in metric.parameters.items():
        if isinstance(value, tuple) and len(value) != labels:
            raise InvalidValueError(f"{metric.name} has {len(value)} values of {key}, but there are {labels} labels")
        parameters[key] = value[label] if isinstance(value, tuple) else value
    of_label = metric.of_class(None)
    of_label.parameters = parameters
    return of_label
