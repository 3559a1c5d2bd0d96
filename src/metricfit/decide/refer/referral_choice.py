"""The best decision that refers some rows to a person, from held-out logits and labels."""

from __future__ import annotations

from typing import Any

from metricfit.decide.best import check_groups, check_rows, check_two_classes
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.decision import ThresholdDecision
from metricfit.decide.decision_choice import choose_decision
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.refer.referral import check_referral, choose_referral
from metricfit.decide.refit import default_refit
from metricfit.decide.rules import Rule, check_rule
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.sweep import Array


def best_referral(
    logits: Array,
    target: Array,
    metric: str | Metric | Formula,
    *,
    max_share: float | None = None,
    subject_to: Requirements | None = None,
    rule: Rule = "plugin",
    weight: Array | None = None,
    groups: Any = None,
    calibrate: bool = True,
    seed: int = 0,
) -> ThresholdDecision:
    """Choose which rows a model decides and which are referred to a person, for a metric of two classes.

    The threshold is the best one for the metric. The rows whose logits are in a region around it are referred; the
    others are decided as without the region, and the metric is theirs. Use logits of rows that the model was not
    trained on.

    Args:
        logits: Held-out logits, ``(n,)`` or ``(n, 1)``. For the empirical rule any scores will do.
        target: Labels 0 and 1.
        metric: A Metric of counts, its name or a function of Counts.
        max_share: The largest share of the rows that may be referred. The region is the one with the best metric. By
            default it is the smallest one that meets ``subject_to``.
        subject_to: Requirements on the decided rows, such as ``"precision >= 0.9"``.
        rule: "plugin", "empirical" or "auto", which is "plugin", as in ``best_decision``.
        weight: One weight per row.
        groups: One group per row, for rows that are not independent; the bootstrap draws whole groups.
        calibrate: Whether to calibrate the logits for the plug-in rule. False if they are calibrated already.
        seed: The seed of the bootstrap.

    Returns:
        The decision about logits as they were given. ``referral`` is the region, with its share of these rows; value,
        intervals and requirements are those of the other rows. If no region meets the requirements, it is the one with
        the smallest violation, and ``evidence.not_reachable`` says so.

    Raises:
        InvalidValueError: Neither ``max_share`` nor ``subject_to`` is given, there are more than two classes or rows of
            one class alone, or the arrays do not fit each other.
        InvalidTypeError: An argument has the wrong type.

    Example:
        >>> import torch
        >>> z = torch.linspace(-3, 3, 300)
        >>> y = (torch.rand(300, generator=torch.Generator().manual_seed(0)) < torch.sigmoid(2 * z)).long()
        >>> decision = best_referral(z, y, "accuracy", max_share=0.2)
        >>> decision.referral.share <= 0.2, round(decision.evidence.value, 2)
        (True, 0.94)
        >>> round(best_referral(z, y, "f1", subject_to="precision >= 0.95").referral.share, 2)
        0.13
    """
    chosen, requirements = get_metric(metric), as_requirements(subject_to)
    z, y, w = check_rows(logits, target, weight)
    check_referral(chosen, max(2, z.shape[1]), max_share, requirements, None)
    check_two_classes(z, y, w)
    calibration = fit_calibration(z, y, w) if check_rule(rule) == "plugin" and calibrate else None
    calibrated = z if calibration is None else calibration(z)
    held_out = collect_held_out(calibrated, y, w, check_groups(groups, len(y)))
    all_rows = choose_decision(held_out, chosen, subject_to=[], average="macro", seed=seed, rule=rule)
    assert isinstance(all_rows, ThresholdDecision)
    decision = choose_referral(
        held_out,
        chosen,
        all_rows,
        max_share=max_share,
        subject_to=requirements,
        rule=rule,
        refit=default_refit(held_out, rule),
        seed=seed,
    )
    return decision if calibration is None else decision.before(calibration)
