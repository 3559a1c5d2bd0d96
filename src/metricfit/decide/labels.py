"""The best thresholds of calibrated logits of several labels: macro, micro and weighted averages, and per sample.

- *macro* and *weighted*: every label counts separately, so that each has its own best threshold. A label that no row
  has is decided by the labels: its best expected F1, of probabilities near 0, would be to call it everywhere.
- *micro*: the counts of all labels are summed. If the probabilities are calibrated, one threshold of the probability
  for all labels is best (of the same number of positive decisions, those with the highest probabilities have the most
  true positives); so the plug-in rule searches one threshold.
- *samples*: the metric of each row's labels, averaged over the rows, as in scikit-learn. The expected value of a row is
  no function of its expected counts; so the plug-in rule searches one threshold of the probability for all labels, by
  the true labels. On four tables (studies/label_thresholds.py) the mean F1 of the test rows was 0.570 with it,
  0.568 with one threshold per label by the true labels, and 0.502 at 0.5.

The empirical rule for *micro* and *samples* starts at the best threshold for all labels together and then changes one
label at a time, which is exact for each label: a sort and a cumulative sum.

Under requirements each label is a problem of two classes with its requirements; *micro* and *samples*, whose best
thresholds depend on each other, take none. With a confidence, the labels that have
requirements share the probability of error equally, because their rows are the same and not independent of each other.
All certified thresholds then hold together, and any of them may be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from metricfit.core.arrays import Array, Floats, Integers, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.types import LabelAverage
from metricfit.decide.bounds import draw_one_per_group, format_percent
from metricfit.decide.calibration import fit_label_calibration
from metricfit.decide.certified import check_guarantee, choose_best, why_not
from metricfit.decide.decision import LabelDecision
from metricfit.decide.held_out import HeldOut
from metricfit.decide.optimism import draw_multiplicities, judged_by_others, without_gain
from metricfit.decide.rules import Goal, Rule, check_rule, choose_threshold, thresholds_of_counts
from metricfit.errors import InvalidValueError
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.curves import judge_requirements, metric_of_label
from metricfit.metrics.feasibility import InfeasibleError, RequirementValue
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import sweep
from metricfit.stats.results import compute_interval

#: Maximum number of rounds through the labels.
ROUNDS = 10
#: Smallest improvement, as a share of the value, for which a threshold is changed.
IMPROVEMENT = 1e-9

#: Takes logits, labels, weights, the metric, the decisions and the number of a label; returns thresholds of that label
#: and values that are higher the better the decisions at each are.
ValuesOfLabel = Callable[[Floats, Floats, Floats, Metric, Floats, int], tuple[Floats, Floats]]


def label_value(decided: Array, y: Array, weight: Array | None, metric: Metric, average: LabelAverage) -> float:
    """Return the metric of decisions on several labels.

    Args:
        decided: Decisions 0 and 1, or shares of them, ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        metric: The metric.
        average: "macro", "micro" or "weighted" over labels, or "samples" over rows.

    Example:
        >>> from metricfit.metrics import f1
        >>> label_value([[1, 0], [0, 0]], [[1, 0], [0, 1]], None, f1, "samples")
        0.5
    """
    d, t = to_numpy(decided, np.float64), to_numpy(y, np.float64)
    w = np.ones(len(t)) if weight is None else to_numpy(weight, np.float64)
    if average == "samples":
        return float(w @ row_values(d, t, metric) / w.sum())
    tp, predicted, positives = w @ (d * t), w @ d, w @ t
    return float(averaged(metric, _counts(tp, predicted, positives, w.sum()), average))


def row_values(decided: Floats, y: Floats, metric: Metric) -> Floats:
    """Return the metric of each row's labels, ``(n,)``."""
    tp, predicted, positives = ((decided * y).sum(1), decided.sum(1), y.sum(1))
    return _row_metric(metric, tp, predicted, positives, y.shape[1])


def choose_label_thresholds(
    logits: Array, y: Array, weight: Array | None, metric: Metric, average: LabelAverage, *, rule: Rule
) -> Floats:
    """Choose one threshold of calibrated logits per label.

    Args:
        logits: Calibrated logits ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        metric: The metric.
        average: "macro", "micro", "weighted" or "samples".
        rule: "plugin" for expected counts, "empirical" for the labels, or "auto".

    Returns:
        The thresholds ``(c,)``.

    Raises:
        InvalidValueError: There is no such rule, or the average makes no sense for the metric.

    Example:
        >>> from metricfit.metrics import f1
        >>> z, y = [[2.0, -1.0], [1.0, -3.0]], [[1, 1], [0, 0]]
        >>> choose_label_thresholds(z, y, None, f1, "macro", rule="empirical")
        array([ 1.5, -2. ])
    """
    goals = LabelGoals(Goal(metric, average=average, rule=check_rule(rule)), to_numpy(logits).shape[1])
    return choose_required_thresholds(logits, y, weight, goals)[0]


