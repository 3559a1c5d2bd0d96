"""Decisions that refer some rows to a person, chosen on held-out rows of two classes.

The region is an interval of scores around the threshold. Rows whose scores are in the region are not decided. Those
above it are positive and those below it negative, as they were without the region, because it contains the threshold.
The metric is that of the decided rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Booleans, Floats, Integers, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.core.threads import one_thread
from metricfit.decide.decision import Referral, ThresholdDecision
from metricfit.decide.held_out import HeldOut
from metricfit.decide.optimism import (
    interval_of_decisions,
    number_of_resamples,
    quantiles,
    resample_decisions,
    without_gain,
)
from metricfit.decide.rules import Goal, Rule, check_rule, choose_threshold, middle_of
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import Sweep, expected_sweep, one_class, sweep


def check_referral(
    metric: Metric, classes: int, max_share: float | None, requirements: Sequence[Requirement], confidence: float | None
) -> None:
    """Refuse what a region cannot be chosen for.

    Args:
        metric: The metric.
        classes: Number of classes; 0 for several labels.
        max_share: The largest share of rows that may be referred, or None.
        requirements: Requirements on the decided rows, without those of the threshold.
        confidence: The confidence of the model's requirements, or None.

    Raises:
        InvalidTypeError: ``max_share`` is no number.
        InvalidValueError: It is not a share, neither it nor requirements are given, or the model is of another kind.
    """
    if classes != 2:
        raise InvalidValueError("rows can be referred by models of two classes")
    if metric.columns:
        raise InvalidValueError(f"rows cannot be referred for {metric.name}: every row has a threshold of its own")
    if confidence is not None:
        raise InvalidValueError(
            "a confidence is for decisions about all rows: rethreshold(confidence=None) first, then refer"
        )
    if max_share is None and not requirements:
        raise InvalidValueError(
            "say how many rows may be referred, max_share=0.05, or what the other decisions must reach, "
            "subject_to='precision >= 0.9'"
        )
    if max_share is not None:
        if isinstance(max_share, bool) or not isinstance(max_share, Real):
            raise InvalidTypeError(f"max_share is a share of the rows such as 0.05, got {quote(max_share)}")
        if not 0 <= max_share < 1:
            hint = f"; did you mean {max_share / 100:g}?" if 1 < max_share < 100 else ""
            raise InvalidValueError(f"max_share is at least 0 and less than 1, got {max_share:g}{hint}")


@one_thread()
def choose_referral(
    rows: HeldOut,
    metric: Metric,
    decision: ThresholdDecision,
    *,
    max_share: float | None,
    subject_to: Sequence[Requirement] = (),
    of_threshold: Sequence[Requirement] = (),
    rule: Rule,
    seed: int,
) -> ThresholdDecision:
    """Add the best region to refer to a decision.

    Args:
        rows: Calibrated logits of held-out rows of two classes.
        metric: The metric.
        decision: The decision without a region.
        max_share: The largest share of rows that may be referred; None for the smallest share that meets the
            requirements.
        subject_to: Requirements on the decided rows.
        of_threshold: The requirements that the threshold was chosen under; they must hold on the decided rows too.
        rule: The decision rule.
        seed: The seed of the bootstrap.

    Returns:
        The decision with the region, and with the value, the intervals and the requirements of the decided rows.
    """
    goal = Goal(metric, rule=check_rule(rule), seed=seed)
    y, w = rows.y, rows.weights
    requirements = list(dict.fromkeys([*of_threshold, *subject_to]))
    search = partial(search_region, metric=metric, requirements=requirements, max_share=max_share, rule=rule)
    scores = rows.logits.squeeze(1)
    region = search(scores, y, rows.weight, threshold=decision.threshold)
    decided = _decide(scores, region)
    is_fixed = goal.is_fixed or bool(requirements)  # resamples without a region decide far from here

    def on_resamples(decide: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        number = number_of_resamples(len(y))
        return resample_decisions(decide, lambda part, w: _value(part, y, w, metric), rows, seed, decided, number)

    def decide_anew(weight: Floats) -> Floats:
        threshold = choose_threshold(scores, y, weight, metric, rule=rule).threshold
        return _decide(scores, search(scores, y, weight, threshold=threshold))

    interval = _interval(on_resamples(lambda weight: decided)[1], decided, rows, goal)
    corrected, corrected_interval = region.value, interval
    if not is_fixed:
        judged, chosen_anew = on_resamples(decide_anew)
        corrected = without_gain(_value(judged, y, w, metric), region.value, metric)
        moved = chosen_anew + corrected - np.mean(chosen_anew)
        corrected_interval = _interval(np.clip(moved, *metric.bounds), judged, rows, goal)
    referral = Referral(region.low, region.high, region.share) if region.share > 0 else None
    return replace(decision, referral=referral).with_evidence(
        value=region.value,
        value_interval=interval,
        corrected_value=corrected,
        corrected_interval=corrected_interval,
        requirements=region.requirements,
        not_reachable=None if region.feasible else _what_is_reachable(region, max_share),
    )


def _decide(scores: Floats, region: Region) -> Floats:
    """Return for each row whether it is negative, positive or referred, ``(n, 3)``."""
    negative, positive = scores < region.low, scores >= region.high
    return np.stack([negative, positive, ~negative & ~positive], axis=1).astype(np.float64)


def _value(decided: Floats, y: Integers, weight: Floats, metric: Metric) -> float:
    """Return the metric of the decided part of each row."""
    positive = weight * (y == 1)
    negative = weight - positive
    cells = (positive @ decided[:, 1], negative @ decided[:, 1], positive @ decided[:, 0], negative @ decided[:, 0])
    return float(one_class(metric, Counts(*(cell.reshape(1, 1) for cell in cells))).item())


def _interval(values: Floats, decided: Floats, rows: HeldOut, goal: Goal) -> tuple[float, float]:
    """Return percentiles of values, or if all are equal, an interval from the numbers of rows."""
    low, high = quantiles(values)
    if not np.isclose(low, high, rtol=0.0):
        return low, high
    weight = rows.weights * (1 - decided[:, 2])
    kept = weight > 0
    groups = None if rows.groups is None else rows.groups[kept]
    kept_rows = HeldOut(rows.logits[kept], rows.y[kept], weight[kept], groups, rows.shares)
    return interval_of_decisions(decided[kept, :2] / decided[kept, :2].sum(1, keepdims=True), kept_rows, goal)


def _what_is_reachable(region: Region, max_share: float | None) -> str:
    """Say that no region meets the requirements, and how near the chosen one comes."""
    at_most = "" if max_share is None else f" of at most {100 * max_share:g} % of the rows"
    wanted = " and ".join(region.requirements)
    there = ", ".join(f"{text.split(' ')[0]} = {result.value:.6g}" for text, result in region.requirements.items())
    return (
        f"no region{at_most} around the threshold gives {wanted} on the other rows; the nearest refers "
        f"{100 * region.share:.3g} % and has {there}"
    )


#: The most cut-offs on each side of the threshold that are tried at a time.
CUTOFFS = 300


class Region(NamedTuple):
    """A region of scores that is referred, and what the decisions about the other rows are worth.

    Attributes:
        low: Rows below are negative.
        high: Rows from here on are positive; those from ``low`` on and below it are referred.
        share: The share of the rows that is referred.
        value: The metric of the other rows, on the labels.
        feasible: Whether these meet the requirements, on the labels.
        requirements: The result of each requirement, by its text.
    """

    low: float
    high: float
    share: float
    value: float
    feasible: bool
    requirements: dict[str, RequirementValue]


class _Pairs(NamedTuple):
    """Pairs of cut-offs, as places in a sweep: rows from ``high`` up are positive, those below ``low`` negative."""

    high: Integers
    low: Integers

    def counts(self, swept: Sweep) -> Counts:
        """Return the counts of the rows that are decided, of each pair."""
        c = swept.counts
        return Counts(c.tp[self.high], c.fp[self.high], c.fn[self.low], c.tn[self.low])


def search_region(
    logits: Array,
    y: Array,
    weight: Array | None,
    metric: Metric,
    threshold: float,
    requirements: Sequence[Requirement] = (),
    *,
    max_share: float | None,
    rule: Rule,
) -> Region:
    """Find the region around a threshold that is best to refer.

    With ``max_share`` it is the region with the best metric among those that refer no more than that and meet the
    requirements; of equally good ones, the smallest. Without it, the smallest region that meets the requirements. The
    plug-in rule takes the metric from the expected counts, and requirements must hold on these too where they can.

    All pairs of cut-offs are tried if there are at most 300 on each side of the threshold. Otherwise every k-th is, and
    then those around the best pair: O(n log n).

    Args:
        logits: Calibrated logits ``(n,)``.
        y: Labels 0 and 1.
        weight: One weight per row, or None.
        metric: A metric of counts.
        threshold: The threshold without a region.
        requirements: Requirements on the decided rows.
        max_share: The largest share of rows that may be referred, or None.
        rule: The decision rule.

    Returns:
        The region. If none meets the requirements, the one with the smallest violation.

    Example:
        >>> from metricfit.metrics import accuracy
        >>> z, y = [3.0, 2.0, 1.0, -1.0, -2.0], [1, 1, 0, 0, 0]
        >>> region = search_region(z, y, None, accuracy, 0.0, max_share=0.2, rule="empirical")
        >>> region.low, region.high, region.share, region.value
        (0.0, 1.5, 0.2, 1.0)
    """
    logits, weight = to_numpy(logits), None if weight is None else to_numpy(weight)
    observed = sweep(logits, to_numpy(y), weight)
    judged = expected_sweep(logits, weight) if check_rule(rule) == "plugin" else observed
    called, thresholds = observed.counts.predicted[:, 0], observed.thresholds
    total = float(observed.counts.n[0, 0])
    largest = (1.0 if max_share is None else max_share) + ROUNDING
    center = int((thresholds >= threshold).sum()) - 1
    first = int((called < called[center] - largest * total).sum())
    last = int((called <= called[center] + largest * total).sum()) - 1

    def best_of(pairs: _Pairs) -> int:
        share = (called[pairs.low] - called[pairs.high]) / total
        possible = (share <= largest) & (share < 1.0)
        met, violation = _judge(requirements, pairs, observed, judged, possible)
        value = one_class(metric, pairs.counts(judged))
        quality = -value if metric.minimize else value
        if not met.any():
            return _first_of(possible, -violation, quality, -share)
        return _first_of(met, quality, -share) if max_share is not None else _first_of(met, -share, quality)

    high, low = _search(best_of, (first, center), (center, last))
    pairs = _Pairs(np.array([high]), np.array([low]))
    counts = pairs.counts(observed)
    results = {}
    for requirement in requirements:
        reached = float(one_class(requirement.metric, counts).item())
        results[str(requirement)] = RequirementValue(reached, bool(requirement.holds(counts).all()), reached)
    scores = logits if weight is None else logits[weight > 0]
    return Region(
        threshold if low == center else middle_of(scores, float(thresholds[low])),
        threshold if high == center else middle_of(scores, float(thresholds[high])),
        float((called[low] - called[high]) / total),
        float(one_class(metric, counts).item()),
        all(result.met for result in results.values()),
        results,
    )


def _search(best_of: Callable[[_Pairs], int], highs: tuple[int, int], lows: tuple[int, int]) -> tuple[int, int]:
    """Return the best pair of places within two ranges: first among every k-th, then among those around the best."""
    tried = [highs, lows]
    while True:
        steps = [max(1, -(-(end - start) // (CUTOFFS - 1))) for start, end in tried]
        high, low = (
            np.unique([*range(start, end + 1, step), start, end])
            for (start, end), step in zip(tried, steps, strict=True)
        )
        pairs = _Pairs(high.repeat(len(low)), np.tile(low, len(high)))
        best = best_of(pairs)
        found = int(pairs.high[best]), int(pairs.low[best])
        if max(steps) == 1:
            return found
        margins = [max(step, CUTOFFS // 4) for step in steps]
        tried = [
            (max(start, place - margin), min(end, place + margin))
            for place, margin, (start, end) in zip(found, margins, (highs, lows), strict=True)
        ]


def _judge(
    requirements: Sequence[Requirement], pairs: _Pairs, observed: Sweep, judged: Sweep, possible: Booleans
) -> tuple[Booleans, Floats]:
    """Return which pairs meet the requirements, on the expected counts too if some do, and the largest violations."""
    met, on_both = possible, possible
    largest = np.full(len(possible), -np.inf)
    for requirement in requirements:
        violation, expected = (one_class(requirement, pairs.counts(swept)) for swept in (observed, judged))
        met = met & requirement.forgives(violation)
        on_both = on_both & requirement.forgives(violation) & requirement.forgives(expected)
        largest = np.maximum(largest, violation)
    return (on_both if on_both.any() else met), largest


def _first_of(allowed: Booleans, *keys: Floats) -> int:
    """Return the place of the allowed entry with the largest keys, of which the first counts most."""
    for key in keys:
        highest = key[allowed].max()
        allowed = allowed & (key >= highest - ROUNDING * abs(highest))
    return int(allowed.argmax())


def check_refer_label(label: Any, classes: NDArray[Any]) -> None:
    """Refuse a label that is a class, or that is neither text nor a whole number.

    Raises:
        InvalidTypeError: It is neither.
        InvalidValueError: It is a class, or would be taken for one.
    """
    if isinstance(label, bool) or not isinstance(label, (str, Integral)):
        raise InvalidTypeError(f"the label of referred rows is text or a whole number, got {quote(label)}")
    if str(label) in {str(name) for name in classes.tolist()}:
        raise InvalidValueError(f"the label of referred rows, {quote(label)}, is one of the classes: give another")


def labels_with_referred(decided: Integers, names: NDArray[Any], label: Any) -> NDArray[Any]:
    """Return the names of decided classes, and the label where a row is referred.

    Args:
        decided: Class numbers, -1 for rows that are referred.
        names: The name of each class number.
        label: The label of referred rows.

    Returns:
        An array of text if all names and the label are text, of integers if all are whole numbers, otherwise of
        objects.

    Example:
        >>> labels_with_referred(np.array([0, -1, 1]), np.array(["no", "yes"]), "refer")
        array(['no', 'refer', 'yes'], dtype='<U5')
        >>> labels_with_referred(np.array([0, -1, 1]), np.array([0, 1]), -9)
        array([ 0, -9,  1])
        >>> labels_with_referred(np.array([0, -1, 1]), np.array([0, 1]), "refer")
        array([0, 'refer', 1], dtype=object)
    """
    if names.dtype.kind == "U" and isinstance(label, str):
        return np.append(names, label)[decided]
    if names.dtype.kind in "iu" and not isinstance(label, str):
        return np.append(names.astype(np.int64), np.int64(label))[decided]
    values = np.empty(len(names) + 1, dtype=object)
    values[:] = [*names.tolist(), label]
    return values[decided]
