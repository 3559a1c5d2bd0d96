"""Decisions from held-out logits and labels of any origin: checks, calibration, and the choice of ``decide.choose``.

These are public functions. The package loads this module when one of them is used, because the bootstrap needs scipy.
Tensors are copied to arrays once; decisions then take arrays and tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Floats, Integers, to_numpy
from metricfit.core.types import LabelAverage, ScalarAverage
from metricfit.decide.budget import check_budget, choose_within_budget
from metricfit.decide.calibration import Calibration, fit_calibration, fit_label_calibration
from metricfit.decide.choose import checked_guarantee, choose_decision
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.decision import Decision, OffsetDecision, ThresholdDecision
from metricfit.decide.held_out import HeldOut, collect_held_out, collect_label_rows
from metricfit.decide.refer import check_referral, choose_referral
from metricfit.decide.rules import Goal, Rule, check_rule
from metricfit.decide.shift import PriorShift, estimate_prior_shift
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.sweep import column


def best_decision(
    logits: Array,
    target: Array,
    metric: str | Metric | Formula,
    *,
    rule: Rule = "plugin",
    subject_to: Requirements | None = None,
    average: LabelAverage = "macro",
    weight: Array | None = None,
    groups: Any = None,
    calibrate: bool = True,
    confidence: float | None = None,
    prevalence: float | Sequence[float] | Array | None = None,
    budget: int | None = None,
    seed: int = 0,
) -> Decision:
    """Choose how logits become decisions, for a metric: a threshold, offsets of classes or thresholds of labels.

    A metric of the whole confusion matrix, such as ``metrics.weighted_kappa(power=2)``, has costs as well: the expected
    costs decide, and offsets are added to them (``CostDecision``).

    Use logits of rows that the model was not trained on. The plug-in rule calibrates them and takes the threshold, or
    the offsets, whose expected counts have the best value; the empirical rule takes the best value on the labels. With
    few rows of the rarest class the plug-in rule is usually better on new rows: it does not follow the noise of single
    labels.

    Args:
        logits: Held-out logits, ``(n,)`` or ``(n, 1)`` for two classes, ``(n, c)`` for several classes or labels. For
            the empirical rule any scores will do.
        target: Class numbers ``(n,)``; of two classes, 1 is the positive one. For several labels 0 and 1, ``(n, c)``:
            the decision then has one threshold per label.
        metric: A Metric of counts, its name or a function of Counts.
        rule: "plugin", "empirical" or "auto", which is "plugin".
        subject_to: Requirements such as ``"recall >= 0.9"``; of several classes or labels, ``"recall[2] >= 0.9"`` is
            on class 2, and a requirement without a class is one on each of them. If no decision meets them, the one
            with the smallest violation is chosen, and ``not_reachable`` of the decision says what is reachable.
        average: The average over several classes or labels; for labels also "samples", the mean over rows.
        weight: One weight per row.
        groups: One group per row, for rows that are not independent; the bootstrap draws whole groups. A confidence is
            then about a row drawn at random from a new group: requirements are tested on one row of each group.
        calibrate: Whether to calibrate the logits for the plug-in rule. False if they are calibrated already.
        confidence: The probability, such as 0.95, with which all requirements must hold on new rows. The rows must be
            independent draws that did not fit the model. By default the requirements are met on these rows alone. The
            requirements must be on recall, fnr, specificity, fpr, precision, npv, accuracy or selection_rate. Of
            several classes, a fifth of the rows chooses which offsets are tested.
        prevalence: The class balance to decide for, if these rows have another: the share of the positive
            class, or one share per class (such as ``shares`` of ``estimate_prevalence``). Rows of each class are
            assumed to look as they do here.
        budget: How many of these rows are positive, or exactly how many labels each row has (``decide.budget``). Rows
            with equal logits are decided alike. It stands for itself, without requirements and without a prevalence.
        seed: The seed of the bootstrap, and of the rows that choose the order of tests for a confidence.

    Returns:
        The decision about logits as they were given, with the calibration if there is one, so that its
        ``probabilities`` are calibrated. Its value is measured on the labels; ``corrected_value`` is an estimate for
        new rows.

    Raises:
        InvalidValueError: The arrays do not fit each other; all rows are of one of two classes; there is no such rule
            or average; a requirement is on an unknown class; or a confidence is given together with weights, a
            prevalence or a requirement without exact bounds.
        InfeasibleError: There are too few rows for the confidence; the message says how many are needed.
        InvalidTypeError: An argument has the wrong type.

    Example:
        >>> z, y = [-3.0, -2.0, -2.0, -1.0, 0.0, 0.0, 1.0, 2.0], [0, 0, 0, 1, 0, 0, 1, 1]
        >>> decision = best_decision(z, y, "f1")
        >>> round(decision.threshold, 6), decision.decide(z).tolist()
        (-0.5, [0, 0, 0, 0, 1, 1, 1, 1])
        >>> z, y = np.linspace(-3, 3, 200), np.arange(200) % 8 + np.arange(200) // 25 > 7
        >>> decision = best_decision(z, y, "precision", subject_to="recall >= 0.9", confidence=0.95)
        >>> decision.evidence.confidence, round(decision.evidence.requirements["recall >= 0.9"].value, 3)
        (0.95, 0.966)
    """
    requirements, has_labels = as_requirements(subject_to), to_numpy(target).ndim == 2 and to_numpy(target).shape[1] > 1
    if has_labels and prevalence is not None:
        raise InvalidValueError("prevalence is for classes; leave it out for several labels")
    if not has_labels and average not in ("macro", "micro", "weighted"):
        raise InvalidValueError(f"average must be 'macro', 'micro' or 'weighted', got {quote(average)}")
    rows = (_label_rows if has_labels else _class_rows)(logits, target, weight, groups)
    if prevalence is not None and confidence is not None:
        raise InvalidValueError("a confidence is for rows as these; leave out prevalence or confidence")
    rows, calibration = _calibrate(rows, rule, calibrate)
    if prevalence is not None:
        at_balance = rows.with_class_shares(_check_shares(prevalence, len(rows.shares)))
        shift = (at_balance.logits - rows.logits)[0]
        calibration = Calibration(1.0, np.zeros_like(shift)) if calibration is None else calibration
        rows, calibration = at_balance, Calibration(calibration.temperature, calibration.bias + shift)

    def as_given(label: int, threshold: float) -> float:
        """Return a threshold of the logits as they were given."""
        if calibration is None:
            return threshold
        return float(calibration.invert(np.full(len(calibration.bias), threshold))[label])

    if budget is not None:
        if requirements or prevalence is not None or confidence is not None:
            raise InvalidValueError("a budget stands for itself: leave subject_to, confidence and prevalence out")
        budget = check_budget(budget, rows.logits.shape[1], len(rows.y), has_labels=has_labels)
        within = choose_within_budget(rows, Goal(get_metric(metric), (), average, check_rule(rule), seed=seed), budget)
        return within if calibration is None else within.before(calibration)
    decision = choose_decision(
        rows,
        get_metric(metric),
        subject_to=requirements,
        average=average,
        seed=seed,
        rule=rule,
        confidence=confidence,
        as_shown=as_given,
    )
    raw = decision if calibration is None else decision.before(calibration)
    if check_rule(rule) == "empirical" and not has_labels:
        raw = replace(raw, calibration=None)  # type: ignore[type-var]  # scores of any kind have no probabilities
    return raw


def _calibrate(rows: HeldOut, rule: Rule, calibrate: bool) -> tuple[HeldOut, Calibration | None]:
    """Return the rows with calibrated logits, and the calibration, if the rule has one."""
    if check_rule(rule) == "empirical" or not calibrate:
        return rows, None
    fit = fit_label_calibration if rows.y.ndim == 2 else fit_calibration
    calibration = fit(rows.logits, rows.y, rows.weight)
    return replace(rows, logits=calibration(rows.logits)), calibration


def _label_rows(logits: Array, target: Array, weight: Array | None, groups: Any) -> HeldOut:
    """Return checked rows with several labels."""
    z, y = to_numpy(logits), to_numpy(target)
    if z.shape != y.shape:
        raise InvalidValueError(f"labels {y.shape} need logits of the same shape, got {z.shape}")
    if not ((y == 0) | (y == 1)).all():
        raise InvalidValueError("labels (n, c) must be 0 or 1")
    # The rows are checked as for a classifier; class numbers have no part in it.
    z, _, w = check_rows(z, np.zeros(len(z), dtype=np.int64), weight)
    return collect_label_rows(z, y.astype(np.int64), w, check_groups(groups, len(y)))


def _class_rows(logits: Array, target: Array, weight: Array | None, groups: Any) -> HeldOut:
    """Return checked rows of classes; of two classes both must be there."""
    z, y, w = check_rows(logits, target, weight)
    counted = y if w is None else y[w > 0]
    if z.shape[1] == 1 and not 0 < int(counted.sum()) < len(counted):
        raise InvalidValueError(f"all rows are of one class, {int(counted[0])}: there is nothing to decide")
    return collect_held_out(z, y, w, check_groups(groups, len(y)))


def _check_shares(prevalence: float | Sequence[float] | Array, classes: int) -> Floats:
    """Return the share of each class."""
    shares = to_numpy(prevalence, np.float64).reshape(-1)
    if classes == 2 and len(shares) == 1:
        shares = np.concatenate([1 - shares, shares])
    if len(shares) != classes or not (shares > 0).all() or abs(float(shares.sum()) - 1) > 1e-6:
        raise InvalidValueError(
            f"prevalence is the share of the positive class, or one share for each of {classes} classes, above 0 and "
            f"summing to 1; got {quote(prevalence)}"
        )
    return shares


def check_rows(logits: Array, target: Array, weight: Array | None) -> tuple[Floats, Integers, Floats | None]:
    """Return logits ``(n, 1)`` or ``(n, c)`` and weights in float64, and class numbers."""
    z = to_numpy(logits)
    z = to_numpy(column(logits, "logits"))[:, None] if z.ndim != 2 or z.shape[1] == 1 else z
    y = to_numpy(column(target, "target"))
    w = None if weight is None else to_numpy(column(weight, "weight"), np.float64)
    for name, values in (("target", y), ("weight", w)):
        if values is not None and len(values) != len(z):
            raise InvalidValueError(f"{len(z)} rows of logits, but {len(values)} values of {name}")
    classes = max(2, z.shape[1])
    if len(y) == 0 or not ((y >= 0) & (y < classes) & (y == np.round(y))).all():
        raise InvalidValueError(f"the target must hold class numbers from 0 to {classes - 1}, one per row")
    if not np.isfinite(z).all():
        raise InvalidValueError(f"{int((~np.isfinite(z)).sum())} of {z.size} logits are NaN or infinite")
    if w is not None and not (((w >= 0) & (w < np.inf)).all() and (w > 0).any()):
        raise InvalidValueError("weights must be finite and at least 0, and not all 0")
    return z.astype(np.float64), y.astype(np.int64), w


def check_groups(groups: Any, rows: int) -> NDArray[Any] | None:
    """Return the group of each row as an array, or None."""
    if groups is None:
        return None
    array = np.asarray(groups)
    if array.shape != (rows,):
        raise InvalidValueError(f"groups needs one group per row, {rows}; got an array of shape {array.shape}")
    return array


def estimate_prevalence(
    logits: Array, target: Array, new_logits: Array, *, weight: Array | None = None, groups: Any = None, seed: int = 0
) -> PriorShift:
    """Estimate the class balance of new rows without labels, for a model of your own.

    Pass the result's ``shares`` to ``best_decision(..., prevalence=...)`` to decide for the new balance.

    Args:
        logits: Logits of rows that the model was not trained on, ``(n,)`` or ``(n, 1)`` for two classes, ``(n, c)`` for
            several.
        target: Their class numbers.
        new_logits: Logits of the new rows by the same model.
        weight: One weight per row with a label.
        groups: One group per row with a label, for rows that are not independent.
        seed: The seed of the bootstrap.

    Returns:
        The shares with intervals, and the test for drift, as ``estimate_prior_shift``.

    Raises:
        InvalidValueError: The arrays do not fit each other, hold NaN, or there are no new rows.

    Example:
        >>> y = (np.arange(2000) % 10 == 0).astype(int)
        >>> z = np.random.default_rng(0).normal(size=2000) + 3 * y
        >>> new = np.concatenate([z[y == 1], z[y == 0][:200]])
        >>> result = estimate_prevalence(z, y, new)
        >>> round(float(result.shares[1]), 1), result.drift.found
        (0.5, False)
    """
    z, y, w = check_rows(logits, target, weight)
    new = to_numpy(new_logits)
    new = new[:, None] if new.ndim == 1 else new
    rows = collect_held_out(z, y, w, None if groups is None else np.asarray(groups))
    if len(rows.shares) < max(2, z.shape[1]) or not (rows.shares > 0).all():
        raise InvalidValueError("the class balance of new rows needs rows of every class with labels")
    return estimate_prior_shift(rows, new, seed=seed)


def best_referral(
    logits: Array,
    target: Array,
    metric: str | Metric | Formula,
    *,
    max_share: float | None = None,
    subject_to: Requirements | None = None,
    rule: Rule = "plugin",
    average: ScalarAverage = "macro",
    weight: Array | None = None,
    groups: Any = None,
    calibrate: bool = True,
    confidence: float | None = None,
    seed: int = 0,
) -> ThresholdDecision | OffsetDecision:
    """Choose which rows a model decides and which are referred to a person, for a metric of classes.

    The threshold, or the offsets of several classes, are the best ones for the metric. The rows whose logits are in a
    region around the threshold are referred; of several classes, the rows whose best class leads the second best by too
    little. The metric is the one of the other rows. Use logits of rows that the model was not trained on.

    Args:
        logits: Held-out logits, ``(n,)`` or ``(n, 1)``, or ``(n, c)`` for several classes. For the empirical rule any
            scores will do.
        target: Class numbers; of two classes 0 and 1.
        metric: A Metric of counts, its name or a function of Counts.
        max_share: The largest share of the rows that may be referred. The region is the one with the best metric. By
            default it is the smallest one that meets ``subject_to``.
        subject_to: Requirements on the decided rows, such as ``"precision >= 0.9"``; of several classes,
            ``"recall[2] >= 0.9"`` is on class 2, and a requirement without a class is one on each of them.
        rule: "plugin", "empirical" or "auto", which is "plugin", as in ``best_decision``.
        average: The average over several classes.
        weight: One weight per row.
        groups: One group per row, for rows that are not independent; the bootstrap draws whole groups.
        calibrate: Whether to calibrate the logits for the plug-in rule. False if they are calibrated already.
        confidence: The probability, such as 0.95, with which the requirements hold on the decided ones of new rows, as
            in ``best_decision``. A fifth of the rows then chooses the decision and the regions that are tested.
        seed: The seed of the bootstrap, and of the rows that choose what is tested.

    Returns:
        The decision about logits as they were given. ``referral`` is the region, with its share of these rows; value,
        intervals and requirements are measured on the other rows. If no region meets the requirements, it is the one
        with the smallest violation, and ``evidence.not_reachable`` says so.

    Raises:
        InvalidValueError: Neither ``max_share`` nor ``subject_to`` is given, there are several labels or rows of one
            class alone; the arrays do not fit each other; or a confidence is given for what has no exact bounds.
        InfeasibleError: There are too few rows for the confidence; the message says how many are needed.
        InvalidTypeError: An argument has the wrong type.

    Example:
        >>> z = np.linspace(-3, 3, 300)
        >>> y = np.random.default_rng(0).random(300) < 1 / (1 + np.exp(-2 * z))
        >>> decision = best_referral(z, y, "accuracy", max_share=0.2)
        >>> decision.referral.share <= 0.2, round(decision.evidence.value, 2)
        (True, 0.95)
        >>> round(best_referral(z, y, "f1", subject_to="precision >= 0.95").referral.share, 2)
        0.18
        >>> sure = best_referral(z, y, "f1", subject_to="accuracy >= 0.9", confidence=0.9)
        >>> round(sure.referral.share, 2), sure.evidence.certificate
        (0.19, 'guaranteed')
    """
    chosen, z = get_metric(metric), to_numpy(logits)
    classes = max(2, z.shape[1] if z.ndim == 2 else 1)
    requirements = class_requirements(as_requirements(subject_to), classes)
    has_labels = to_numpy(target).ndim == 2 and to_numpy(target).shape[1] > 1
    check_referral(chosen, 0 if has_labels else classes, max_share, requirements)
    rows, calibration = _calibrate(_class_rows(logits, target, weight, groups), rule, calibrate)
    goal = Goal(chosen, requirements, average, check_rule(rule), seed=seed)
    if confidence is not None:
        guarantee = checked_guarantee(
            requirements, rows.y, confidence, weight=rows.weight, groups=rows.groups, seed=seed
        )
        goal = replace(goal, guarantee=guarantee)
    all_rows: Any = choose_decision(rows, chosen, subject_to=[], average=average, seed=seed, rule=rule)
    decision = choose_referral(rows, goal, all_rows, max_share=max_share)
    return decision if calibration is None else decision.before(calibration)
