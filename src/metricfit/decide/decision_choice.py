"""The choice of a decision on held-out logits: the best threshold of two classes or offsets of several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metricfit.core.threads import one_thread
from metricfit.core.types import ScalarAverage
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.classes.class_decisions import choose_class_decision, judge_class_decision
from metricfit.decide.costs.cost_decisions import choose_cost_decision, choose_cost_without_intervals
from metricfit.decide.decision import CostDecision, Decision, OffsetDecision, ThresholdDecision
from metricfit.decide.guarantees.certified import Guarantee
from metricfit.decide.guarantees.guarantee_checks import checked_guarantee
from metricfit.decide.held_out import HeldOut
from metricfit.decide.refit import Refit, default_refit
from metricfit.decide.rules import Rule, check_rule
from metricfit.decide.threshold_choice import choose_threshold_decision, judge_threshold_decision
from metricfit.errors import InvalidValueError
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement


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

    If no decision meets the requirements, the one with the smallest violation is chosen, and the decision says so.
    With costs in columns the threshold is one of cost margins (``decide.costs``).

    Args:
        held_out: Calibrated logits of held-out rows.
        metric: The metric.
        subject_to: Requirements. Of several classes, each is on the class in its brackets, or on every class
            (``class_requirements``).
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
        InvalidValueError: There is no such rule, a requirement is on a class that there is not, or a confidence is
            given for requirements or rows that have no exact bounds; or the metric is infinite at the best decision.
        InfeasibleError: There are too few rows for this confidence.
    """
    kind = check_rule(rule)
    refit = refit or default_refit(held_out, kind)
    classes = max(2, held_out.logits.shape[1])
    requirements = class_requirements(subject_to, classes)
    guarantee = None
    if confidence is not None:
        guarantee = checked_guarantee(
            requirements,
            held_out.y,
            confidence,
            weight=held_out.weight,
            groups=held_out.groups,
            seed=seed,
            out_of_fold=out_of_fold,
        )
    if metric.columns:  # without requirements, so without a guarantee
        return choose_cost_decision(held_out, metric, rule=kind, refit=refit, resamples=resamples, seed=seed)
    decision = choose_without_intervals(
        held_out, metric, subject_to=requirements, average=average, rule=kind, guarantee=guarantee
    )
    value = decision.evidence.value
    if not np.isfinite(value):
        raise InvalidValueError(
            f"{metric.name} is {value} at the best decision on the held-out rows: it divides by a count that "
            "is 0. Add a number to the denominator, or cap it, as in 'tp/max(fp, 1)'"
        )
    if isinstance(decision, ThresholdDecision):
        return judge_threshold_decision(
            decision, held_out, metric, requirements, seed, kind, refit, resamples, guarantee
        )
    assert isinstance(decision, (OffsetDecision, CostDecision))
    return judge_class_decision(decision, held_out, metric, requirements, average, seed, kind, refit, resamples)


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
    requirements = class_requirements(subject_to, max(2, held_out.logits.shape[1]))
    if held_out.logits.shape[1] == 1:
        return choose_threshold_decision(held_out, metric, requirements, rule=kind, guarantee=guarantee)
    return choose_class_decision(held_out, metric, requirements, average=average, rule=kind, guarantee=guarantee)
