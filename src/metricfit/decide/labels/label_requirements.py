"""Thresholds of several labels under requirements: each label is a problem of two classes with requirements of its own.

With a confidence, the labels that have requirements share the probability of error equally, because their rows are the
same and not independent of each other. All certified thresholds then hold together, and any of them may be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from metricfit.core.types import LabelAverage
from metricfit.decide.guarantees.bounds import format_percent
from metricfit.decide.guarantees.certified import Guarantee, certify_thresholds, check_guarantee, what_can_be_promised
from metricfit.decide.guarantees.independent_rows import draw_one_per_group
from metricfit.decide.labels.label_search import choose_label_thresholds, improve_by_label
from metricfit.decide.labels.label_thresholds import metric_of_label
from metricfit.decide.rules import Rule, allowed_on_both, check_rule, middle_of
from metricfit.metrics.curves import best_of_allowed, judge_requirements
from metricfit.metrics.feasibility import (
    Allowed,
    InfeasibleError,
    RequirementValue,
    allowed_thresholds,
    what_is_reachable,
)
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import expected_sweep, sweep


@dataclass(frozen=True)
class LabelRequirements:
    """Requirements on labels, and how surely they must hold.

    Attributes:
        requirements: The requirements, each of one label (``class_requirements``).
        labels: The number of labels.
        guarantee: The probability with which all must hold on new rows, or None.
    """

    requirements: Sequence[Requirement]
    labels: int
    guarantee: Guarantee | None = None

    @cached_property
    def by_label(self) -> dict[int, dict[str, Requirement]]:
        """For each label that has some, its requirements on counts of this label alone, by their texts."""
        found: dict[int, dict[str, Requirement]] = {}
        for requirement in self.requirements:
            metric = requirement.metric
            index = metric.class_index
            assert index is not None
            name = index if metric.class_name is None else metric.class_name
            alone = metric_of_label(metric, index, self.labels).of_class(0, name)
            found.setdefault(index, {})[str(requirement)] = replace(requirement, metric=alone)
        return found

    @property
    def of_each(self) -> Guarantee | None:
        """What is asked of each label, so that all of them hold together."""
        if self.guarantee is None:
            return None
        error = (1 - self.guarantee.confidence) / max(1, len(self.by_label))
        return replace(self.guarantee, confidence=1 - error)

    def check_rows(self, y: Tensor) -> None:
        """Raise an error if no scores could guarantee the requirements on these labels ``(n, c)``.

        Raises:
            InfeasibleError: There are too few rows; the message says how many are needed.
            InvalidValueError: A requirement has no exact bound.
        """
        guarantee = self.of_each
        if guarantee is None or self.guarantee is None:
            return
        for label, requirements in self.by_label.items():
            try:
                several, target = list(requirements.values()), y[:, label]
                counted = draw_one_per_group(guarantee.groups, target, several, guarantee.seed)
                check_guarantee(several, target[counted], guarantee.confidence)
            except InfeasibleError as error:
                all_of_them, each = format_percent(self.guarantee.confidence), format_percent(guarantee.confidence)
                shared = f" ({all_of_them} for all {len(self.by_label)} labels is {each} for each)"
                raise InfeasibleError(f"{error}{shared * (len(self.by_label) > 1)}") from None

    def allowed(
        self, label: int, z: Tensor, y: Tensor, weight: Tensor | None, metric: Metric, rule: Rule, times: Tensor | None
    ) -> Allowed:
        """Return which thresholds of a label may be chosen: infinity and its distinct logits, falling.

        Args:
            label: The number of the label.
            z: Its logits ``(n,)``.
            y: Its labels 0 and 1.
            weight: One weight per row, or None.
            metric: The metric.
            rule: "plugin" or "empirical".
            times: How often each row counts in the tests, in a bootstrap; by default once.
        """
        requirements, guarantee = list(self.by_label[label].values()), self.of_each
        if guarantee is not None:
            certified = certify_thresholds(z, y, metric, requirements, guarantee, times)
            return Allowed(certified.allowed, certified.feasible)
        observed = sweep(z, y, weight)
        if rule == "empirical":
            return allowed_thresholds(observed.counts, requirements)
        return allowed_on_both(observed, expected_sweep(z, weight), requirements)


def choose_required_thresholds(
    logits: Tensor,
    y: Tensor,
    weight: Tensor | None,
    metric: Metric,
    average: LabelAverage,
    required: LabelRequirements,
    *,
    rule: Rule,
    times: Tensor | None = None,
) -> tuple[Tensor, dict[int, bool]]:
    """Choose one threshold of calibrated logits per label, under requirements.

    Under "macro" and "weighted" each label has the best of its thresholds that meet its requirements. Under "micro" and
    "samples" the thresholds are those without requirements; those that are not allowed move to the allowed ones with
    the best metric, and by the empirical rule the others as well.

    Args:
        logits: Calibrated logits ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        metric: The metric.
        average: "macro", "micro", "weighted" or "samples".
        required: The requirements.
        rule: "plugin", "empirical" or "auto".
        times: How often each row counts in the tests of a confidence, in a bootstrap; by default once.

    Returns:
        The thresholds ``(c,)``, and for each label with requirements whether some threshold meets them.
    """
    kind, z = check_rule(rule), logits.double()
    if weight is not None and not bool(weight.all()):  # rows of weight 0 are no thresholds
        there = weight > 0
        z, y, weight, times = z[there], y[there], weight[there], None if times is None else times[there]
        guarantee = None if required.guarantee is None else required.guarantee.take(there)
        required = replace(required, guarantee=guarantee)
    thresholds = choose_label_thresholds(z, y, weight, metric, average, rule=kind).clone()
    allowed: dict[int, Tensor] = {}
    feasible: dict[int, bool] = {}
    for label in required.by_label:
        scores, target = z[:, label], y[:, label]
        of_label = metric_of_label(metric, label, required.labels)
        of_rule: Rule = kind if bool(target.any()) else "empirical"
        mask, feasible[label] = required.allowed(label, scores, target, weight, of_label, of_rule, times)
        if average in ("macro", "weighted"):
            judged_by = expected_sweep(scores, weight) if of_rule == "plugin" else sweep(scores, target, weight)
            thresholds[label] = middle_of(scores, best_of_allowed(judged_by, of_label, mask).threshold)
        else:
            allowed[label] = mask
    if average == "macro" or average == "weighted":
        return thresholds, feasible
    w = torch.ones(len(z), dtype=torch.float64) if weight is None else weight.double()
    by_probability = kind == "plugin" and average == "micro"
    t = torch.sigmoid(z) if by_probability else y.double()
    changed = (
        None if kind == "empirical" else [label for label in allowed if not _is_allowed(label, z, thresholds, allowed)]
    )
    return improve_by_label(z, t, w, metric, thresholds, average, allowed, changed), feasible


def _is_allowed(label: int, z: Tensor, thresholds: Tensor, allowed: Mapping[int, Tensor]) -> bool:
    above = z[:, label][z[:, label] >= thresholds[label]]
    return bool(allowed[label][len(set(above.tolist()))])


def judge_label_requirements(
    logits: Tensor,
    y: Tensor,
    weight: Tensor | None,
    metric: Metric,
    required: LabelRequirements,
    thresholds: Tensor,
    feasible: Mapping[int, bool],
    as_shown: Callable[[int, float], float],
) -> tuple[dict[str, RequirementValue], str | None]:
    """Return the result of each requirement at the thresholds, and what is reachable where they cannot be met.

    Args:
        logits: Calibrated logits ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        metric: The metric.
        required: The requirements.
        thresholds: The thresholds.
        feasible: For each label with requirements, whether some threshold meets them.
        as_shown: Returns the threshold of a label on the scale that readers see.
    """
    results: dict[str, RequirementValue] = {}
    messages = []
    for label, requirements in required.by_label.items():
        several, at = list(requirements.values()), float(thresholds[label])
        z, target = logits[:, label].double(), y[:, label]
        judged = judge_requirements(several, sweep(z, target, weight), at)
        for text, requirement in requirements.items():
            result = judged[str(requirement)]
            results[text] = result._replace(met=feasible[label]) if required.guarantee is not None else result
        if feasible[label]:
            continue
        guarantee = required.of_each
        if guarantee is None:
            messages.append(what_is_reachable(several, judged, as_shown(label, at)))
        else:
            of_label = metric_of_label(metric, label, required.labels)
            shown = as_shown(label, at)
            messages.append(what_can_be_promised(z, target, of_label, several, guarantee, at, shown))
    return results, "; ".join(messages) or None