def improve_by_label(
    z: Floats,
    t: Floats,
    w: Floats,
    metric: Metric,
    start: Floats,
    average: Literal["micro", "samples"],
) -> Floats:
    """Change one threshold at a time until a round brings no improvement.

    Args:
        z: Logits ``(n, c)``.
        t: Labels 0 and 1, or their probabilities, ``(n, c)``.
        w: One weight per row.
        metric: The metric.
        start: The thresholds to start from.
        average: "micro" or "samples".

    Returns:
        The thresholds.
    """
    values_of_label: ValuesOfLabel = _micro_of_label if average == "micro" else _samples_of_label
    thresholds, best = start.copy(), -math.inf
    decided = (z >= thresholds).astype(np.float64)
    for _ in range(ROUNDS):
        before = best
        for label in range(z.shape[1]):
            cuts, values = values_of_label(z, t, w, metric, decided, label)
            lowest = z[:, label][decided[:, label] > 0]  # the threshold that decides as now is the first below these
            now = int((cuts > lowest.min()).sum()) if len(lowest) else 0
            place = int(values.argmax())
            if values[place] > values[now] + IMPROVEMENT * max(abs(float(values[now])), 1e-6):
                thresholds[label] = cuts[place]
                decided[:, label] = z[:, label] >= thresholds[label]
                now = place
            best = float(values[now])
        if best <= before + IMPROVEMENT * abs(best):
            break
    return thresholds


def _samples_of_label(
    z: Floats, t: Floats, w: Floats, metric: Metric, decided: Floats, label: int
) -> tuple[Floats, Floats]:
    """Return the thresholds of a label and the mean of the rows' values at each; higher is better."""
    others = decided.copy()
    others[:, label] = 0
    without = _signed(metric, row_values(others, t, metric))
    others[:, label] = 1
    return _cumulate(z[:, label], w * (_signed(metric, row_values(others, t, metric)) - without), float(w @ without))


def _micro_of_label(
    z: Floats, t: Floats, w: Floats, metric: Metric, decided: Floats, label: int
) -> tuple[Floats, Floats]:
    """Return the thresholds of a label and the metric of the summed counts at each; higher is better."""
    others = decided.copy()
    others[:, label] = 0
    tp, predicted = float((w @ (others * t)).sum()), float((w @ others).sum())
    cuts, of_label = _cumulate(z[:, label], w * t[:, label], tp)
    _, called = _cumulate(z[:, label], w, predicted)
    counts = _counts(of_label[:, None], called[:, None], (w @ t).sum(), w.sum() * z.shape[1])
    return cuts, _signed(metric, metric(counts).squeeze(-1))


def _common_of_samples(z: Floats, t: Floats, w: Floats, metric: Metric) -> float:
    """Return the best threshold for all labels: each row's value changes where one of its labels becomes positive."""
    order = np.argsort(-z, axis=1)
    tp = np.concatenate([np.zeros((len(z), 1)), np.take_along_axis(t, order, 1).cumsum(1)], axis=1)
    values = _row_metric(metric, tp, np.arange(z.shape[1] + 1.0), t.sum(1, keepdims=True), z.shape[1])
    values, falling = _signed(metric, values), np.take_along_axis(z, order, 1)
    gains = w[:, None] * np.diff(values, axis=1)
    cuts, sums = _cumulate(falling.reshape(-1), gains.reshape(-1), float(w @ values[:, 0]))
    return float(cuts[int(sums.argmax())])


def _cumulate(scores: Floats, gains: Floats, start: float) -> tuple[Floats, Floats]:
    """Return thresholds between the distinct scores, falling, and the start plus the gains of the scores above each."""
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    last_of_ties = np.concatenate([falling[1:] != falling[:-1], [True]])
    sums = np.concatenate([[0.0], gains[order].cumsum()[last_of_ties]])
    distinct = falling[last_of_ties]
    ends = np.concatenate([distinct[:1] + 1, (distinct[1:] + distinct[:-1]) / 2, distinct[-1:] - 1])
    return ends, start + sums


def _row_metric(metric: Metric, tp: Floats, predicted: Floats, positives: Floats, labels: int) -> Floats:
    counts = _counts(tp[..., None], predicted[..., None], positives[..., None], float(labels))
    return metric(counts).squeeze(-1)


def _counts(tp: Floats, predicted: Floats, positives: Any, total: Any) -> Counts:
    cells = (tp, predicted - tp, positives - tp, total - predicted - positives + tp)
    return Counts(*(np.maximum(cell, 0.0) for cell in cells))


def _signed(metric: Metric, values: Floats) -> Floats:
    return -values if metric.minimize else values


