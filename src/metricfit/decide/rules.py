"""What decisions are chosen for, and the rules by which the threshold of two classes follows from held-out rows.

- *empirical*: the threshold whose decisions have the best value on the labels.
- *plugin*: the threshold whose expected counts have the best value, if the logits are calibrated.
- *auto*: plugin, which is at least as good on tables (docs/evidence/tables.md), and for several classes better in
  simulations (docs/evidence/decisions.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Booleans, Floats, Integers, to_numpy
from metricfit.decide.decision import to_probability
from metricfit.decide.evidence import Evidence
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.curves import best_of_allowed, best_or_nearest, judge_requirements
from metricfit.metrics.feasibility import Allowed, ChosenThreshold, RequirementValue, allowed_thresholds
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import Sweep, expected_sweep, one_class, sweep

Rule = Literal["auto", "plugin", "empirical"]


def check_rule(rule: Rule) -> Literal["plugin", "empirical"]:
    """Return what "auto" stands for, and the other rules as they are.

    Raises:
        InvalidValueError: There is no such rule.
    """
    if rule not in ("auto", "plugin", "empirical"):
        raise InvalidValueError(f"rule must be 'plugin', 'empirical' or 'auto', got {quote(rule)}")
    return "empirical" if rule == "empirical" else "plugin"


@dataclass(frozen=True)
class Guarantee:
    """What is asked for: requirements that hold on new rows with a probability.

    Attributes:
        confidence: The probability that all requirements hold together.
        seed: The seed that draws the rows on which a path is chosen.
        out_of_fold: Whether the scores are out of fold, so that new rows are scored by other models than these rows.
        groups: The group of each row; requirements are then tested on one row of each (``independent_rows``).
    """

    confidence: float
    seed: int = 0
    out_of_fold: bool = False
    groups: NDArray[Any] | None = field(default=None, compare=False)

    def take(self, rows: Booleans) -> Guarantee:
        """Return what is asked for of some of the rows."""
        return self if self.groups is None else replace(self, groups=self.groups[rows])


#: Shows a threshold of logits of the label with a number.
Shown = Callable[[int, float], float]


def probability_of(label: int, threshold: float) -> float:
    """Return a threshold of logits as a probability."""
    return to_probability(threshold)


@dataclass(frozen=True)
class Goal:
    """What decisions are chosen for.

    Attributes:
        metric: The metric.
        requirements: Requirements, on classes or labels by their numbers (``class_requirements``).
        average: The average over several classes or labels.
        rule: "plugin" or "empirical".
        guarantee: The probability with which the requirements must hold on new rows; None to meet them on the held-out
            rows alone.
        seed: The seed of the bootstrap.
        as_shown: Returns a threshold of logits, of the label with this number or of two classes (0), on the scale that
            readers see; by default a probability.
    """

    metric: Metric
    requirements: Sequence[Requirement] = ()
    average: Any = "macro"
    rule: Literal["plugin", "empirical"] = "plugin"
    guarantee: Guarantee | None = None
    seed: int = 0
    as_shown: Shown = probability_of

    @property
    def is_fixed(self) -> bool:
        """Whether resamples of the rows keep the decision.

        The plug-in rule does not choose it on the labels. Under requirements, resamples that no decision suits would
        decide far from here.
        """
        return self.rule == "plugin" or bool(self.requirements)

    def take(self, rows: Booleans) -> Goal:
        """Return the goal of a decision about some of the rows."""
        return self if self.guarantee is None else replace(self, guarantee=self.guarantee.take(rows))

    def evidence(self, value: float, results: Mapping[str, RequirementValue], not_reachable: str | None) -> Evidence:
        """Return the evidence of a decision without intervals.

        Args:
            value: The value of the metric on the held-out rows.
            results: The result of each requirement.
            not_reachable: What is reachable, if the requirements are not met.
        """
        asked = self.guarantee
        confidence = None if asked is None or not_reachable is not None else asked.confidence
        out_of_fold = asked is not None and asked.out_of_fold
        return Evidence(
            value,
            requirements=results,
            not_reachable=not_reachable,
            confidence=confidence,
            out_of_fold=out_of_fold,
        )


def choose_threshold(
    logits: Array,
    y: Array,
    weight: Array | None,
    metric: Metric,
    requirements: Sequence[Requirement] = (),
    *,
    rule: Rule,
) -> ChosenThreshold:
    """Choose the threshold of calibrated logits for a metric, under requirements if there are any.

    Of all thresholds with the same decisions the middle one is chosen. ``best_threshold`` returns the lowest score of
    the rows decided as positive; if the classes are well separated, it is far above the highest score of the others.

    The plug-in rule takes the best expected value among the thresholds that meet the requirements both on the labels
    and on the expected counts. If there are none, the labels alone count; if they cannot be met on the labels either,
    the threshold comes as near to them as possible. In simulations
    (docs/evidence/decisions.md) a requirement that was met on both held more often on new rows than one that was met
    on the labels alone, at the price of a lower value.

    Args:
        logits: Calibrated logits ``(n,)``.
        y: Labels 0 and 1.
        weight: One weight per row, or None.
        metric: A metric of counts.
        requirements: The requirements.
        rule: "plugin", "empirical" or "auto".

    Returns:
        The threshold; the value and the requirements there, both on the labels.

    Raises:
        InvalidValueError: There is no such rule, or the rows cannot be used.

    Example:
        >>> from metricfit.metrics import f1
        >>> z, y = [2.0, 1.0, -1.0, -4.0], [1, 0, 1, 0]
        >>> [choose_threshold(z, y, None, f1, rule=rule).threshold for rule in ("plugin", "empirical")]
        [0.0, -2.5]
    """
    logits, y, weight = to_numpy(logits), to_numpy(y), None if weight is None else to_numpy(weight)
    observed = sweep(logits, y, weight)
    if check_rule(rule) == "empirical":
        chosen = best_or_nearest(observed, metric, requirements)
        return chosen._replace(threshold=middle_of(logits, chosen.threshold))
    expected = expected_sweep(logits, weight)
    allowed, feasible = allowed_on_both(observed, expected, requirements)
    threshold = best_of_allowed(expected, metric, allowed).threshold
    return ChosenThreshold(
        middle_of(logits, threshold),
        value_at(observed, metric, threshold),
        feasible,
        judge_requirements(requirements, observed, threshold),
    )


def allowed_on_both(observed: Sweep, expected: Sweep, requirements: Sequence[Requirement]) -> Allowed:
    """Find the thresholds that meet all requirements on the labels and on the expected counts, or on the labels alone.

    Args:
        observed: The counts of the labels at each threshold.
        expected: The expected counts at the same thresholds.
        requirements: The requirements.

    Returns:
        The thresholds that may be chosen. If the labels cannot meet the requirements: those that come nearest.
    """
    allowed, feasible = allowed_thresholds(observed.counts, requirements)
    if feasible and requirements:
        as_expected = allowed_thresholds(expected.counts, requirements)
        on_both = allowed & as_expected.thresholds
        allowed = on_both if as_expected.feasible and on_both.any() else allowed
    return Allowed(allowed, feasible)


def value_at(observed: Sweep, metric: Metric, threshold: float) -> float:
    """Return the metric at one of the thresholds of a sweep."""
    return float(one_class(metric, observed.counts)[observed.thresholds == threshold].item())


def middle_of(scores: Floats, threshold: float) -> float:
    """Return the middle between the threshold and the next lower score; 1 beyond the last score if there is none."""
    if math.isinf(threshold):
        return float(scores.max()) + 1.0
    lower = scores[scores < threshold]
    return (threshold + float(lower.max())) / 2 if len(lower) else threshold - 1.0


def thresholds_of_counts(logits: Floats, positives: Integers | Floats) -> Floats:
    """Return thresholds ``(..., c)`` that these numbers of rows reach, halfway between two logits of a column."""
    falling = np.sort(logits, axis=0)[::-1]
    padded = np.concatenate([falling[:1] + 2, falling, falling[-1:] - 2])
    above, columns = positives.astype(np.int64), np.arange(logits.shape[1])
    return np.asarray((padded[above, columns] + padded[above + 1, columns]) / 2)
