"""The decision about several classes: the best offsets on held-out logits, under requirements if there are any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from metricfit.core.types import ScalarAverage
from metricfit.decide.classes.penalised_problem import PenalisedProblem, Penalty, RequirementExcess
from metricfit.decide.classes.required_offsets import search_required
from metricfit.decide.costs.expected_costs import search_costs
from metricfit.decide.decision import CostDecision, Evidence, OffsetDecision
from metricfit.decide.guarantees.certified import Guarantee
from metricfit.decide.guarantees.certified_offsets import certify_offsets, what_offsets_can_promise
from metricfit.decide.held_out import HeldOut
from metricfit.decide.offset_search import (
    COARSE_CANDIDATES,
    OffsetLine,
    OffsetProblem,
    improve_offsets,
    offset_problem,
    search_offsets,
)
from metricfit.decide.optimism import FEWEST, corrected_value
from metricfit.decide.refit import Refit
from metricfit.decide.rules import Rule
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement

#: Maximum number of rounds of the search for offsets.
ROUNDS = 10
#: Total number of logits of several classes that the resamples choose offsets on, and the most resamples.
LOGITS_CHOSEN_ON, MOST_OF_OFFSETS = 200_000, 40


def choose_class_decision(
    held_out: HeldOut,
    metric: Metric,
    requirements: Sequence[Requirement],
    *,
    average: ScalarAverage,
    rule: Rule,
    guarantee: Guarantee | None = None,
) -> OffsetDecision | CostDecision:
    """Choose the offsets of several classes, without intervals.

    The plug-in rule takes the best expected value among the offsets that meet the requirements both on the labels and
    on the expected counts, or on the labels alone where there are none, as for two classes. If the labels cannot meet
    the requirements either, the offsets have the smallest total violation.

    Args:
        held_out: Calibrated logits of held-out rows.
        metric: The metric.
        requirements: Requirements on one class each, or on the whole confusion matrix.
        average: The average over the classes.
        rule: "plugin" or "empirical".
        guarantee: The probability with which the requirements must hold on new rows, or None.

    Returns:
        The decision. Under requirements it has offsets on the logits alone, also for a metric of the whole confusion
        matrix.
    """
    logits, y, weight = held_out.logits.double(), held_out.y, held_out.weight
    problem = offset_problem(logits, y, weight, metric, average, rule=rule)
    observed = offset_problem(logits, y, weight, metric, average, rule="empirical")
    if not requirements:
        found = search_offsets(problem, ROUNDS)
        costs, offsets = search_costs(problem, found, ROUNDS) if metric.needs_matrix else (None, found.offsets)
        decision = OffsetDecision(offsets) if costs is None else CostDecision(offsets, costs)
        return decision.with_evidence(value=observed.value(decision.decide(logits)))
    if guarantee is not None:
        return _choose_certified(logits, y, metric, average, requirements, problem, observed, guarantee)
    constraints = [RequirementExcess(requirement) for requirement in requirements]
    chosen = None
    if rule == "plugin":
        chosen = search_required(PenalisedProblem(problem, observed, constraints, on_both=True), ROUNDS)
    on_labels = PenalisedProblem(problem, observed, constraints)
    if chosen is None or chosen.violation > 0:
        chosen = search_required(on_labels, ROUNDS)
    decided = (logits + chosen.offsets).argmax(1)
    results = _judge_requirements(on_labels, requirements, chosen.offsets)
    feasible = all(result.met for result in results.values())
    not_reachable = None if feasible else _what_is_reachable(requirements, results)
    evidence = Evidence(observed.value(decided), requirements=results, not_reachable=not_reachable)
    return OffsetDecision(chosen.offsets, evidence=evidence)


def _choose_certified(
    logits: Tensor,
    y: Tensor,
    metric: Metric,
    average: ScalarAverage,
    requirements: Sequence[Requirement],
    problem: OffsetProblem,
    observed: OffsetProblem,
    guarantee: Guarantee,
) -> OffsetDecision:
    """Choose the best of the certified offsets, or if there are none, of those that come nearest."""
    certified = certify_offsets(logits, y, metric, average, requirements, guarantee)
    places = certified.allowed.nonzero().squeeze(1).tolist()
    decided = [(logits + certified.offsets[place]).argmax(1) for place in places]
    values = [problem.sign * problem.value(each) for each in decided]
    best = int(np.argmax(values))
    offsets, place = certified.offsets[places[best]], places[best]
    excesses = [RequirementExcess(requirement) for requirement in requirements]
    results = _judge_requirements(PenalisedProblem(observed, observed, excesses), requirements, offsets)
    for requirement, p in zip(requirements, certified.p[:, place], strict=True):
        met = certified.feasible or bool(p <= certified.level)
        results[str(requirement)] = results[str(requirement)]._replace(met=met)
    feasible = certified.feasible
    evidence = Evidence(
        observed.value(decided[best]),
        requirements=results,
        not_reachable=None if feasible else what_offsets_can_promise(certified, requirements, guarantee, place),
        confidence=guarantee.confidence if feasible else None,
        out_of_fold=guarantee.out_of_fold,
    )
    return OffsetDecision(offsets, evidence=evidence)


def judge_class_decision(
    decision: OffsetDecision | CostDecision,
    held_out: HeldOut,
    metric: Metric,
    requirements: Sequence[Requirement],
    average: ScalarAverage,
    seed: int,
    rule: Rule,
    refit: Refit,
    resamples: int | None,
) -> OffsetDecision | CostDecision:
    """Return the decision with its corrected value and its interval.

    Under requirements the value is that of the held-out rows, and its interval that of the same decisions on resamples.

    The arguments are those of ``choose_decision``, with the rule that "auto" stands for.
    """
    offsets, decided = torch.from_numpy(decision.offsets), decision.decide(held_out.logits.double())

    def fit_decision(weight: Tensor) -> Tensor:
        if requirements:
            return decided
        logits = refit(weight).double()
        scores = torch.from_numpy(decision.scores(logits.numpy()))
        problem = offset_problem(logits, held_out.y, weight, metric, average, rule=rule).with_scores(scores)
        return (scores + improve_offsets(problem, offsets)).argmax(1)

    corrected = corrected_value(
        fit_decision,
        held_out.y,
        metric,
        classes=held_out.logits.shape[1],
        average=average,
        weight=held_out.weight,
        groups=held_out.groups,
        balance_known=held_out.balance_known,
        resamples=resamples or int(np.clip(LOGITS_CHOSEN_ON // held_out.logits.numel(), FEWEST, MOST_OF_OFFSETS)),
        seed=seed,
    )
    return decision.with_evidence(corrected_value=corrected.value, corrected_interval=corrected.interval)


def _judge_requirements(
    problem: PenalisedProblem, requirements: Sequence[Requirement], offsets: Tensor
) -> dict[str, RequirementValue]:
    """Return the values of requirements at offsets, and the best values that were found for each alone."""
    results = {}
    for number, requirement in enumerate(requirements):
        value = _value_of(problem, requirement, offsets)
        met = bool(requirement.forgives(requirement.excess(torch.tensor(value, dtype=torch.float64))))
        alone = [offsets, *_offsets_for(problem, number, requirement, offsets)]
        values = torch.tensor([_value_of(problem, requirement, each) for each in alone], dtype=torch.float64)
        reachable = float(values[int(requirement.excess(values).argmin())])
        results[str(requirement)] = RequirementValue(value, met, reachable)
    return results


def _offsets_for(problem: PenalisedProblem, number: int, requirement: Requirement, offsets: Tensor) -> list[Tensor]:
    """Return offsets that are good for one requirement alone: the best change of its class, or of every class."""
    multipliers = torch.zeros_like(problem.penalty.multipliers)
    multipliers[number] = 1.0
    alone, index = problem.with_penalty(Penalty(multipliers, 0.0, 0.0, linear=True)), requirement.metric.class_index
    found = []
    for start in (offsets.double(), torch.zeros_like(offsets, dtype=torch.float64)):
        tried = start.clone()
        for k in range(problem.classes) if index is None else (index,):
            tried[k] += OffsetLine(alone, tried, k).best_change(COARSE_CANDIDATES)
        found.append(tried)
    return found


def _value_of(problem: PenalisedProblem, requirement: Requirement, offsets: Tensor) -> float:
    counts = problem.counts_at(offsets)
    return float(requirement.metric(counts).squeeze(-1))


def _what_is_reachable(requirements: Sequence[Requirement], results: dict[str, RequirementValue]) -> str:
    """Say that requirements cannot be met, and what can be had instead, without a full stop."""
    kinds = {">=": "as high as", "<=": "as low as", "==": "at nearest"}
    alone = " and ".join(
        f"{item.metric.name} can be {kinds[item.sense]} {results[str(item)].reachable:.6g}" for item in requirements
    )
    there = ", ".join(f"{item.metric.name} = {results[str(item)].value:.6g}" for item in requirements)
    together, each = (" together", "each alone, ") if len(requirements) > 1 else ("", "")
    return (
        f"no offsets of the classes were found that give {' and '.join(map(str, requirements))}{together}; {each}"
        f"{alone}; the nearest offsets have {there}"
    )
