"""The threshold of two classes whose requirements hold on new rows with a given probability."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from metricfit.decide.guarantees.certified import Guarantee, certify_thresholds
from metricfit.decide.rules import Rule, check_rule, middle_of, value_at
from metricfit.metrics.curves import best_of_allowed, judge_requirements
from metricfit.metrics.feasibility import ChosenThreshold
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import expected_sweep, sweep


def choose_certified(
    logits: Tensor,
    y: Tensor,
    weight: Tensor | None,
    metric: Metric,
    requirements: Sequence[Requirement],
    *,
    rule: Rule,
    guarantee: Guarantee,
    times: Tensor | None = None,
) -> ChosenThreshold:
    """Choose the best of the certified thresholds, or if there are none, of those that come nearest.

    Args:
        logits: Calibrated logits ``(n,)``.
        y: Labels 0 and 1.
        weight: One weight per row, or None.
        metric: A metric of counts.
        requirements: The requirements.
        rule: "plugin" for the best expected value, "empirical" for the best value on the labels, or "auto".
        guarantee: The probability with which the requirements must hold on new rows.
        times: How often each row counts in the tests, in a bootstrap; by default once.

    Returns:
        The threshold; the value and the requirements there, both on the labels. Requirements are met if they are
        certified.

    Example:
        >>> import torch
        >>> from metricfit.metrics import f1, parse_requirement
        >>> z, y = torch.linspace(-1, 1, 100), (torch.arange(100) >= 50).long()
        >>> required = [parse_requirement("recall >= 0.9")]
        >>> choose_certified(z, y, None, f1, required, rule="empirical", guarantee=Guarantee(0.95)).requirements
        {'recall >= 0.9': RequirementValue(value=1.0, met=True, reachable=1.0)}
    """
    if weight is not None and not bool(weight.all()):  # rows of weight 0 are no thresholds
        there = weight > 0
        logits, y, weight, times = logits[there], y[there], weight[there], None if times is None else times[there]
        guarantee = guarantee.take(there)
    observed = sweep(logits, y, weight)
    certified = certify_thresholds(logits, y, metric, requirements, guarantee, times)
    judged_by = observed if check_rule(rule) == "empirical" else expected_sweep(logits, weight)
    threshold = best_of_allowed(judged_by, metric, certified.allowed).threshold
    at = int((observed.thresholds == threshold).int().argmax())
    results = judge_requirements(requirements, observed, threshold)
    for requirement, p in zip(requirements, certified.p[:, at], strict=True):
        result = results[str(requirement)]
        results[str(requirement)] = result._replace(met=certified.feasible or bool(p <= certified.level))
    value = value_at(observed, metric, threshold)
    return ChosenThreshold(middle_of(logits, threshold), value, certified.feasible, results)
