"""The choice of a decision on held-out logits, with bootstrap intervals, requirements and guarantees.

Several classes are decided by offsets, or by expected costs, for metrics of the whole confusion matrix. A change of one
decision moves a metric by its gradient at the confusion matrix. So the best decisions have the lowest expected
cost, argmin_j sum_i p_i L_ij, with L the gradient at the matrix of these decisions (Narasimhan et al., ICML 2015).
Offsets on the logits cannot make such decisions: if grades 1 and 3 are equally probable, the decision of the best
quadratic kappa is often grade 2. L is computed at the decisions of the best offsets and then at its own decisions, and
offsets on minus the expected costs make up for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Floats, Integers, to_numpy
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.numerics import ROUNDING
from metricfit.core.threads import one_thread
from metricfit.core.types import LabelAverage, ScalarAverage
from metricfit.decide.bounds import check_confidence, check_exact, draw_one_per_group
from metricfit.decide.calibration import fit_calibration, softmax
from metricfit.decide.certified import certify_offsets, check_guarantee, choose_best, what_offsets_can_promise, why_not
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.costs import choose_cost_decision, judge_cost_decision
from metricfit.decide.decision import CostDecision, Decision, OffsetDecision, ThresholdDecision
from metricfit.decide.held_out import HeldOut
from metricfit.decide.labels import LabelGoals, choose_label_decision, judge_label_decision
from metricfit.decide.offsets import (
    COARSE_CANDIDATES,
    BestOffsets,
    OffsetLine,
    OffsetProblem,
    PenalisedProblem,
    Penalty,
    RequirementExcess,
    improve_offsets,
    offset_problem,
    search_offsets,
    search_required,
)
from metricfit.decide.optimism import (
    FEWEST,
    corrected_value,
    draw_multiplicities,
    interval_of_decisions,
    number_of_resamples,
)
from metricfit.decide.rules import Goal, Guarantee, Rule, Shown, check_rule, probability_of, thresholds_of_counts
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import InfeasibleError, RequirementValue, reachable_alone
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.stats import bootstrap
from metricfit.stats.results import compute_interval

#: How often the costs are computed anew at the decisions that were found with them.
TIMES = 2


class FoundCosts(NamedTuple):
    """Costs, or None for offsets on the logits themselves, and the offsets."""

    costs: Floats | None
    offsets: Floats


def minus_expected_costs(probabilities: Floats, costs: Floats) -> Floats:
    """Return minus the expected cost of each decision.

    Args:
        probabilities: Class probabilities ``(n, c)``.
        costs: The cost of deciding j for a row of class i in row i, column j.

    Returns:
        Scores ``(n, c)``, of which the largest decides.

    Example:
        >>> minus_expected_costs(np.array([[0.5, 0.0, 0.5]]), np.array([[0.0, 1, 4], [1, 0, 1], [4, 1, 0]]))
        array([[-2., -1., -2.]])
    """
    return -np.asarray(probabilities @ costs)


def search_costs(problem: OffsetProblem, by_offsets: BestOffsets, rounds: int) -> FoundCosts:
    """Find costs and offsets on minus the expected costs that are better than offsets on the logits.

    Args:
        problem: The rows, with calibrated logits, and a metric of the whole confusion matrix.
        by_offsets: The best offsets on the logits.
        rounds: Maximum number of rounds of the search for offsets.

    Returns:
        The costs and the offsets; without costs if the offsets on the logits are as good.
    """
    probabilities = softmax(problem.exact)
    best, best_value = FoundCosts(None, by_offsets.offsets), by_offsets.value
    decided = problem.decide(by_offsets.offsets)
    for _ in range(TIMES):
        costs = _costs_near(problem.metric, problem.total(decided, problem.amounts(decided)))
        if costs is None:
            break
        scores = minus_expected_costs(probabilities, costs)
        found = search_offsets(problem.with_scores(scores), rounds)
        decided = (scores + found.offsets).argmax(1)
        if problem.sign * (found.value - best_value) > ROUNDING:
            best, best_value = FoundCosts(costs, found.offsets), found.value
    return best


#: By how much cells of a confusion matrix are changed for a derivative, as a share of their row's or column's sum.
CHANGE = 1e-3
#: The central differences of fourth order: changes in units of the smallest one, and their weights.
DIFFERENCES = ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12))


def _costs_near(metric: Metric, matrix: Floats) -> Floats | None:
    """Return what decisions cost near a confusion matrix, from 0 to 1; None if the metric does not change there.

    What a row of class i costs whatever the decision does not matter, so that the lowest cost of every row is 0. The
    derivatives are central differences of fourth order, which leave out about 1e-12 of them.
    """
    sums = np.minimum(*(np.where(total > 0, total, matrix.sum()) for total in (matrix.sum(1)[:, None], matrix.sum(0))))
    steps, classes = CHANGE * sums, np.arange(len(matrix))
    gradient = np.zeros_like(matrix)
    for i in classes:
        for times, weight in DIFFERENCES:
            changed = np.repeat(matrix[None], len(matrix), axis=0)
            changed[classes, i, classes] += times * steps[i]
            gradient[i] += weight * metric(ConfusionMatrix(changed))
    gradient /= steps
    costs = gradient if metric.minimize else -gradient
    costs = costs - costs.min(1, keepdims=True)
    largest, rounding = costs.max(), ROUNDING * abs(float(metric(ConfusionMatrix(matrix))))
    return costs / largest if np.isfinite(largest) and (costs * steps).max() > rounding else None


#: Maximum number of rounds of the search for offsets.
ROUNDS = 10
#: Total number of logits of several classes that the resamples choose offsets on, and the most resamples.
LOGITS_CHOSEN_ON, MOST_OF_OFFSETS = 200_000, 40


def choose_class_decision(rows: HeldOut, goal: Goal) -> OffsetDecision | CostDecision:
    """Choose the offsets of several classes, without intervals.

    The plug-in rule takes the best expected value among the offsets that meet the requirements both on the labels and
    on the expected counts, or on the labels alone where there are none, as for two classes. If the labels cannot meet
    the requirements either, the offsets have the smallest total violation.

    Args:
        rows: Calibrated logits of held-out rows.
        goal: What the decision is for; requirements are on one class each, or on the whole confusion matrix.

    Returns:
        The decision. Under requirements it has offsets on the logits alone, also for a metric of the whole confusion
        matrix.
    """
    problem, observed = (_problem(rows, goal, rows.weight, rule) for rule in (goal.rule, "empirical"))
    if not goal.requirements:
        found = search_offsets(problem, ROUNDS)
        costs, offsets = search_costs(problem, found, ROUNDS) if goal.metric.needs_matrix else (None, found.offsets)
        decision = OffsetDecision(offsets) if costs is None else CostDecision(offsets, costs)
        return decision.with_evidence(value=observed.value(decision.decide(rows.logits)))
    if goal.guarantee is not None:
        return _choose_certified(rows, goal, problem, observed)
    constraints = [RequirementExcess(requirement) for requirement in goal.requirements]
    chosen = None
    if goal.rule == "plugin":
        chosen = search_required(PenalisedProblem(problem, observed, constraints, on_both=True), ROUNDS)
    on_labels = PenalisedProblem(problem, observed, constraints)
    if chosen is None or chosen.violation > 0:
        chosen = search_required(on_labels, ROUNDS)
    results = _judge_requirements(on_labels, goal.requirements, chosen.offsets)
    feasible = all(result.met for result in results.values())
    not_reachable = None if feasible else _what_is_reachable(goal.requirements, results)
    value = observed.value(observed.decide(chosen.offsets))
    return OffsetDecision(chosen.offsets, evidence=goal.evidence(value, results, not_reachable))


def _problem(rows: HeldOut, goal: Goal, weight: Floats | None, rule: Rule) -> OffsetProblem:
    return offset_problem(rows.logits, rows.y, weight, goal.metric, goal.average, rule=rule)


def _choose_certified(rows: HeldOut, goal: Goal, problem: OffsetProblem, observed: OffsetProblem) -> OffsetDecision:
    """Choose the best of the certified offsets, or if there are none, of those that come nearest."""
    certified = certify_offsets(rows.logits, rows.y, goal)
    assert certified.offsets is not None
    places = np.flatnonzero(certified.allowed)
    values = [problem.sign * problem.value(problem.decide(certified.offsets[place])) for place in places]
    place = int(places[int(np.argmax(values))])
    offsets = certified.offsets[place]
    excesses = [RequirementExcess(requirement) for requirement in goal.requirements]
    judged = _judge_requirements(PenalisedProblem(observed, observed, excesses), goal.requirements, offsets)
    results = certified.marked(judged, goal.requirements, place)
    not_reachable = None if certified.feasible else what_offsets_can_promise(certified, goal, place)
    value = observed.value(observed.decide(offsets))
    return OffsetDecision(offsets, evidence=goal.evidence(value, results, not_reachable))


def judge_class_decision(
    decision: OffsetDecision | CostDecision, rows: HeldOut, goal: Goal
) -> OffsetDecision | CostDecision:
    """Return the decision with its corrected value and its interval.

    By the plug-in rule and under requirements the value is measured on the held-out rows, and its interval with the
    same decisions on resamples.

    Args:
        decision: The decision.
        rows: Calibrated logits of held-out rows.
        goal: What the decision was chosen for.
    """
    decided, scores = decision.decide(rows.logits), decision.scores(rows.logits)

    def fit_decision(weight: Floats) -> Integers:
        if goal.is_fixed:
            return decided
        problem = _problem(rows, goal, weight, goal.rule).with_scores(scores)
        return problem.decide(improve_offsets(problem, decision.offsets))

    resamples = int(np.clip(LOGITS_CHOSEN_ON // rows.logits.size, FEWEST, MOST_OF_OFFSETS))
    corrected = corrected_value(fit_decision, rows, goal, resamples=resamples)
    return decision.with_evidence(corrected_value=corrected.value, corrected_interval=corrected.interval)


def _judge_requirements(
    problem: PenalisedProblem, requirements: Sequence[Requirement], offsets: Floats
) -> dict[str, RequirementValue]:
    """Return the values of requirements at offsets, and the best values that were found for each alone."""
    results = {}
    for number, requirement in enumerate(requirements):
        value = _value_of(problem, requirement, offsets)
        met = bool(requirement.forgives(requirement.excess(value)))
        alone = [offsets, *_offsets_for(problem, number, requirement, offsets)]
        values = np.array([_value_of(problem, requirement, each) for each in alone])
        reachable = float(values[int(requirement.excess(values).argmin())])
        results[str(requirement)] = RequirementValue(value, met, reachable)
    return results


def _offsets_for(problem: PenalisedProblem, number: int, requirement: Requirement, offsets: Floats) -> list[Floats]:
    """Return offsets that are good for one requirement alone: the best change of its class, or of every class."""
    multipliers = np.zeros_like(problem.penalty.multipliers)
    multipliers[number] = 1.0
    alone, index = problem.with_penalty(Penalty(multipliers, 0.0, 0.0, linear=True)), requirement.metric.class_index
    found = []
    for start in (offsets, np.zeros_like(offsets)):
        tried = start.copy()
        for k in range(problem.classes) if index is None else (index,):
            tried[k] += OffsetLine(alone, tried, k).best_change(COARSE_CANDIDATES)
        found.append(tried)
    return found


def _value_of(problem: PenalisedProblem, requirement: Requirement, offsets: Floats) -> float:
    counts = problem.counts_at(offsets)
    return float(requirement.metric(counts).item())


def _what_is_reachable(requirements: Sequence[Requirement], results: dict[str, RequirementValue]) -> str:
    """Say that requirements cannot be met, and what can be had instead, without a full stop."""
    alone, there = reachable_alone(requirements, results)
    together, each = (" together", "each alone, ") if len(requirements) > 1 else ("", "")
    return (
        f"no offsets of the classes were found that give {' and '.join(map(str, requirements))}{together}; {each}"
        f"{alone}; the nearest offsets have {there}"
    )


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