@dataclass(frozen=True)
class LabelGoals:
    """A goal about several labels, and what it asks of each.

    Attributes:
        goal: The goal; each of its requirements is of one label (``class_requirements``).
        labels: The number of labels.
    """

    goal: Goal
    labels: int

    @cached_property
    def by_label(self) -> dict[int, dict[str, Requirement]]:
        """For each label that has some, its requirements on counts of this label alone, by their texts."""
        found: dict[int, dict[str, Requirement]] = {}
        for requirement in self.goal.requirements:
            metric = requirement.metric
            index = metric.class_index
            assert index is not None
            name = index if metric.class_name is None else metric.class_name
            alone = metric_of_label(metric, index, self.labels).of_class(0, name)
            found.setdefault(index, {})[str(requirement)] = replace(requirement, metric=alone)
        return found

    def of(self, label: int) -> Goal:
        """Return the goal of one label; with a guarantee for each, so that all of them hold together."""
        guarantee, metric = self.goal.guarantee, metric_of_label(self.goal.metric, label, self.labels)
        requirements = list(self.by_label.get(label, {}).values())
        if guarantee is not None:
            error = (1 - guarantee.confidence) / max(1, len(self.by_label))
            guarantee = replace(guarantee, confidence=1 - error) if requirements else None
        return replace(self.goal, metric=metric, requirements=requirements, guarantee=guarantee)

    def check_rows(self, y: Integers) -> None:
        """Raise an error if no scores could guarantee the requirements on these labels ``(n, c)``.

        Raises:
            InfeasibleError: There are too few rows; the message says how many are needed.
            InvalidValueError: A requirement has no exact bound.
        """
        assert self.goal.guarantee is not None
        for label in self.by_label:
            alone, target = self.of(label), y[:, label]
            assert alone.guarantee is not None
            counted = draw_one_per_group(alone.guarantee.groups, target, alone.requirements, alone.guarantee.seed)
            try:
                check_guarantee(alone.requirements, target[counted], alone.guarantee.confidence)
            except InfeasibleError as error:
                together, each = (format_percent(g.confidence) for g in (self.goal.guarantee, alone.guarantee))
                shared = f" ({together} for all {len(self.by_label)} labels is {each} for each)"
                raise InfeasibleError(f"{error}{shared * (len(self.by_label) > 1)}") from None


def choose_required_thresholds(
    logits: Array, y: Array, weight: Array | None, goals: LabelGoals, times: Floats | None = None
) -> tuple[Floats, dict[int, bool]]:
    """Choose one threshold of calibrated logits per label, under requirements if there are any.

    Under requirements each label has the best of its thresholds that meet its own.

    Args:
        logits: Calibrated logits ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        goals: What the thresholds are for.
        times: How often each row counts in the tests of a guarantee, in a bootstrap; by default once.

    Returns:
        The thresholds ``(c,)``, and for each label with requirements whether some threshold meets them.
    """
    z, y = to_numpy(logits, np.float64), to_numpy(y, np.int64)
    w = np.ones(len(z)) if weight is None else to_numpy(weight, np.float64)
    if goals.by_label and not w.all():  # rows of weight 0 are no thresholds
        there = w > 0
        z, y, w, times = z[there], y[there], w[there], None if times is None else times[there]
        goals = LabelGoals(goals.goal.take(there), goals.labels)
    goal, labels, is_seen = goals.goal, range(goals.labels), (y * (w > 0)[:, None]).any(0)

    if goal.average in ("macro", "weighted"):
        of_labels = [
            goals.of(label) if is_seen[label] else replace(goals.of(label), rule="empirical") for label in labels
        ]
        chosen = [choose_best(z[:, label], y[:, label], w, of_labels[label], times) for label in labels]
        found = {label: chosen[label].feasible for label in goals.by_label}
        return np.array([each.threshold for each in chosen]), found
    check_average(goal.metric, "micro")
    if goals.by_label:
        raise InvalidValueError(f"requirements on labels are for average='macro' or 'weighted', not {goal.average!r}")
    if goal.average == "micro":
        together = z.reshape(-1), y.reshape(-1), w.repeat(goals.labels)
        common = choose_threshold(*together, goal.metric, rule=goal.rule).threshold
    else:
        common = _common_of_samples(z, y, w, goal.metric)
    thresholds = np.full(goals.labels, common)
    if goal.rule == "plugin":
        return thresholds, {}
    return improve_by_label(z, y.astype(np.float64), w, goal.metric, thresholds, goal.average), {}


