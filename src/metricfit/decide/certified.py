r"""Decisions whose requirements hold on new rows with a given probability: thresholds, and offsets of several classes.

The rows are taken as independent draws of one population, and their scores as made by a model that was fitted on other
rows. Every threshold t has the p-value p(t) of the hypothesis "a requirement is violated at t": the largest of the
exact p-values of the requirements (``bounds``). It is valid, because some requirement is violated there, and its
own p-value is not larger (intersection-union test). So several requirements cost nothing beyond the hardest of them.

*Testing in a fixed sequence* (learn-then-test, Angelopoulos et al. 2021). The thresholds of a path that starts at s and
moves in one direction are tested one after the other, each at the level alpha, up to the first that is not rejected.
All before it are certified. If one of them violates a requirement, then the first violating threshold t* of the path
was rejected. The path and t* do not depend on the rows, so that happens with probability at most alpha. The path is the
whole continuum of thresholds: p(t) changes at scores of the rows only, so that a test per distinct score is a test of
them all; where t* itself is not violating, but thresholds just beyond it are, the same follows from their limit. As
all certified thresholds hold together, the best of them may be chosen on the same rows.

*Requirements that are monotone in the threshold* ("recall >= 0.9", "selection_rate <= 0.02") are tested from the end
at which they are easiest. Requirements that are easiest at the same end share one path. If there are requirements for
both ends, each of the two paths has half of alpha, and a threshold must be on both.

*Other requirements* (precision, npv, accuracy) have no such end: at the highest threshold there are no rows to test
with, and at the lowest precision is the share of positives. A fifth of the rows, drawn at random, is therefore used to
choose the path alone: calibrated probabilities, fitted on these rows, say at which threshold the requirements are the
most certain, and in which direction the metric is better. All requirements are then tested along that path on the
other four fifths, at the whole of alpha. In simulations (six settings, 400 to 5,000 rows, precision at least 0.5 to
0.8) this found thresholds of a higher recall than sharing alpha among 8, 20 or 50 thresholds in all six, by 0.04 to
0.11, and a fifth was better than a third or a half of the rows.

*Out-of-fold scores* do not come from one model that was fitted on other rows: new rows are scored by the mean of the
folds' models or by a model of all rows, and weights and stopping times were chosen on the same rows. Thresholds are
then certified at half of alpha, by analogy with cross-validated prediction intervals, which may fail at twice their
nominal rate (Barber et al. 2021). If no threshold is certified there, the whole of alpha is used. This is a margin for
what is measured in docs/evidence/requirements.md, not a proof.

*Offsets of several classes* have no order that is known beforehand, so it is learned (learn-then-test with a split).
The learning rows calibrate the logits and choose a path of offsets: the best ones for the metric among those where
every requirement is expected to be met by some number of standard errors, from many down to none, and last the best
ones without requirements. All requirements are then tested along that path on the other rows, as above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from metricfit.core.arrays import Array, Booleans, Floats, Integers, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_labels
from metricfit.decide.bounds import (
    bound_in_words,
    check_enough_rows,
    draw_learning_rows,
    draw_one_per_group,
    easiest_end,
    format_percent,
    joined,
    p_values,
    rate_of,
    rows_needed,
)
from metricfit.decide.calibration import fit_calibration, sigmoid
from metricfit.decide.offsets import PenalisedProblem, offset_problem, search_offsets, search_required
from metricfit.decide.rules import Goal, Guarantee, choose_threshold, middle_of, value_at
from metricfit.errors import InvalidValueError
from metricfit.metrics.curves import best_of_allowed, judge_requirements
from metricfit.metrics.feasibility import ChosenThreshold, InfeasibleError, RequirementValue, what_is_reachable
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import Sweep, expected_sweep, sum_by_threshold, sweep

#: The share of the rows on which a path is chosen: of requirements that are not monotone, and of offsets.
LEARNING_SHARE = 0.2
#: Makes the draw of these rows differ from others with the same seed.
LEARNING = 1_934


class Certified(NamedTuple):
    """The thresholds or offsets among which a decision may be chosen.

    Attributes:
        allowed: One boolean per threshold or offsets. If none is certified: those with the smallest p-value.
        feasible: Whether one is certified.
        p: The p-value of each requirement at each of them, ``(requirements, m)``.
        tested: The counts on which the requirements were tested, ``(m, 1)`` or ``(m, c)``.
        level: The largest p-value at which a requirement is certified.
        offsets: The offsets of the path, ``(m, c)``, if there are several classes.
    """

    allowed: Booleans
    feasible: bool
    p: Floats
    tested: Counts
    level: float
    offsets: Floats | None = None

    def marked(
        self, results: Mapping[str, RequirementValue], requirements: Sequence[Requirement], place: int
    ) -> dict[str, RequirementValue]:
        """Return the results of requirements at a place, met if they are certified there."""
        met = [self.feasible or bool(p <= self.level) for p in self.p[:, place]]
        return {str(each): results[str(each)]._replace(met=ok) for each, ok in zip(requirements, met, strict=True)}


def certify_at_level(level: float, guarantee: Guarantee, at: Callable[[float], Certified]) -> Certified:
    """Certify at a level; scores out of fold at half of it, if something is certified there."""
    if guarantee.out_of_fold:
        certified = at(level / 2)
        if certified.feasible:
            return certified
    return at(level)


def level_of(requirements: Sequence[Requirement], confidence: float) -> tuple[float, float]:
    """Return the level at which each requirement is tested, and the share of the rows on which it is tested.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> both = [parse_requirement("recall >= 0.9"), parse_requirement("fpr <= 0.1")]
        >>> level, share = level_of(both, 0.9)
        >>> round(level, 6), share
        (0.05, 1.0)
    """
    ends = {easiest_end(requirement) for requirement in requirements}
    if None in ends:
        return 1 - confidence, 1 - LEARNING_SHARE
    return (1 - confidence) / len(ends), 1.0


def check_guarantee(
    requirements: Sequence[Requirement], y: Integers, confidence: float, *, several: bool = False
) -> None:
    """Raise an error if requirements cannot be guaranteed on rows with these labels, whatever the scores are.

    Args:
        requirements: The requirements; of several classes each is on one class or on the accuracy.
        y: Class numbers.
        confidence: The probability with which all must hold.
        several: Whether there are more than two classes.

    Raises:
        InfeasibleError: There are too few rows.
        InvalidValueError: There is no requirement, or one on a metric without an exact bound.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> check_guarantee([parse_requirement("recall >= 0.9")], np.array([1] * 40 + [0] * 60), 0.95)
    """
    if not requirements:
        raise InvalidValueError("confidence= is about requirements: give subject_to=, or leave confidence out")
    level, share = (1 - confidence, 1 - LEARNING_SHARE) if several else level_of(requirements, confidence)
    for requirement in requirements:
        index = requirement.metric.class_index if several else 1
        positives = len(y) if index is None else int((y == index).sum())
        check_enough_rows(requirement, positives, len(y) - positives, level, share=share)


def certify_thresholds(logits: Floats, y: Integers, goal: Goal, times: Floats | None = None) -> Certified:
    """Find the thresholds at which all requirements hold on new rows, with the probability that was asked for.

    Args:
        logits: Held-out logits ``(n,)``.
        y: Labels 0 and 1.
        goal: Requirements on rates, at least one, and the guarantee. Its metric decides the direction of a path that is
            chosen.
        times: How often each row counts, in a bootstrap; by default once.

    Returns:
        The certified thresholds, in the order of ``metrics.sweep.sweep``: infinity and the distinct logits, falling. A
        threshold stands for all numbers from it down to the next lower logit.

    Example:
        >>> from metricfit.metrics import f1, parse_requirement
        >>> z, y = np.linspace(-1, 1, 100), np.arange(100) // 50
        >>> goal = Goal(f1, [parse_requirement("recall >= 0.9")], guarantee=Guarantee(0.95))
        >>> certified = certify_thresholds(z, y, goal)
        >>> int(certified.allowed.sum()), float(certified.tested.fn[certified.allowed].max())
        (52, 1.0)
    """
    guarantee, requirements = goal.guarantee, goal.requirements
    assert guarantee is not None
    level, share = level_of(requirements, guarantee.confidence)
    counted = np.ones(len(y)) if times is None else times
    counted = counted * draw_one_per_group(guarantee.groups, y, requirements, guarantee.seed)
    certify = _in_fixed_order if share == 1 else _along_a_chosen_path
    return certify_at_level(level, guarantee, lambda at: certify(at, logits, y, counted, goal, guarantee))


def _in_fixed_order(
    level: float, logits: Floats, y: Integers, counted: Floats, goal: Goal, guarantee: Guarantee
) -> Certified:
    """Test each requirement from the end at which it is easiest."""
    swept = sum_by_threshold(logits, y.astype(np.float64), counted)
    p = np.stack([p_values(requirement, swept.counts) for requirement in goal.requirements])
    ends = np.array([easiest_end(requirement) for requirement in goal.requirements])
    on_path = np.ones(p.shape[1], dtype=bool)
    for end in ("lowest", "highest"):  # thresholds fall, so the lowest is the last
        rejected = np.all(p[ends == end] <= level, axis=0)
        on_path &= _until_first_failure(rejected[::-1])[::-1] if end == "lowest" else _until_first_failure(rejected)
    return _certified(on_path, p, swept.counts, level)


def _along_a_chosen_path(
    level: float, logits: Floats, y: Integers, counted: Floats, goal: Goal, guarantee: Guarantee
) -> Certified:
    """Choose a path on some of the rows, and test the requirements along it on the others."""
    learning = draw_learning_rows(guarantee.groups, len(y), LEARNING_SHARE, (guarantee.seed, LEARNING))
    tested = sum_by_threshold(logits, y.astype(np.float64), counted * ~learning).counts
    p = np.stack([p_values(requirement, tested) for requirement in goal.requirements])
    on_path = np.zeros(p.shape[1], dtype=bool)
    if counted[learning].any() and counted[~learning].any():
        path = choose_path(logits, y, counted, learning, goal, level)
        on_path[path[_until_first_failure(np.all(p[:, path] <= level, axis=0))]] = True
    return _certified(on_path, p, tested, level)


def _until_first_failure(passed: Booleans) -> Booleans:
    return np.logical_and.accumulate(passed)


def _certified(on_path: Booleans, p: Floats, tested: Counts, level: float, offsets: Floats | None = None) -> Certified:
    """Collect the result; if nothing is certified, what has the smallest p-value may be chosen."""
    largest, feasible = p.max(0), bool(on_path.any())
    allowed = on_path if feasible else largest <= largest.min() * (1 + 1e-9)
    return Certified(allowed, feasible, p, tested, level, offsets)


def certified_until_failure(p: Floats, tested: Counts, level: float, offsets: Floats | None = None) -> Certified:
    """Certify what comes before the first in a fixed order at which a requirement fails.

    Args:
        p: The p-value of each requirement at each place of the order, ``(requirements, m)``.
        tested: The counts on which the requirements were tested.
        level: The level of the tests.
        offsets: The offsets at each place, if there are any.

    Returns:
        What is certified.
    """
    return _certified(_until_first_failure(np.all(p <= level, axis=0)), p, tested, level, offsets)


def what_can_be_promised(logits: Floats, y: Integers, goal: Goal, threshold: float, shown: float) -> str:
    """Say that requirements cannot be guaranteed, and what holds at the nearest threshold.

    Args:
        logits: Held-out logits ``(n,)``.
        y: Labels 0 and 1.
        goal: What was asked for, with a guarantee.
        threshold: The nearest threshold.
        shown: The same on the scale that readers see.

    Returns:
        A sentence without its full stop.
    """
    assert goal.guarantee is not None
    certified = certify_thresholds(logits, y, goal)
    index = len(np.unique(logits[logits >= threshold]))  # thresholds fall from infinity on
    at = certified.tested.map(lambda cell: cell[index])
    bounds = " and ".join(bound_in_words(each, at, certified.level, "is ") for each in goal.requirements)
    return (
        f"no threshold can be promised to give {joined(goal.requirements)} at "
        f"{format_percent(goal.guarantee.confidence)} confidence; at threshold {shown:.6g}, which comes nearest, "
        f"{bounds} with that confidence"
    )


def choose_path(logits: Floats, y: Integers, counted: Floats, learning: Booleans, goal: Goal, level: float) -> Integers:
    """Choose a start and a direction on the learning rows.

    The start is the threshold at which the requirements are expected to be the most significant. From there the path
    moves to the side on which the metric is expected to be best among thresholds that are expected to be certified.

    Args:
        logits: Logits of all rows.
        y: Labels 0 and 1; only the learning rows' labels are used.
        counted: How often each row counts.
        learning: Which rows the path is chosen on.
        goal: The metric and the requirements.
        level: The level at which they will be tested.

    Returns:
        The numbers of the thresholds in the order of the path; none if no threshold can be certified.
    """
    calibration = fit_calibration(logits[learning][:, None], y[learning], counted[learning])
    probability = sigmoid(calibration(logits[:, None])).squeeze(1)
    thresholds, counts = sum_by_threshold(logits, probability, counted * learning)
    ratio = float(counted[~learning].sum() / counted[learning].sum())
    expected = counts.map(lambda cell: cell * ratio)
    certainty = np.min([expected_certainty(requirement, expected, level) for requirement in goal.requirements], axis=0)
    own = np.isin(thresholds, logits[learning & (counted > 0)])
    certainty[~own] = -np.inf  # a path between two learning scores must not depend on the other rows
    start = int(certainty.argmax())
    if certainty[start] == -np.inf:
        return np.empty(0, dtype=np.int64)
    hopeful = certainty >= min(norm.isf(level), certainty[start])
    best = best_of_allowed(Sweep(thresholds, expected), goal.metric, hopeful).threshold
    if best <= float(thresholds[start]):
        return np.arange(start, len(own))
    lower = np.flatnonzero(own[start + 1 :])  # all thresholds above the next lower learning score
    end = start + int(lower[0]) if len(lower) else len(own) - 1
    return np.arange(end, -1, -1)


def expected_certainty(requirement: Requirement, expected: Counts, level: float) -> Floats:
    """Return by how many standard errors a requirement is expected to be met; -inf where there are too few trials."""
    needed, (certainty, trials) = rows_needed(requirement, level), _certainty(requirement, expected)
    return np.where(trials >= needed, certainty, -np.inf) if needed else np.full(len(trials), np.inf)


def _certainty(requirement: Requirement, expected: Counts) -> tuple[Floats, Floats]:
    """Return by how many standard errors expected counts ``(..., 1)`` meet a requirement, and the number of trials."""
    rate, bound = rate_of(requirement), requirement.bound
    k, m = (part(expected).squeeze(-1) for part in (rate.successes, rate.trials))
    margin = (k / np.maximum(m, 1e-9) - bound) * (1 if requirement.sense == ">=" else -1)
    return margin * np.sqrt(m / max(bound * (1 - bound), 1e-9)), m


def choose_certified(
    logits: Array, y: Array, weight: Floats | None, goal: Goal, times: Floats | None = None
) -> ChosenThreshold:
    """Choose the best of the certified thresholds, or if there are none, of those that come nearest.

    Args:
        logits: Calibrated logits ``(n,)``.
        y: Labels 0 and 1.
        weight: One weight per row, or None.
        goal: What the threshold is for, with a guarantee.
        times: How often each row counts in the tests, in a bootstrap; by default once.

    Returns:
        The threshold; the value and the requirements there, both on the labels. Requirements are met if they are
        certified.

    Example:
        >>> from metricfit.metrics import f1, parse_requirement
        >>> z, y = np.linspace(-1, 1, 100), np.arange(100) // 50
        >>> goal = Goal(f1, [parse_requirement("recall >= 0.9")], rule="empirical", guarantee=Guarantee(0.95))
        >>> choose_certified(z, y, None, goal).requirements
        {'recall >= 0.9': RequirementValue(value=1.0, met=True, reachable=1.0)}
    """
    logits, y = to_numpy(logits, np.float64), to_numpy(y, np.int64)
    if weight is not None and not weight.all():  # rows of weight 0 are no thresholds
        there = weight > 0
        logits, y, weight, times = logits[there], y[there], weight[there], None if times is None else times[there]
        goal = goal.take(there)
    observed = sweep(logits, y, weight)
    certified = certify_thresholds(logits, y, goal, times)
    judged_by = observed if goal.rule == "empirical" else expected_sweep(logits, weight)
    threshold = best_of_allowed(judged_by, goal.metric, certified.allowed).threshold
    at = int((observed.thresholds == threshold).argmax())
    judged = judge_requirements(goal.requirements, observed, threshold)
    results = certified.marked(judged, goal.requirements, at)
    value = value_at(observed, goal.metric, threshold)
    return ChosenThreshold(middle_of(logits, threshold), value, certified.feasible, results)


def choose_best(
    scores: Floats, y: Integers, weight: Floats | None, goal: Goal, times: Floats | None = None
) -> ChosenThreshold:
    """Choose the threshold of two classes; with a guarantee, ``times`` says how often each row counts in the tests."""
    if goal.guarantee is not None:
        return choose_certified(scores, y, weight, goal, times)
    return choose_threshold(scores, y, weight, goal.metric, goal.requirements, rule=goal.rule)


def why_not(
    scores: Floats, y: Integers, goal: Goal, label: int, threshold: float, results: Mapping[str, RequirementValue]
) -> str:
    """Say that the requirements of a label, or of two classes (0), cannot be met or promised, and what can."""
    shown = goal.as_shown(label, threshold)
    if goal.guarantee is not None:
        return what_can_be_promised(scores, y, goal, threshold, shown)
    return what_is_reachable(goal.requirements, results, shown)


def certify_group(scores: Floats, target: Integers, goal: Goal, name: Any, *, groups: int) -> Booleans:
    """Find the thresholds of one group at which all requirements hold on new rows.

    Rows of different groups are independent, so that the confidences of the groups multiply: each of k groups is
    certified at the k-th root of the confidence.

    Args:
        scores: The scores of the group's rows.
        target: Their labels, 0 and 1.
        goal: The requirements, and the guarantee that they hold in all groups together.
        name: The name of the group, for messages.
        groups: Number of groups.

    Returns:
        One boolean per threshold: infinity and the distinct scores, falling.

    Raises:
        InfeasibleError: The group has too few rows, or no threshold is certified.

    Example:
        >>> from metricfit.metrics import f1, parse_requirement
        >>> z, y = np.linspace(-1, 1, 100), np.arange(100) // 50
        >>> goal = Goal(f1, [parse_requirement("recall >= 0.9")], guarantee=Guarantee(0.95))
        >>> [int(certify_group(z, y, goal, "a", groups=k).sum()) for k in (1, 2)]
        [52, 51]
    """
    assert goal.guarantee is not None
    of_each = goal.guarantee.confidence ** (1 / groups)
    share = f"{format_percent(goal.guarantee.confidence)} in all {groups} groups is {format_percent(of_each)} in each"
    try:
        check_guarantee(goal.requirements, target, of_each)
    except InfeasibleError as error:
        raise InfeasibleError(f"group {name!r}: {error} ({share})") from None
    certified = certify_thresholds(scores, target, replace(goal, guarantee=replace(goal.guarantee, confidence=of_each)))
    if not certified.feasible:
        raise InfeasibleError(
            f"no threshold of group {name!r} can be promised to give {joined(goal.requirements)} ({share}); lower the "
            "bounds or the confidence"
        )
    return certified.allowed


#: By how many standard errors more than the test needs the requirements are met along the path, in its order.
MARGINS = (4.0, 3.0, 2.0, 1.25, 0.75, 0.25, -0.25, -0.75, -1.5)
#: Number of offsets between two that were searched for.
BETWEEN = 10
#: Maximum number of rounds of a search for offsets.
ROUNDS = 4
#: Standard errors are divided by this, so that violations in the search are of the size of rates.
STANDARD_ERRORS = 5.0


class CertaintyShortfall(NamedTuple):
    """A requirement as a constraint: by how many standard errors less than wanted it is expected to be met.

    Attributes:
        requirement: The requirement.
        wanted: The number of standard errors.
        ratio: The number of rows that test, divided by the number of rows whose counts are given.
        level: The level of the test.
    """

    requirement: Requirement
    wanted: float
    ratio: float
    level: float

    @property
    def needs_matrix(self) -> bool:
        """Rates are of counts."""
        return False

    def __call__(self, counts: Counts) -> Floats:
        """Return the shortfall; more where there are too few rows for the test to be passed."""
        cells = counts_of_class(self.requirement, counts).map(lambda cell: self.ratio * cell)
        needed, (certainty, trials) = rows_needed(self.requirement, self.level), _certainty(self.requirement, cells)
        if needed == 0:
            return np.full_like(trials, -1.0)
        too_few = np.maximum(1 - trials / needed, 0)
        return np.asarray((self.wanted - certainty) / STANDARD_ERRORS + too_few)


def counts_of_class(requirement: Requirement, counts: Counts) -> Counts:
    """Return the counts ``(..., 1)`` that a requirement on one class, or on the accuracy of all, is about.

    Counts of two classes are of the positive one.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> counts = Counts(tp=[3, 4], fp=[1, 2], fn=[2, 1], tn=[4, 3])
        >>> counts_of_class(parse_requirement("recall[1] >= 0.5"), counts).tp
        array([4.])
    """
    index = requirement.metric.class_index
    if counts.classes == 1:
        return counts
    if index is not None:
        return Counts(*(cell[..., index : index + 1] for cell in counts))
    right = counts.tp.sum(-1, keepdims=True)
    zero = np.zeros_like(right)
    return Counts(right, counts.n[..., :1] - right, zero, zero)


def certify_offsets(logits: Floats, y: Integers, goal: Goal) -> Certified:
    """Find offsets at which all requirements hold on new rows, with the probability that was asked for.

    Args:
        logits: Held-out logits ``(n, c)``.
        y: Class numbers.
        goal: The metric that the path leads to, requirements on rates, each of one class or of all, and the guarantee.

    Returns:
        The offsets of the path, and which of them are certified.
    """
    guarantee, requirements = goal.guarantee, goal.requirements
    assert guarantee is not None
    learning = draw_learning_rows(guarantee.groups, len(y), LEARNING_SHARE, (guarantee.seed, LEARNING))
    testing = ~learning & draw_one_per_group(guarantee.groups, y, requirements, guarantee.seed)
    level, rows = 1 - guarantee.confidence, int(testing.sum())
    offsets = _choose_offsets(logits[learning], y[learning], goal, rows, level)
    tested = _counts_at(offsets, logits[testing], y[testing])
    p = np.stack([p_values(each, counts_of_class(each, tested)) for each in requirements])

    return certify_at_level(level, guarantee, lambda at: certified_until_failure(p, tested, at, offsets))


def _choose_offsets(logits: Floats, y: Integers, goal: Goal, testing: int, level: float) -> Floats:
    """Choose the order of offsets on learning rows, ``(m, c)``.

    The logits are calibrated on these rows, so that a calibration on all rows, which the logits had before, plays no
    part in the path.
    """
    calibration = fit_calibration(logits, y, None)
    z = calibration(logits)
    problem = offset_problem(z, y, None, goal.metric, goal.average, rule="plugin")
    free = search_offsets(problem, ROUNDS).offsets
    nodes: list[Floats] = []
    nearest, at = None, free
    for margin in reversed(MARGINS):  # from the fewest on, each from the offsets of the one before
        wanted = margin + float(norm.isf(level))
        constraints = [CertaintyShortfall(each, wanted, testing / len(y), level) for each in goal.requirements]
        found = search_required(PenalisedProblem(problem, problem, constraints), ROUNDS, start=at)
        if nearest is None or found.violation == 0:
            nearest, at = found.offsets, found.offsets
        if found.violation > 0:
            break
        nodes.insert(0, found.offsets)
    assert nearest is not None
    nodes = [*(nodes or [nearest]), free]
    steps = np.arange(BETWEEN) / BETWEEN
    parts = [first + steps[:, None] * (last - first) for first, last in pairwise(nodes)]
    path = np.concatenate([*parts, free[None]])
    return np.asarray(calibration.temperature * (path + calibration.bias))


def _counts_at(offsets: Floats, logits: Floats, y: Integers) -> Counts:
    """Return the counts of every class at each of the offsets, ``(m, c)``."""
    counts = [count_labels((logits + each).argmax(1), y, num_classes=logits.shape[1]) for each in offsets]
    return Counts(*(np.stack(cells) for cells in zip(*counts, strict=True)), exclusive=True)


def what_offsets_can_promise(certified: Certified, goal: Goal, place: int) -> str:
    """Say that requirements cannot be guaranteed, and what holds at the nearest offsets.

    Args:
        certified: The offsets that were tested.
        goal: What was asked for.
        place: The nearest of the offsets.

    Returns:
        A sentence without its full stop.
    """
    assert goal.guarantee is not None
    bounds = []
    for requirement in goal.requirements:
        at = counts_of_class(requirement, certified.tested).map(lambda cell: cell[place])
        bounds.append(bound_in_words(requirement, at, certified.level))
    return (
        f"no offsets of the classes can be promised to give {joined(goal.requirements)} at "
        f"{format_percent(goal.guarantee.confidence)} confidence; the exact bounds at those that come nearest: "
        f"{', '.join(bounds)}"
    )
