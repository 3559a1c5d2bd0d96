"""One threshold per group: the best metric of all rows under requirements in every group, or on gaps between groups.

It is a public function with a search of its own: groups share one metric, and requirements hold in each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from metricfit._extras import explain_missing
from metricfit.core.arrays import Array, Booleans, Floats, Integers, in_kind_of, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.group_labels import number_groups
from metricfit.decide.rules import Goal, Guarantee
from metricfit.errors import InvalidValueError
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import column, one_class, sweep

#: Largest number of values of a gap's metric that the search tries as the lowest value of a group.
LEVELS = 256
#: Largest number of rounds in which the thresholds of all groups are improved one after the other.
ROUNDS = 50


class GroupThresholds(NamedTuple):
    """A threshold for each group, and the metric of all rows under these decisions.

    Attributes:
        thresholds: The threshold of each group, by its label. A row is positive if its score is at least that.
        value: The value of the metric on the rows that the thresholds were chosen on.

    Example:
        >>> chosen = GroupThresholds({"a": 0.3, "b": 0.6}, value=0.9)
        >>> chosen.decide([0.4, 0.4], ["a", "b"])
        array([1, 0])
    """

    thresholds: dict[Any, float]
    value: float

    def decide(self, scores: Array, group: Array) -> Any:
        """Decide rows by the thresholds of their groups.

        Args:
            scores: One score per row.
            group: The group of each row, one of the labels of ``thresholds``.

        Returns:
            1 where the score is at least the threshold, else 0; of the kind of the scores.

        Raises:
            InvalidValueError: The lengths differ, or a group has no threshold.
        """
        values = to_numpy(column(scores, "scores"), np.float64)
        numbers = number_groups(group, len(values), names=tuple(self.thresholds)).numbers
        thresholds = np.array(list(self.thresholds.values()))
        return in_kind_of((values >= thresholds[numbers]).astype(np.int64), scores)


def best_group_thresholds(
    scores: Array,
    target: Array,
    group: Array,
    metric: str | Metric | Formula,
    subject_to: Requirements | None = None,
    *,
    weight: Array | None = None,
    confidence: float | None = None,
    seed: int = 0,
) -> GroupThresholds:
    """Choose one threshold per group, for the best value of a metric over all rows.

    A requirement must hold in every group. A requirement on a gap, such as ``metrics.recall.gap(2) <= 0.05``, limits
    the largest difference between groups. The thresholds are improved one after the other until none can be improved
    alone. This gives the best thresholds for metrics that are sums over rows, such as accuracy and cost; for others,
    such as F1, it may stop at a value that only a joint move improves. With a gap the search is repeated for up to 256
    values of the lowest group. Choose thresholds on rows that the model was not trained on.

    Args:
        scores: One score per row, ``(n,)`` or ``(n, 1)``: logits or probabilities.
        target: One label per row, 0 or 1.
        group: The group of each row, integers or texts.
        metric: A Metric, its name or a function of Counts.
        subject_to: One or several requirements, at most one of them on a gap.
        weight: One weight per row, at least 0; by default all are 1.
        confidence: The probability with which all requirements must hold in all groups on new rows
            (``decide.certified``); None to meet them on these rows alone. Not for gaps and weights, which have no
            exact bounds.
        seed: The seed of the rows that choose the order of tests for a confidence.

    Returns:
        The thresholds by group, and the value of the metric.

    Raises:
        InfeasibleError: No thresholds meet the requirements; the message names the group and what it can reach.
        InvalidValueError: The arrays differ in length or hold values that are not allowed, or a requirement cannot be
            used here, or not with a confidence.

    Example:
        >>> scores, target = [0.9, 0.6, 0.4, 0.1, 0.7, 0.5, 0.3, 0.2], [1, 1, 0, 0, 1, 0, 1, 0]
        >>> best_group_thresholds(scores, target, list("aaaabbbb"), "accuracy", "recall >= 1").thresholds
        {'a': 0.6, 'b': 0.3}
    """
    wanted, requirements = get_metric(metric), as_requirements(subject_to, gaps=True)
    if isinstance(wanted, GroupGap):
        raise InvalidValueError(f"{wanted.name} is 0 if nothing is positive; make it a requirement, and name a metric")
    values, labels = to_numpy(column(scores, "scores")), to_numpy(column(target, "target"))
    weights = None if weight is None else to_numpy(column(weight, "weight"))
    numbers, names = number_groups(group, len(values))
    gap = _find_gap(requirements, len(names))
    floors = [requirement for requirement in requirements if requirement is not gap]
    certify = None
    if confidence is not None:
        certify = _certifier(Goal(wanted, floors), confidence, len(names), gap, weights, seed)
    candidates = []
    for number, name in enumerate(names):
        rows = numbers == number
        part = sweep(values[rows], labels[rows], None if weights is None else weights[rows])
        if certify is None:
            met = _meets(floors, part.counts, name)
        else:
            met = certify(values[rows].astype(np.float64), labels[rows].astype(np.int64), name)
        candidates.append(_Candidates(part.thresholds[met], np.stack([cell[met] for cell in part.counts])))
    chosen = _ascend(wanted, candidates) if gap is None else _within_gap(wanted, gap, candidates, names)
    thresholds = [float(part.thresholds[index]) for part, index in zip(candidates, chosen.indices, strict=True)]
    return GroupThresholds(dict(zip(names, thresholds, strict=True)), chosen.value)


class _Candidates(NamedTuple):
    """The thresholds of a group that meet its requirements, and tp, fp, fn and tn at each, ``(4, m, 1)``."""

    thresholds: Floats
    counts: Floats


class _Chosen(NamedTuple):
    indices: list[int]
    value: float


def _find_gap(requirements: Sequence[Requirement], groups: int) -> Requirement | None:
    gaps = [requirement for requirement in requirements if isinstance(requirement.metric, GroupGap)]
    if not gaps:
        return None
    if len(gaps) > 1 or gaps[0].sense != "<=":
        raise InvalidValueError(f"thresholds of groups take one gap with <=, got {' and '.join(map(str, gaps))}")
    expected = gaps[0].metric.groups  # type: ignore[attr-defined]
    if expected != groups:
        raise InvalidValueError(f"{gaps[0]} is between {expected} groups, but the rows are in {groups}")
    return gaps[0]


def _meets(floors: Sequence[Requirement], counts: Counts, name: Any) -> Booleans:
    """Return which thresholds of a group meet all its requirements."""
    met = np.ones(len(counts.tp), dtype=bool)
    for requirement in floors:
        violation = one_class(requirement, counts)
        met = met & requirement.forgives(violation)
        if not met.any():
            nearest = float(one_class(requirement.metric, counts)[violation.argmin()])
            raise InfeasibleError(
                f"no threshold of group {name!r} gives {' and '.join(map(str, floors))}; its nearest "
                f"{requirement.metric.name} is {nearest:.6g}"
            )
    return met


def _certifier(
    goal: Goal, confidence: float, groups: int, gap: Requirement | None, weight: Floats | None, seed: int
) -> Callable[[Floats, Integers, Any], Booleans]:
    """Return what finds the certified thresholds of a group, from its scores, labels and name."""
    if gap is not None:
        raise InvalidValueError(f"{gap} has no exact bound: require a rate in every group, or leave confidence out")
    if weight is not None:
        raise InvalidValueError("weights void the exact bounds of confidence=: leave weight or confidence out")
    with explain_missing("confidence=", ("scipy",), "metricfit[tabular]"):
        from metricfit.decide.bounds import check_confidence
        from metricfit.decide.certified import certify_group
    goal = replace(goal, guarantee=Guarantee(check_confidence(confidence), seed))
    return lambda scores, target, name: certify_group(scores, target, goal, name, groups=groups)


def _ascend(metric: Metric, candidates: Sequence[_Candidates], allowed: Sequence[Booleans] | None = None) -> _Chosen:
    """Improve one group's threshold after the other; start from each group's own best."""
    masks = [None] * len(candidates) if allowed is None else list(allowed)
    indices = [_best(metric, part.counts, mask)[0] for part, mask in zip(candidates, masks, strict=True)]
    value = math.nan
    for _ in range(ROUNDS):
        before = list(indices)
        for number, (part, mask) in enumerate(zip(candidates, masks, strict=True)):
            chosen = [other.counts[:, index] for other, index in zip(candidates, indices, strict=True)]
            rest = np.stack(chosen).sum(0) - chosen[number]
            indices[number], value = _best(metric, part.counts + rest[:, None], mask, indices[number])
        if indices == before:
            break
    return _Chosen(indices, value)


def _best(metric: Metric, counts: Floats, allowed: Booleans | None, current: int | None = None) -> tuple[int, float]:
    """Return the best allowed threshold, the largest of equal ones, and its value; the current one if none beats it."""
    value = one_class(metric, Counts(*counts))
    better = -value if metric.minimize else value.copy()
    if allowed is not None:
        better[~allowed] = -math.inf
    index = int(better.argmax())
    if current is not None and not better[index] > better[current]:
        index = current
    return index, float(value[index])


def _within_gap(metric: Metric, gap: Requirement, candidates: Sequence[_Candidates], names: Sequence[Any]) -> _Chosen:
    """Search bands of the gap's width that hold a threshold of every group, and return the best of their results."""
    assert isinstance(gap.metric, GroupGap)
    inner = gap.metric.metric
    values = [one_class(inner, Counts(*part.counts)) for part in candidates]
    levels = np.unique(np.concatenate(values))
    if len(levels) > LEVELS:
        levels = levels[np.linspace(0, len(levels) - 1, LEVELS).round().astype(np.int64)]
    best: _Chosen | None = None
    for level in levels:
        bands = [gap.forgives(value - level - gap.bound) & (value >= level) for value in values]
        if not all(band.any() for band in bands):
            continue
        chosen = _ascend(metric, candidates, bands)
        if best is None or (chosen.value < best.value if metric.minimize else chosen.value > best.value):
            best = chosen
    if best is None:
        spans = ", ".join(
            f"{name!r} {float(value.min()):.4g} to {float(value.max()):.4g}"
            for name, value in zip(names, values, strict=True)
        )
        raise InfeasibleError(f"no thresholds give {gap}; {inner.name} of the groups: {spans}")
    return best
