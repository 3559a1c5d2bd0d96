"""Decisions that refer some rows to a person, chosen on held-out rows of two or several classes.

The region of two classes is an interval of scores around the threshold. Rows whose scores are in the region are not
decided. Those above it are positive and those below it negative, as they were without the region, because it contains
the threshold. Of several classes, rows are referred whose best class leads the second best by too little. The metric is
measured on the decided rows.

*With a confidence* the requirements hold on the decided ones of new rows. A fifth of the rows chooses the threshold, or
the offsets, and a list of regions: for each share of rows that may be referred, the one where the requirements are
expected to be met by the most standard errors. On the other rows the list is tested, the most certain region first, up
to the first that fails. All before it are certified (``decide.certified``), because the rates of the decided rows are
binomial at regions that were fixed without these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Booleans, Floats, Integers, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.core.threads import one_thread
from metricfit.decide.bounds import (
    bound_in_words,
    draw_learning_rows,
    draw_one_per_group,
    format_percent,
    joined,
    p_values,
)
from metricfit.decide.calibration import fit_calibration, sigmoid, softmax
from metricfit.decide.certified import (
    LEARNING,
    LEARNING_SHARE,
    Certified,
    certified_until_failure,
    certify_at_level,
    counts_of_class,
    expected_certainty,
)
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.decision import OffsetDecision, ThresholdDecision
from metricfit.decide.evidence import Referral
from metricfit.decide.held_out import HeldOut, collect_held_out
from metricfit.decide.optimism import (
    counts_of_matrix,
    interval_of_decisions,
    number_of_resamples,
    quantiles,
    resample_decisions,
    value_of_shares,
    without_gain,
)
from metricfit.decide.rules import Goal, Rule, check_rule, choose_threshold, middle_of
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.average import averaged
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import Sweep, expected_sweep, one_class, sweep

#: The decisions that may refer rows.
Referring = ThresholdDecision | OffsetDecision


def check_referral(metric: Metric, classes: int, max_share: float | None, requirements: Sequence[Requirement]) -> None:
    """Refuse what a region cannot be chosen for.

    Args:
        metric: The metric.
        classes: Number of classes; 0 for several labels.
        max_share: The largest share of rows that may be referred, or None.
        requirements: Requirements on the decided rows, without the threshold's own.

    Raises:
        InvalidTypeError: ``max_share`` is no number.
        InvalidValueError: It is not a share, neither it nor requirements are given, or the model is of another kind.
    """
    if not classes:
        raise InvalidValueError("rows can be referred by models of classes; several labels are decided one by one")
    if metric.columns:
        raise InvalidValueError(f"rows cannot be referred for {metric.name}: every row has a threshold of its own")
    if metric.needs_matrix:
        raise InvalidValueError(
            f"rows cannot be referred for {metric.name}, which is of the whole confusion matrix: use a metric of "
            "counts, such as 'accuracy' or 'f1'"
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
    goal: Goal,
    decision: Referring,
    *,
    max_share: float | None,
    of_threshold: Sequence[Requirement] = (),
) -> Referring:
    """Add the best region to refer to a decision.

    Args:
        rows: Calibrated logits of held-out rows.
        goal: The metric and the requirements of the decided rows. With a guarantee they hold on new rows, and the
            decision is chosen anew on a part of the rows.
        decision: The decision without a region.
        max_share: The largest share of rows that may be referred; None for the smallest share that meets the
            requirements.
        of_threshold: The requirements that the decision was chosen under, if it is chosen anew.

    Returns:
        The decision with the region, and with the value, the intervals and the requirements of the decided rows.
    """
    y, w = rows.y, rows.weights
    if goal.guarantee is not None:
        decision, region, not_reachable = certify_region(rows, goal, max_share, of_threshold)
    else:
        region = _search_rows(rows, goal, decision, rows.weight, max_share)
        not_reachable = None if region.feasible else _what_is_reachable(region, max_share)
    chosen = region.within(decision)
    decided = _decide(chosen, rows.logits)
    is_fixed = goal.is_fixed  # resamples without a region decide far from here

    def value(part: Floats, weight: Floats) -> float:
        return value_of_shares(part[:, :-1], y, weight, goal.metric, goal.average)

    def on_resamples(decide: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        return resample_decisions(decide, value, rows, goal.seed, decided, number_of_resamples(len(y)))

    def decide_anew(weight: Floats) -> Floats:
        anew = decision
        if isinstance(decision, ThresholdDecision):
            found = choose_threshold(rows.logits.squeeze(1), y, weight, goal.metric, rule=goal.rule)
            anew = replace(decision, threshold=found.threshold)
        return _decide(_search_rows(rows, goal, anew, weight, max_share).within(anew), rows.logits)

    interval = _interval(on_resamples(lambda weight: decided)[1], decided, rows, goal)
    corrected, corrected_interval = region.value, interval
    if not is_fixed:
        judged, chosen_anew = on_resamples(decide_anew)
        corrected = without_gain(value(judged, w), region.value, goal.metric)
        moved = chosen_anew + corrected - np.mean(chosen_anew)
        corrected_interval = _interval(np.clip(moved, *goal.metric.bounds), judged, rows, goal)
    found = goal.evidence(region.value, region.requirements, not_reachable)
    return replace(chosen, evidence=found).with_evidence(
        value_interval=interval, corrected_value=corrected, corrected_interval=corrected_interval
    )


def _decide(decision: Referring, logits: Floats) -> Floats:
    """Return for each row the class that is decided, or last whether it is referred, ``(n, c + 1)``."""
    decided = decision.decide_or_refer(logits)
    return np.eye(max(2, logits.shape[1]) + 1)[decided]


def _interval(values: Floats, decided: Floats, rows: HeldOut, goal: Goal) -> tuple[float, float]:
    """Return percentiles of values, or if all are equal, an interval from the numbers of rows."""
    low, high = quantiles(values)
    if not np.isclose(low, high, rtol=0.0):
        return low, high
    weight = rows.weights * (1 - decided[:, -1])
    kept = weight > 0
    groups = None if rows.groups is None else rows.groups[kept]
    kept_rows = HeldOut(rows.logits[kept], rows.y[kept], weight[kept], groups, rows.shares)
    return interval_of_decisions(decided[kept, :-1] / decided[kept, :-1].sum(1, keepdims=True), kept_rows, goal)


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
    """A region that is referred, and what the decisions about the other rows are worth.

    Attributes:
        low: Rows of two classes below are negative; of several classes 0.
        high: Rows of two classes from here on are positive. Of several classes, rows whose best class leads by at least
            this are decided.
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

    def within(self, decision: Referring) -> Referring:
        """Return a decision that refers this region; its threshold moves into it where it is outside."""
        referral = Referral(self.low, self.high, self.share) if self.share > 0 else None
        if isinstance(decision, OffsetDecision):
            return replace(decision, referral=referral)
        threshold = decision.threshold if referral is None else min(max(decision.threshold, self.low), self.high)
        return replace(decision, threshold=threshold, referral=referral)