def judge_label_requirements(
    rows: HeldOut, goals: LabelGoals, thresholds: Floats, feasible: Mapping[int, bool]
) -> tuple[dict[str, RequirementValue], str | None]:
    """Return the result of each requirement at the thresholds, and what is reachable where they cannot be met.

    Args:
        rows: Calibrated logits and labels ``(n, c)``.
        goals: What the thresholds are for.
        thresholds: The thresholds.
        feasible: For each label with requirements, whether some threshold meets them.
    """
    results: dict[str, RequirementValue] = {}
    messages = []
    for label, requirements in goals.by_label.items():
        alone, at = goals.of(label), float(thresholds[label])
        z, target = rows.logits[:, label], rows.y[:, label]
        judged = judge_requirements(alone.requirements, sweep(z, target, rows.weight), at)
        for text, requirement in requirements.items():
            result = judged[str(requirement)]
            results[text] = result._replace(met=feasible[label]) if alone.guarantee is not None else result
        if not feasible[label]:
            messages.append(why_not(z, target, alone, label, at, judged))
    return results, "; ".join(messages) or None


#: Total number of logits that the resamples choose thresholds on, and the fewest and the most resamples.
LOGITS_CHOSEN_ON, FEWEST, MOST = 1_000_000, 10, 50


def choose_label_decision(rows: HeldOut, goal: Goal) -> LabelDecision:
    """Choose one threshold per label, without intervals.

    Thresholds that are tuned on the labels overfit rare labels (Lin and Lin, CIKM 2023). The plug-in rule smooths them:
    thresholds follow from probabilities, whose calibration rare labels share with all others.

    Args:
        rows: Calibrated logits and labels ``(n, c)``.
        goal: What the decision is for.

    Returns:
        The decision.
    """
    goals = LabelGoals(goal, rows.y.shape[1])
    thresholds, feasible = choose_required_thresholds(rows.logits, rows.y, rows.weight, goals)
    results, not_reachable = judge_label_requirements(rows, goals, thresholds, feasible)
    value = label_value(rows.logits >= thresholds, rows.y, rows.weight, goal.metric, goal.average)
    return LabelDecision(thresholds, evidence=goal.evidence(value, results, not_reachable))


def judge_label_decision(decision: LabelDecision, rows: HeldOut, goal: Goal) -> LabelDecision:
    """Return the decision with its intervals and its corrected value.

    Args:
        decision: The decision.
        rows: Calibrated logits and labels ``(n, c)``.
        goal: What the decision was chosen for.

    Returns:
        The decision. By the empirical rule, its corrected value is estimated on the rows that resamples leave out, for
        which the thresholds are chosen again. By the plug-in rule and under requirements it is the value on the
        held-out rows, and its interval comes from the same decisions on resamples.
    """
    metric, average, logits, y = goal.metric, goal.average, rows.logits, rows.y
    goals, thresholds, value = LabelGoals(goal, y.shape[1]), decision.thresholds, decision.evidence.value
    decided = (logits >= thresholds).astype(np.float64)
    votes, times, row_sums = np.zeros_like(decided), np.zeros(len(y)), np.zeros(len(y))
    values, counts = [], []
    stratum = np.zeros(len(y), dtype=np.int64)  # rows have no class, and are drawn from all
    resamples = int(np.clip(LOGITS_CHOSEN_ON // logits.size, FEWEST, MOST))
    for multiplicity in draw_multiplicities(stratum, rows.groups, resamples, goal.seed):
        weight, left_out = rows.weights * multiplicity, (multiplicity == 0).astype(np.float64)
        z = fit_label_calibration(logits, y, weight)(logits) if goal.rule == "plugin" else logits
        called = (z >= choose_required_thresholds(z, y, weight, goals, multiplicity)[0]).astype(np.float64)
        counts.append(called.sum(0))
        called = decided if goal.is_fixed else called
        votes += called * left_out[:, None]
        times += left_out
        if average == "samples":
            row_sums += left_out * row_values(called, y.astype(np.float64), metric)
        values.append(label_value(called, y, weight, metric, average))
    judged = times > 0
    if average == "samples":
        corrected = float((rows.weights * row_sums / np.maximum(times, 1))[judged].sum() / rows.weights[judged].sum())
    else:
        corrected = label_value(judged_by_others(votes, times, decided), y, rows.weight, metric, average)
    corrected = value if goal.is_fixed else without_gain(corrected, value, metric)
    low, high = compute_interval(np.array(values), None, 0.95)
    ends = np.clip(np.array([low, high]) + corrected - np.mean(values), *metric.bounds)
    several = thresholds_of_counts(logits, np.stack(counts))
    below, above = np.quantile(several, 0.025, 0, method="lower"), np.quantile(several, 0.975, 0, method="higher")
    # The ends may be logits of rows, but the threshold lies between two.
    intervals = np.stack([np.minimum(below, thresholds), np.maximum(above, thresholds)], axis=1)
    return replace(decision, intervals=intervals).with_evidence(
        value_interval=(low, high), corrected_value=corrected, corrected_interval=(float(ends[0]), float(ends[1]))
    )
