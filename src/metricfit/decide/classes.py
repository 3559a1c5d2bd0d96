"""Decisions about several classes: by offsets, under requirements if there are any, or by expected costs.

Expected costs are for metrics of the whole confusion matrix. A change of one decision moves a metric by its gradient at
the confusion matrix. So the best decisions are those of the lowest expected cost, argmin_j sum_i p_i L_ij, with L the
gradient at the matrix of these decisions (Narasimhan et al., ICML 2015). Offsets on the logits cannot make such
decisions: if grades 1 and 3 are equally probable, the decision of the best quadratic kappa is often grade 2. L is
computed at the decisions of the best offsets and then at its own decisions, and offsets on minus the expected costs
make up for the rest.

``decide.choose`` calls this module for several classes. Searches for offsets are in ``offsets`` and ``certified``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metricfit.core.arrays import Floats, Integers
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.numerics import ROUNDING
from metricfit.decide.calibration import softmax
from metricfit.decide.certified import certify_offsets, what_offsets_can_promise
from metricfit.decide.decision import CostDecision, OffsetDecision
from metricfit.decide.held_out import HeldOut
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
from metricfit.decide.optimism import FEWEST, corrected_value
from metricfit.decide.rules import Goal, Rule
from metricfit.metrics.feasibility import RequirementValue, reachable_alone
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement

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

    By the plug-in rule and under requirements the value is that of the held-out rows, and its interval that of the same
    decisions on resamples.

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