def _region(low: float, high: float, share: float, counts: Counts, goal: Goal) -> Region:
    """Return a region with the value and the requirements of the counts of the decided rows."""
    results = {}
    for requirement in goal.requirements:
        reached = float(_values(requirement.metric, counts).item())
        results[str(requirement)] = RequirementValue(
            reached, bool(requirement.forgives(requirement.excess(reached))), reached
        )
    value = float(_values(goal.metric, counts, goal.average).item())
    return Region(low, high, share, value, all(result.met for result in results.values()), results)


def _values(metric: Metric, counts: Counts, average: Any = "macro") -> Floats:
    """Return the metric of counts ``(m, 1)`` of two classes or ``(m, c)`` of several."""
    if counts.tp.shape[-1] == 1:
        return np.asarray(one_class(metric, counts))
    return np.asarray(averaged(metric, counts, average)).reshape(-1)


def _best_of(share: Floats, observed: Counts, judged: Counts, goal: Goal, max_share: float | None) -> int:
    """Return the best of some regions: by the counts on the labels, and the ones that the rule judges by."""
    possible = (share <= _largest(max_share)) & (share < 1.0)
    met, violation = _judge(goal.requirements, observed, judged, possible)
    value = _values(goal.metric, judged, goal.average)
    quality = -value if goal.metric.minimize else value
    if not met.any():
        return _first_of(possible, -violation, quality, -share)
    return _first_of(met, quality, -share) if max_share is not None else _first_of(met, -share, quality)


