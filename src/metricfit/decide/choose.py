"""The choice of a decision on held-out logits, with bootstrap intervals, requirements and guarantees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Floats, Integers, to_numpy
from metricfit.core.threads import one_thread
from metricfit.core.types import LabelAverage, ScalarAverage
from metricfit.decide.bounds import check_confidence, check_exact, draw_one_per_group
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.certified import check_guarantee, choose_best, why_not
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.classes import choose_class_decision, judge_class_decision
from metricfit.decide.costs import choose_cost_decision, judge_cost_decision
from metricfit.decide.decision import Decision, ThresholdDecision
from metricfit.decide.held_out import HeldOut
from metricfit.decide.labels import LabelGoals, choose_label_decision, judge_label_decision
from metricfit.decide.optimism import corrected_value, draw_multiplicities, interval_of_decisions, number_of_resamples
from metricfit.decide.rules import Goal, Guarantee, Rule, Shown, check_rule, probability_of, thresholds_of_counts
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.stats import bootstrap
from metricfit.stats.results import compute_interval


@one_thread()
def choose_decision(
    rows: HeldOut,
    metric: Metric,
    *,
    subject_to: Sequence[Requirement],
    average: LabelAverage,
    seed: int,
    rule: Rule = "empirical",
    confidence: float | None = None,
    out_of_fold: bool = False,
    as_shown: Shown = probability_of,
) -> Decision:
    """Choose the decision for a metric on held-out rows, under requirements if there are any.

    If no decision meets the requirements, the one with the smallest violation is chosen, and the decision says so.
    With costs in columns the threshold is one of cost margins (``decide.costs``). Rows with several labels have one
    threshold per label (``choose_label_decision``).

    Args:
        rows: Calibrated logits of held-out rows.
        metric: The metric.
        subject_to: Requirements. Of several classes or labels, each is on the one in its brackets, or on every one
            (``class_requirements``).
        average: The average over several classes or labels; over labels also "samples", over rows.
        seed: The seed of the bootstrap.
        rule: "plugin" for the best expected value, "empirical" for the best value on the labels, or "auto"
            (``decide.rules``).
        confidence: The probability with which all requirements must hold on new rows (``decide.certified``); None to
            meet them on the held-out rows alone.
        out_of_fold: Whether the logits are out of fold, so that new rows are scored by other models than these.
        as_shown: Returns a threshold of logits on the scale that readers see, as in ``Goal``.

    Returns:
        The decision.

    Raises:
        InvalidValueError: There is no such rule, a requirement is on a class or label that there is not, the average
            makes no sense for the metric, or a confidence is given for requirements or rows that have no exact bounds;
            or the metric is infinite at the best decision.
        InfeasibleError: There are too few rows for this confidence.
    """
    has_labels, outputs = rows.y.ndim == 2, rows.logits.shape[1]
    requirements = class_requirements(subject_to, outputs if has_labels else max(2, outputs), has_labels=has_labels)
    goal = Goal(metric, requirements, average, check_rule(rule), seed=seed, as_shown=as_shown)
    if confidence is not None:
        settings: dict[str, Any] = {"groups": rows.groups, "seed": seed, "out_of_fold": out_of_fold}
        guarantee = checked_guarantee(requirements, rows.y, confidence, weight=rows.weight, **settings)
        goal = replace(goal, guarantee=guarantee)
    choose, judge = _functions_of(rows, goal)
    decision = choose(rows, goal)
    value = decision.evidence.value
    if not np.isfinite(value):
        raise InvalidValueError(
            f"{metric.name} is {value} at the best decision on the held-out rows: it divides by a count that "
            "is 0. Add a number to the denominator, or cap it, as in 'tp/max(fp, 1)'"
        )
    return judge(decision, rows, goal)


def choose_without_intervals(
    held_out: HeldOut,
    metric: Metric,
    *,
    subject_to: Sequence[Requirement],
    average: ScalarAverage,
    rule: Rule = "plugin",
    guarantee: Guarantee | None = None,
) -> Decision:
    """Choose the same decision as ``choose_decision``, which has the same arguments, in a fraction of the time.

    Returns:
        The decision; its intervals and its corrected value are None.
    """
    requirements = class_requirements(subject_to, max(2, held_out.logits.shape[1]))
    goal = Goal(metric, requirements, average, check_rule(rule), guarantee)
    return _functions_of(held_out, goal)[0](held_out, goal)


def _functions_of(
    rows: HeldOut, goal: Goal
) -> tuple[Callable[[HeldOut, Goal], Any], Callable[[Any, HeldOut, Goal], Any]]:
    """Return what chooses a kind of decision without intervals, and what adds its intervals and corrected value."""
    if rows.y.ndim == 2:
        return choose_label_decision, judge_label_decision
    if goal.metric.columns:
        return choose_cost_decision, judge_cost_decision
    if rows.logits.shape[1] == 1:
        return choose_threshold_decision, judge_threshold_decision
    return choose_class_decision, judge_class_decision


#: Total number of scores that the bootstrap draws, which limits its time to some seconds.
SCORES_DRAWN = 20_000_000


def choose_threshold_decision(rows: HeldOut, goal: Goal) -> ThresholdDecision:
    """Choose the threshold of two classes, without intervals.

    Args:
        rows: Calibrated logits of held-out rows.
        goal: What the decision is for.

    Returns:
        The decision.
    """
    scores = rows.logits.squeeze(1)
    chosen = choose_best(scores, rows.y, rows.weight, goal)
    not_reachable = None
    if not chosen.feasible:
        not_reachable = why_not(scores, rows.y, goal, 0, chosen.threshold, chosen.requirements)
    evidence = goal.evidence(chosen.value, chosen.requirements, not_reachable)
    return ThresholdDecision(chosen.threshold, evidence=evidence)


def judge_threshold_decision(decision: ThresholdDecision, rows: HeldOut, goal: Goal) -> ThresholdDecision:
    """Return the decision with its intervals and its corrected value.

    Args:
        decision: The decision.
        rows: Calibrated logits of held-out rows.
        goal: What the decision was chosen for.
    """
    scores, y = rows.logits.squeeze(1), rows.y
    threshold, feasible = decision.threshold, decision.evidence.not_reachable is None
    resample = partial(
        bootstrap,
        scores,
        y,
        goal.metric,
        weight=rows.weight,
        groups=rows.groups,
        stratified=rows.balance_known,
        resamples=int(np.clip(SCORES_DRAWN // len(y), 100, 1000)),
        seed=goal.seed,
    )
    interval: tuple[float, float] | None = None
    drawn = None
    if feasible and goal.rule == "empirical" and goal.guarantee is None:
        with suppress(InfeasibleError):  # the rows meet the requirements, but none of the resamples does
            drawn = resample(subject_to=goal.requirements)
            interval = drawn.threshold_interval
    elif feasible:
        interval = compute_interval(resampled_thresholds(rows, goal), None, 0.95)
    drawn = drawn or resample(threshold=threshold)
    if goal.is_fixed:
        at_threshold = resample(threshold=threshold).interval
        estimate, ends = decision.evidence.value, (at_threshold.low, at_threshold.high)
    else:
        corrected = corrected_value(
            lambda weight: (scores >= choose_best(scores, y, weight, goal).threshold).astype(np.int64), rows, goal
        )
        estimate, ends = corrected.value, corrected.interval
    value_ends = (drawn.interval.low, drawn.interval.high)
    if not value_ends[0] < value_ends[1] or not ends[0] < ends[1]:
        by_counts = interval_of_decisions(decision.decide(scores), rows, goal)
        value_ends, ends = (pair if pair[0] < pair[1] else by_counts for pair in (value_ends, ends))
    interval = None if interval is None else _with_equal_thresholds(interval, scores, threshold)
    return replace(decision, interval=interval).with_evidence(
        value_interval=value_ends, corrected_value=estimate, corrected_interval=ends
    )


def resampled_thresholds(rows: HeldOut, goal: Goal) -> Floats:
    """Choose the threshold again on resamples of the rows, after calibrating their logits again for the plug-in rule.

    Args:
        rows: Calibrated logits of held-out rows.
        goal: What the decision is for.

    Returns:
        For each resample, a threshold of the held-out logits that as many rows reach as are flagged.
    """
    logits, called = rows.logits, []
    for times in draw_multiplicities(rows.y, rows.groups, number_of_resamples(len(rows.y)), goal.seed):
        weight = rows.weights * times
        z = fit_calibration(logits, rows.y, weight)(logits) if goal.rule == "plugin" else logits
        chosen = choose_best(z.squeeze(1), rows.y, weight, goal, times)
        called.append((z >= chosen.threshold).sum(0))
    return thresholds_of_counts(logits, np.stack(called)).squeeze(1)


def _with_equal_thresholds(interval: tuple[float, float], scores: Floats, threshold: float) -> tuple[float, float]:
    """Extend an interval to all thresholds that make the same decisions: those between the two scores next to it."""
    below, above = scores[scores < threshold], scores[scores >= threshold]
    lowest = float(below.max()) if len(below) else threshold
    highest = float(above.min()) if len(above) else threshold
    return min(interval[0], lowest), max(interval[1], highest)


def checked_guarantee(
    requirements: Sequence[Requirement],
    y: Array,
    confidence: Any,
    *,
    weight: Array | None = None,
    groups: NDArray[Any] | None = None,
    seed: int = 0,
    out_of_fold: bool = False,
) -> Guarantee:
    """Check, before any scores are known, that a confidence is possible for these requirements and rows.

    Args:
        requirements: The requirements, on classes by their numbers (``class_requirements``).
        y: Class numbers ``(n,)``; for several labels 0 and 1 ``(n, c)``.
        confidence: The probability with which all must hold.
        weight: One weight per row, or None.
        groups: The group of each row, or None.
        seed: The seed of the guarantee.
        out_of_fold: Whether the scores will be out of fold.

    Returns:
        The guarantee to ask for.

    Raises:
        InfeasibleError: There are too few rows; the message says how many are needed.
        InvalidValueError: There is no requirement, one on a metric without an exact bound, or rows without one.
        InvalidTypeError: The confidence is no number.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> checked_guarantee([parse_requirement("fpr <= 0.1")], np.zeros(50), 0.95).confidence
        0.95
    """
    guarantee = Guarantee(check_confidence(confidence), seed, out_of_fold, groups)
    y, weight = to_numpy(y, np.int64), None if weight is None else to_numpy(weight, np.float64)
    check_exact(requirements, y, weight)
    if not requirements:
        raise InvalidValueError("confidence= is about requirements: give subject_to=, or leave confidence out")
    try:
        _check_enough_rows(requirements, y, guarantee)
    except InfeasibleError as error:
        raise InfeasibleError(f"{error}{'' if groups is None else '. Of each group, one row counts'}") from None
    return guarantee


def _check_enough_rows(requirements: Sequence[Requirement], y: Integers, guarantee: Guarantee) -> None:
    if y.ndim == 2:
        LabelGoals(Goal(requirements[0].metric, requirements, guarantee=guarantee), y.shape[1]).check_rows(y)
        return
    counted = y[draw_one_per_group(guarantee.groups, y, requirements, guarantee.seed)]
    check_guarantee(requirements, counted, guarantee.confidence, several=int(y.max()) > 1)
