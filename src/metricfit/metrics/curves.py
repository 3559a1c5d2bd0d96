"""Exact curves and the best threshold, for any metric, from one sort.

Sorting the scores once and summing the labels in that order gives the counts at every threshold. A metric is then its
usual formula over them, so that all n + 1 thresholds cost O(n log n). Everything is computed in float64. A sample is
positive if its score is at least the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from metricfit.core.arrays import Array, namespace
from metricfit.core.counts import Counts
from metricfit.core.numerics import LARGEST, ROUNDING, ratio, where
from metricfit.errors import InvalidValueError
from metricfit.metrics.areas import auroc as auroc
from metricfit.metrics.areas import average_precision as average_precision
from metricfit.metrics.curve_points import PrecisionRecallCurve, RocCurve
from metricfit.metrics.feasibility import ChosenThreshold, RequirementValue, allowed_thresholds, what_is_reachable
from metricfit.metrics.feasibility import InfeasibleError as InfeasibleError
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.requirements import Requirement, parse_requirement
from metricfit.metrics.sweep import (
    Sweep,
    choose_among_ties,
    one_class,
    sweep,
)
from metricfit.metrics.threshold_search import search_column, smallest_of_score

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

    A score of type bfloat16 or float16 stands for all numbers that are rounded to it, and the threshold is then the
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
    found = search_column(scores, target, measured) if weight is None and not requirements else None
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
    better = -value if metric.minimize else value
    highest = float(better[allowed].max())
    # Equal values that were rounded differently are ties.
    tied = allowed & (better >= highest - ROUNDING * min(abs(highest), LARGEST))
    index = int(choose_among_ties(tied, candidates.counts.tp[..., 0], candidates.counts.fp[..., 0])[0])
    return BestThreshold(float(candidates.thresholds[index]), float(value[index]))


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
    index = max(int((candidates.thresholds >= threshold).sum()) - 1, 0)
    results = {}
    for requirement in requirements:
        values, violation = one_class(requirement.metric, candidates.counts), one_class(requirement, candidates.counts)
        met = bool(requirement.forgives(violation[index]))
        results[str(requirement)] = RequirementValue(float(values[index]), met, float(values[int(violation.argmin())]))
    return results