def _largest(max_share: float | None) -> float:
    return (1.0 if max_share is None else max_share) + ROUNDING


def _judge(
    requirements: Sequence[Requirement], observed: Counts, judged: Counts, possible: Booleans
) -> tuple[Booleans, Floats]:
    """Return which regions meet the requirements, on the expected counts too if some do, and the largest violations."""
    met, on_both = possible, possible
    largest = np.full(len(possible), -np.inf)
    for requirement in requirements:
        violation, expected = (requirement.excess(_values(requirement.metric, each)) for each in (observed, judged))
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


def _search_rows(
    rows: HeldOut, goal: Goal, decision: Referring, weight: Floats | None, max_share: float | None
) -> Region:
    if isinstance(decision, OffsetDecision):
        return search_lead(rows, goal, decision, weight, max_share=max_share)
    settings: dict[str, Any] = {"max_share": max_share, "rule": goal.rule}
    return search_region(
        rows.logits.squeeze(1), rows.y, weight, goal.metric, decision.threshold, goal.requirements, **settings
    )


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
    goal = Goal(metric, requirements, rule=check_rule(rule))
    logits, weight = to_numpy(logits), None if weight is None else to_numpy(weight)
    observed = sweep(logits, to_numpy(y), weight)
    judged = expected_sweep(logits, weight) if goal.rule == "plugin" else observed
    called, thresholds = observed.counts.predicted[:, 0], observed.thresholds
    total = float(observed.counts.n[0, 0])
    largest = _largest(max_share)
    center = int((thresholds >= threshold).sum()) - 1
    first = int((called < called[center] - largest * total).sum())
    last = int((called <= called[center] + largest * total).sum()) - 1

    def best_of(pairs: _Pairs) -> int:
        share = (called[pairs.low] - called[pairs.high]) / total
        return _best_of(share, pairs.counts(observed), pairs.counts(judged), goal, max_share)

    high, low = _search(best_of, (first, center), (center, last))
    scores = logits if weight is None else logits[weight > 0]
    return _region(
        threshold if low == center else middle_of(scores, float(thresholds[low])),
        threshold if high == center else middle_of(scores, float(thresholds[high])),
        float((called[low] - called[high]) / total),
        _Pairs(np.array([high]), np.array([low])).counts(observed),
        goal,
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


def search_lead(
    rows: HeldOut, goal: Goal, decision: OffsetDecision, weight: Floats | None, *, max_share: float | None
) -> Region:
    """Find by how much the best of several classes must lead the second best, if other rows are referred.

    At most 300 leads are tried. Otherwise it is as ``search_region``.

    Args:
        rows: Calibrated logits ``(n, c)``.
        goal: The metric and the requirements of the decided rows.
        decision: The decision without a region.
        weight: One weight per row, or None.
        max_share: The largest share of rows that may be referred, or None.

    Returns:
        The region. If none meets the requirements, the one with the smallest violation.

    Example:
        >>> from metricfit.metrics import accuracy
        >>> z = np.array([[2.0, 0, 0], [0, 2, 0], [1, 2, 0], [0, 0, 3]])
        >>> rows = collect_held_out(z, np.array([0, 1, 0, 2]), None, None)
        >>> goal = Goal(accuracy, rule="empirical")
        >>> search_lead(rows, goal, OffsetDecision(np.zeros(3)), None, max_share=0.3).value
        1.0
    """
    w = np.ones(len(rows.y)) if weight is None else weight
    lead, there = decision.lead(rows.logits), np.unique(decision.lead(rows.logits[w > 0]))
    cuts = np.concatenate([[0.0], (there[1:] + there[:-1]) / 2])
    cuts = cuts[np.unique(np.linspace(0, len(cuts) - 1, CUTOFFS).round().astype(int))]
    decided = decision.decide(rows.logits)
    observed = _matrices(np.eye(rows.logits.shape[1])[rows.y], decided, lead, w, cuts)
    judged = _matrices(softmax(rows.logits), decided, lead, w, cuts) if goal.rule == "plugin" else observed
    share = 1 - observed.sum((1, 2)) / w.sum()
    place = _best_of(share, counts_of_matrix(observed), counts_of_matrix(judged), goal, max_share)
    counts = counts_of_matrix(observed[place : place + 1])
    return _region(0.0, float(cuts[place]), float(max(0.0, share[place])), counts, goal)


def _matrices(truth: Floats, decided: Integers, lead: Floats, weight: Floats, cuts: Floats) -> Floats:
    """Return the confusion matrix of the rows that lead by at least each of some rising cuts, ``(m, c, c)``."""
    classes = truth.shape[1]
    cell = (np.searchsorted(cuts, lead, "right") - 1) * classes + decided
    parts = [np.bincount(cell, weight * truth[:, k], len(cuts) * classes) for k in range(classes)]
    matrices = np.stack([part.reshape(len(cuts), classes) for part in parts], axis=1)
    return np.asarray(matrices[::-1].cumsum(0)[::-1])


#: The shares of rows for which a region is chosen that is tested, and the cut-offs on each side that are tried.
SHARES, TRIED = np.linspace(0, 0.98, 50), 60


def certify_region(
    rows: HeldOut, goal: Goal, max_share: float | None, of_threshold: Sequence[Requirement] = ()
) -> tuple[Referring, Region, str | None]:
    """Choose a decision and the best of the regions at which the requirements hold on new rows with a confidence.

    Returns:
        The decision, the region, and what can be promised if no region is certified.
    """
    guarantee, requirements, logits, y = goal.guarantee, goal.requirements, rows.logits, rows.y
    assert guarantee is not None
    learning = draw_learning_rows(guarantee.groups, len(y), LEARNING_SHARE, (guarantee.seed, LEARNING))
    testing = ~learning & draw_one_per_group(guarantee.groups, y, requirements, guarantee.seed)
    part = collect_held_out(logits[learning], y[learning], None, None)
    decision, low, high = _choose_regions(part, goal, int(testing.sum()), max_share, of_threshold)
    regions = _referring(decision, low, high)
    tested = _counts(regions, logits[testing], y[testing])
    p = np.stack([p_values(each, counts_of_class(each, tested)) for each in requirements])
    certified = certify_at_level(
        1 - guarantee.confidence, guarantee, lambda level: certified_until_failure(p, tested, level)
    )
    everyone = [_decide(each, logits) for each in regions]
    truth = np.eye(max(2, logits.shape[1]))[y]
    guess = truth if goal.rule == "empirical" else _probabilities(logits)
    weighted = [rows.weights[:, None] * decided[:, :-1] for decided in everyone]
    observed, judged = (counts_of_matrix(np.stack([of.T @ part for part in weighted])) for of in (truth, guess))
    share = np.array([rows.weights @ decided[:, -1] for decided in everyone]) / rows.weights.sum()
    possible = certified.allowed & (share <= _largest(max_share))
    feasible = certified.feasible and bool(possible.any())
    value = _values(goal.metric, judged, goal.average)
    quality = -value if goal.metric.minimize else value
    keys = (-share, quality) if max_share is None or not feasible else (quality, -share)
    place = _first_of(possible if feasible else certified.allowed, *keys)
    at = observed.map(lambda cell: cell[place : place + 1])
    region = _region(float(low[place]), float(high[place]), float(share[place]), at, goal)
    region = region._replace(requirements=certified.marked(region.requirements, requirements, place))
    not_reachable = None if feasible else _what_can_be_promised(certified, goal, place, region, max_share)
    return decision, region, not_reachable


def _referring(decision: Referring, low: Floats, high: Floats) -> list[Referring]:
    """Return a decision with each of some regions."""
    return [Region(*ends, 1.0, 0.0, True, {}).within(decision) for ends in zip(low, high, strict=True)]


def _probabilities(logits: Floats) -> Floats:
    """Return the probability of each class, ``(n, c)``, of calibrated logits."""
    if logits.shape[1] > 1:
        return softmax(logits)
    p = sigmoid(logits)
    return np.concatenate([1 - p, p], axis=1)


def _counts(decisions: Sequence[Referring], logits: Floats, y: Integers) -> Counts:
    """Return the counts of the rows that each of some decisions does not refer, ``(m, 1)`` or ``(m, c)``."""
    truth = np.eye(max(2, logits.shape[1]))[y]
    return counts_of_matrix(np.stack([truth.T @ _decide(each, logits)[:, :-1] for each in decisions]))


def _choose_regions(
    rows: HeldOut, goal: Goal, testing: int, max_share: float | None, of_threshold: Sequence[Requirement]
) -> tuple[Referring, Floats, Floats]:
    """Choose a decision, and the regions to test in their order, on rows of their own."""
    assert goal.guarantee is not None
    calibration, y = fit_calibration(rows.logits, rows.y, None), rows.y
    part = replace(rows, logits=calibration(rows.logits))
    settings: dict[str, Any] = {"subject_to": of_threshold, "average": goal.average, "rule": goal.rule}
    decision: Any = choose_without_intervals(part, goal.metric, **settings)
    probabilities = _probabilities(part.logits)
    if isinstance(decision, OffsetDecision):
        lead, decided = decision.lead(part.logits), decision.decide(part.logits)
        high = np.concatenate([[0.0], np.unique(np.quantile(lead, SHARES[1:]))])
        low = np.zeros_like(high)
        counts = counts_of_matrix(_matrices(probabilities, decided, lead, np.ones(len(y)), high))
    else:
        z, threshold = np.sort(part.logits.squeeze(1)), decision.threshold
        cuts = [np.unique(np.append(_thinned(z[side]), threshold)) for side in (z < threshold, z > threshold)]
        low, high = (each.reshape(-1) for each in np.meshgrid(*cuts))
        expected = expected_sweep(part.logits.squeeze(1), None)
        counts = _Pairs(*(_places(expected.thresholds, cut) for cut in (high, low))).counts(expected)
    share = 1 - counts.n[:, 0] / len(y)
    possible = (share <= _largest(max_share)) & (share < 1)
    scaled = counts.map(lambda cell: cell * (testing / len(y)))
    level = 1 - goal.guarantee.confidence
    certainty = np.min(
        [expected_certainty(each, counts_of_class(each, scaled), level) for each in goal.requirements], 0
    )
    value = _values(goal.metric, counts, goal.average)
    keys = (-share, -value if goal.metric.minimize else value)
    places = [
        _first_of(possible & (share <= at + ROUNDING), certainty, *(keys if max_share is None else keys[::-1]))
        for at in SHARES
        if (possible & (share <= at + ROUNDING)).any()
    ]
    order = sorted(dict.fromkeys(places), key=lambda place: -certainty[place])
    regions = [each.before(calibration).referral for each in _referring(decision, low[order], high[order])]
    ends = np.array([(region.low, region.high) for region in regions if region is not None]).T
    return decision.before(calibration), ends[0], ends[1]


def _thinned(cuts: Floats) -> Floats:
    return cuts if len(cuts) <= TRIED else np.quantile(cuts, np.linspace(0, 1, TRIED))


def _places(thresholds: Floats, cut: Floats) -> Integers:
    """Return the place in falling thresholds of what is decided at a cut: the rows from it on."""
    return len(thresholds) - np.searchsorted(thresholds[::-1], cut, "left") - 1


def _what_can_be_promised(certified: Certified, goal: Goal, place: int, region: Region, max_share: float | None) -> str:
    """Say that no region is certified, and what holds at the nearest."""
    assert goal.guarantee is not None
    at_most = "" if max_share is None else f" of at most {100 * max_share:g} % of the rows"
    bounds = []
    for requirement in goal.requirements:
        at = counts_of_class(requirement, certified.tested).map(lambda cell: cell[place])
        bounds.append(bound_in_words(requirement, at, certified.level))
    return (
        f"no region{at_most} can be promised to give {joined(goal.requirements)} on the other rows at "
        f"{format_percent(goal.guarantee.confidence)} confidence; the nearest refers {100 * region.share:.3g} %, and "
        f"the exact bounds there: {', '.join(bounds)}"
    )


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
