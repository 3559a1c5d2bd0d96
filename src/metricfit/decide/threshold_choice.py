"""The decision about two classes: the best threshold on held-out logits, with its value and intervals."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from metricfit.decide.decision import Evidence, ThresholdDecision, to_probability
from metricfit.decide.guarantees.certified import Guarantee, what_can_be_promised
from metricfit.decide.guarantees.certified_choice import choose_certified
from metricfit.decide.held_out import HeldOut
from metricfit.decide.optimism import corrected_value, interval_of_decisions
from metricfit.decide.refit import Refit
from metricfit.decide.rules import Rule, choose_threshold
from metricfit.metrics.feasibility import InfeasibleError, what_is_reachable
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.stats import bootstrap
from metricfit.stats.percentiles import compute_interval

#: Total number of scores that the bootstrap draws, which limits its time to some seconds.
SCORES_DRAWN = 20_000_000


def choose_threshold_decision(
    held_out: HeldOut, metric: Metric, requirements: list[Requirement], *, rule: Rule, guarantee: Guarantee | None
) -> ThresholdDecision:
    """Choose the threshold of two classes, without intervals.

    Args:
        held_out: Calibrated logits of held-out rows.
        metric: The metric.
        requirements: The requirements.
        rule: "plugin" or "empirical".
        guarantee: The probability with which the requirements must hold on new rows, or None.

    Returns:
        The decision.
    """
    scores, y, weight = held_out.logits.squeeze(1), held_out.y, held_out.weight
    choose = choose_threshold if guarantee is None else partial(choose_certified, guarantee=guarantee)
    chosen = choose(scores, y, weight, metric, requirements, rule=rule)
    # The search uses logits, because probabilities round to 0 or 1; messages show probabilities.
    at = to_probability(chosen.threshold)
    not_reachable = None
    if not chosen.feasible and guarantee is None:
        not_reachable = what_is_reachable(requirements, chosen.requirements, at)
    elif not chosen.feasible and guarantee is not None:
        not_reachable = what_can_be_promised(scores, y, metric, requirements, guarantee, chosen.threshold, at)
    evidence = Evidence(
        chosen.value,
        requirements=chosen.requirements,
        not_reachable=not_reachable,
        confidence=guarantee.confidence if guarantee is not None and chosen.feasible else None,
        out_of_fold=guarantee is not None and guarantee.out_of_fold,
    )
    return ThresholdDecision(chosen.threshold, evidence=evidence)


def judge_threshold_decision(
    decision: ThresholdDecision,
    held_out: HeldOut,
    metric: Metric,
    requirements: list[Requirement],
    seed: int,
    rule: Rule,
    refit: Refit,
    resamples: int | None,
    guarantee: Guarantee | None,
) -> ThresholdDecision:
    """Return the decision with its intervals and its corrected value.

    The arguments are those of ``choose_decision``, with the rule that "auto" stands for.
    """
    scores, y, weight = held_out.logits.squeeze(1), held_out.y, held_out.weight
    threshold, feasible = decision.threshold, decision.evidence.not_reachable is None
    falling = scores.sort(descending=True).values.numpy()
    thresholds: list[float] = []

    def fit_decision(weight: Tensor) -> Tensor:
        logits = refit(weight).squeeze(1)
        choose = choose_threshold
        if guarantee is not None:
            times = weight if held_out.weight is None else weight / held_out.weight
            choose = partial(choose_certified, guarantee=guarantee, times=times)
        chosen = choose(logits, y, weight, metric, requirements, rule=rule)
        decided = logits >= chosen.threshold
        thresholds.append(_threshold_of_share(falling, int(decided.sum())))
        return decided.long()

    corrected = corrected_value(
        fit_decision,
        y,
        metric,
        weight=weight,
        groups=held_out.groups,
        balance_known=held_out.balance_known,
        resamples=resamples,
        seed=seed,
    )
    resample = partial(
        bootstrap,
        scores.numpy(),
        y.numpy(),
        metric,
        weight=None if weight is None else weight.numpy(),
        groups=held_out.groups,
        stratified=held_out.balance_known,
        resamples=int(np.clip(SCORES_DRAWN // len(y), 100, 1000)),
        seed=seed,
    )
    interval: tuple[float, float] | None = None
    drawn = None
    if feasible and rule == "empirical" and guarantee is None:
        with suppress(InfeasibleError):  # the rows meet the requirements, but none of the resamples does
            drawn = resample(subject_to=requirements)
            interval = drawn.threshold_interval
    elif feasible:
        interval = compute_interval(np.array(thresholds[1:]), None, 0.95)
    drawn = drawn or resample(threshold=threshold)
    estimate, ends = corrected.value, corrected.interval
    if requirements:  # resamples that no threshold suits decide far from here, so their optimism is not this decision's
        at_threshold = resample(threshold=threshold).interval
        estimate, ends = decision.evidence.value, (at_threshold.low, at_threshold.high)
    value_ends = (drawn.interval.low, drawn.interval.high)
    if not value_ends[0] < value_ends[1] or not ends[0] < ends[1]:
        by_counts = interval_of_decisions(
            decision.decide(scores), y, metric, weight=weight, groups=held_out.groups, seed=seed
        )
        value_ends, ends = (pair if pair[0] < pair[1] else by_counts for pair in (value_ends, ends))
    interval = None if interval is None else _with_equal_thresholds(interval, scores, threshold)
    return replace(decision, interval=interval).with_evidence(
        value_interval=value_ends, corrected_value=estimate, corrected_interval=ends
    )


def _with_equal_thresholds(interval: tuple[float, float], scores: Tensor, threshold: float) -> tuple[float, float]:
    """Extend an interval to all thresholds that make the same decisions: those between the two scores next to it."""
    below, above = scores[scores < threshold], scores[scores >= threshold]
    lowest = float(below.max()) if len(below) else threshold
    highest = float(above.min()) if len(above) else threshold
    return min(interval[0], lowest), max(interval[1], highest)


def _threshold_of_share(falling: NDArray[np.float64], positives: int) -> float:
    """Return a threshold of scores that this number of rows reaches, halfway between two scores."""
    if positives == 0:
        return float(falling[0]) + 1.0
    if positives == len(falling):
        return float(falling[-1]) - 1.0
    return float(falling[positives - 1] + falling[positives]) / 2
