"""The choice of a decision on held-out logits: the best threshold of two classes or offsets of several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.threads import one_thread
from metricfit.core.types import ScalarAverage
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.costs.cost_decisions import choose_cost_decision, choose_cost_without_intervals
from metricfit.decide.costs.expected_costs import search_costs
from metricfit.decide.decision import Decision
from metricfit.decide.guarantees.certified import Guarantee, checked_guarantee, what_can_be_promised
from metricfit.decide.guarantees.certified_choice import choose_certified
from metricfit.decide.held_out import HeldOut
from metricfit.decide.offset_search import improve_offsets, offset_problem, search_offsets
from metricfit.decide.optimism import FEWEST, corrected_value, interval_of_decisions
from metricfit.decide.rules import Rule, check_rule, choose_threshold
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import InfeasibleError, what_is_reachable
from metricfit.metrics.matrix_metric import MatrixMetric
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.stats import bootstrap
from metricfit.stats.percentiles import compute_interval

#: Total number of scores that the bootstrap draws, which limits its time to some seconds.
SCORES_DRAWN = 20_000_000
#: Total number of logits of several classes that the resamples choose offsets on, and the most resamples.
LOGITS_CHOSEN_ON, MOST_OF_OFFSETS = 200_000, 40
#: Maximum number of rounds of the search for offsets.
ROUNDS = 10

#: Fits ensemble and calibration again with one weight per row, and returns the calibrated logits of all rows.
Refit = Callable[[Tensor], Tensor]


@one_thread()
def choose_decision(
    held_out: HeldOut,
    metric: Metric,
    *,
    subject_to: Sequence[Requirement],
    average: ScalarAverage,
    seed: int,
    rule: Rule = "empirical",
    refit: Refit | None = None,
    resamples: int | None = None,
    confidence: float | None = None,
    out_of_fold: bool = False,
) -> Decision:
    """Choose the decision for a metric on held-out rows, under requirements if there are any.

    If no threshold meets the requirements, the one with the smallest violation is chosen, and the decision says so.
    With costs in columns the threshold is one of cost margins (``decide.costs``).

    Args:
        held_out: Calibrated logits of held-out rows.
        metric: The metric.
        subject_to: Requirements, for two classes.
        average: The average over several classes.
        seed: The seed of the bootstrap.
        rule: "plugin" for the best expected value, "empirical" for the best value on the labels, or "auto"
            (``decide.rules``).
        refit: What was fitted to the same rows before the decision, for the corrected value: given one weight per row,
            fit it again and return the calibrated logits of all rows. By default the logits are calibrated again for
            the plug-in rule, and left as they are for the empirical rule.
        resamples: Number of resamples for the corrected value; by default a number that takes about a second.
        confidence: The probability with which all requirements must hold on new rows (``decide.guarantees``); None to
            meet them on the held-out rows alone.
        out_of_fold: Whether the logits are out of fold, so that new rows are scored by other models than these.

    Returns:
        The decision.

    Raises:
        InvalidValueError: There is no such rule, requirements are given for several classes, or a confidence for
            requirements or rows that have no exact bounds; or the metric is infinite at the best decision.
        InfeasibleError: There are too few rows for this confidence.
    """
    kind = check_rule(rule)
    refit = refit or default_refit(held_out, kind)
    guarantee = (
        None if confidence is None else _make_guarantee(held_out, list(subject_to), confidence, seed, out_of_fold)
    )
    if metric.columns:  # without requirements, so without a guarantee
        return choose_cost_decision(held_out, metric, rule=kind, refit=refit, resamples=resamples, seed=seed)
    decision = choose_without_intervals(
        held_out, metric, subject_to=subject_to, average=average, rule=kind, guarantee=guarantee
    )
    if not np.isfinite(decision.value):
        raise InvalidValueError(
            f"{metric.name} is {decision.value} at the best decision on the held-out rows: it divides by a count that "
            "is 0. Add a number to the denominator, or cap it, as in 'tp/max(fp, 1)'"
        )
    if decision.offsets is None:
        return _judge_threshold(decision, held_out, metric, list(subject_to), seed, kind, refit, resamples, guarantee)
    return _judge_offsets(decision, held_out, metric, average, seed, kind, refit, resamples)


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
    kind = check_rule(rule)
    if metric.columns:
        return choose_cost_without_intervals(held_out, metric, kind)
    if held_out.logits.shape[1] == 1:
        requirements = list(subject_to)
        scores, y, weight = held_out.logits.squeeze(1), held_out.y, held_out.weight
        choose = choose_threshold if guarantee is None else partial(choose_certified, guarantee=guarantee)
        chosen = choose(scores, y, weight, metric, requirements, rule=kind)
        # The search uses logits, because probabilities round to 0 or 1; messages show probabilities.
        at = to_probability(chosen.threshold)
        not_reachable = None
        if not chosen.feasible and guarantee is None:
            not_reachable = what_is_reachable(requirements, chosen.requirements, at)
        elif not chosen.feasible and guarantee is not None:
            not_reachable = what_can_be_promised(scores, y, metric, requirements, guarantee, chosen.threshold, at)
        return Decision(
            chosen.value,
            threshold=chosen.threshold,
            requirements=chosen.requirements,
            not_reachable=not_reachable,
            confidence=guarantee.confidence if guarantee is not None and chosen.feasible else None,
        )
    check_requirements_fit(held_out.logits.shape[1], subject_to)
    logits, y, weight = held_out.logits.double(), held_out.y, held_out.weight
    problem = offset_problem(logits, y, weight, metric, average, rule=kind)
    found = search_offsets(problem, ROUNDS)
    costs, offsets = search_costs(problem, found, ROUNDS) if metric.needs_matrix else (None, found.offsets)
    observed = offset_problem(logits, y, weight, metric, average, rule="empirical")
    decision = Decision(math.nan, offsets=offsets, costs=costs)
    return replace(decision, value=observed.value(decision.decide(logits)))


def check_requirements_fit(classes: int, requirements: Sequence[Requirement]) -> None:
    """Raise an error if there are requirements and more than two classes, or if one is of a class that there is not.

    Raises:
        InvalidValueError: Requirements are for two classes, and for the positive one of them.
    """
    if classes > 2 and requirements:
        raise InvalidValueError("subject_to is for two classes; of several, fit a network under metricfit.constraints")
    for requirement in requirements:
        if requirement.metric.columns:
            raise InvalidValueError(f"{requirement}: a requirement has costs that are numbers, not columns")
        check_class_index(classes, requirement.metric)


def check_class_index(classes: int, metric: Metric) -> None:
    """Raise an error if a metric is of one class that there is not, as ``recall[2]``, or has costs of other classes.

    Raises:
        InvalidValueError: There is no such class; two classes have the counts of the positive one. Or the parameters
            of a metric of the whole confusion matrix are for another number of classes.
    """
    if isinstance(metric, MatrixMetric):
        metric(torch.ones(max(2, classes), max(2, classes)))
    elif metric.class_index is not None:
        ones = torch.ones(1 if classes == 2 else classes)
        metric(Counts(ones, ones, ones, ones))


def _make_guarantee(
    held_out: HeldOut, requirements: list[Requirement], confidence: float, seed: int, out_of_fold: bool
) -> Guarantee:
    if held_out.logits.shape[1] > 1 and not requirements:
        raise InvalidValueError("confidence= is for the requirements of two classes; leave it out")
    y, weight, groups = held_out.y, held_out.weight, held_out.groups
    return checked_guarantee(
        requirements, y, confidence, weight=weight, groups=groups, seed=seed, out_of_fold=out_of_fold
    )


def default_refit(held_out: HeldOut, rule: Rule) -> Refit:
    """Return what is fitted to the rows before a decision: the calibration for the plug-in rule, otherwise nothing."""
    return partial(_calibrate_again if check_rule(rule) == "plugin" else _keep, held_out)


def _calibrate_again(held_out: HeldOut, weight: Tensor) -> Tensor:
    return fit_calibration(held_out.logits, held_out.y, weight)(held_out.logits)


def _keep(held_out: HeldOut, weight: Tensor) -> Tensor:
    return held_out.logits


def _judge_threshold(
    decision: Decision,
    held_out: HeldOut,
    metric: Metric,
    requirements: list[Requirement],
    seed: int,
    rule: Rule,
    refit: Refit,
    resamples: int | None,
    guarantee: Guarantee | None,
) -> Decision:
    """Return the decision with its intervals and its corrected value."""
    scores, y, weight = held_out.logits.squeeze(1), held_out.y, held_out.weight
    threshold, feasible = decision.threshold, decision.not_reachable is None
    assert threshold is not None
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
        estimate, ends = decision.value, (at_threshold.low, at_threshold.high)
    value_ends = (drawn.interval.low, drawn.interval.high)
    if not value_ends[0] < value_ends[1] or not ends[0] < ends[1]:
        by_counts = interval_of_decisions(
            decision.decide(scores), y, metric, weight=weight, groups=held_out.groups, seed=seed
        )
        value_ends, ends = (pair if pair[0] < pair[1] else by_counts for pair in (value_ends, ends))
    return replace(
        decision,
        interval=None if interval is None else _with_equal_thresholds(interval, scores, threshold),
        value_interval=value_ends,
        corrected_value=estimate,
        corrected_interval=ends,
    )


def _judge_offsets(
    decision: Decision,
    held_out: HeldOut,
    metric: Metric,
    average: ScalarAverage,
    seed: int,
    rule: Rule,
    refit: Refit,
    resamples: int | None,
) -> Decision:
    """Return the decision with its corrected value."""
    assert decision.offsets is not None
    offsets = decision.offsets

    def fit_decision(weight: Tensor) -> Tensor:
        logits = refit(weight).double()
        scores = decision.scores(logits)
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
    return replace(decision, corrected_value=corrected.value, corrected_interval=corrected.interval)


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


def to_probability(logit: float) -> float:
    """Convert a logit to a probability."""
    return float(torch.sigmoid(torch.tensor(logit, dtype=torch.float64)))
