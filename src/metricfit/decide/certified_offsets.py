r"""Offsets of several classes whose requirements hold on new rows with a given probability.

At offsets that were fixed without the rows, the counts of every class are binomial as those of two classes are
(``bounds``). But no order of all offsets is known beforehand, so it is learned (learn-then-test with a split,
Angelopoulos et al. 2021). A part of the rows, drawn at random, calibrates the logits and chooses a path of offsets: the
best ones for the metric among those where every requirement is expected to be met by some number of standard errors,
from many down to none, and last the best ones without requirements. All requirements are then tested along that path on
the other rows, each at the whole of alpha, up to the first offsets that fail. The p-value of offsets is the largest of
those of their requirements (intersection-union test), so that the number of requirements costs nothing by itself. The
offsets before the first failure hold together with the probability that was asked for, and the best of them may be
chosen on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from metricfit.core.arrays import Booleans, Floats, Integers
from metricfit.core.counts import Counts
from metricfit.decide.bounds import (
    bound_in_words,
    check_enough_rows,
    draw_learning_rows,
    draw_one_per_group,
    format_percent,
    joined,
    p_values,
    rate_of,
    rows_needed,
)
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.certified import LEARNING
from metricfit.decide.offsets import offset_problem, search_offsets
from metricfit.decide.required_offsets import PenalisedProblem, search_required
from metricfit.decide.rules import Goal
from metricfit.metrics.requirements import Requirement

#: The share of the rows on which the path is chosen.
LEARNING_SHARE = 0.2
#: By how many standard errors more than the test needs the requirements are met along the path, in its order.
MARGINS = (4.0, 3.0, 2.0, 1.25, 0.75, 0.25, -0.25, -0.75, -1.5)
#: Number of offsets between two that were searched for.
BETWEEN = 10
#: Maximum number of rounds of a search for offsets.
ROUNDS = 4
#: Standard errors are divided by this, so that violations in the search are of the size of rates.
STANDARD_ERRORS = 5.0


class CertifiedOffsets(NamedTuple):
    """The offsets among which a decision may be chosen.

    Attributes:
        offsets: The offsets of the path, ``(m, c)``.
        allowed: One boolean per offsets. If none is certified: those with the smallest p-value.
        feasible: Whether some offsets are certified.
        p: The p-value of each requirement at each of the offsets, ``(requirements, m)``.
        tested: The counts on which the requirements were tested, ``(m, c)``.
        level: The largest p-value at which a requirement is certified.
    """

    offsets: Floats
    allowed: Booleans
    feasible: bool
    p: Floats
    tested: Counts
    level: float


class CertaintyShortfall(NamedTuple):
    """A requirement as a constraint: by how many standard errors less than wanted it is expected to be met.

    Attributes:
        requirement: The requirement.
        wanted: The number of standard errors.
        ratio: The number of rows that test, by that of the rows whose counts are given.
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
        requirement, bound = self.requirement, self.requirement.bound
        rate, cells = rate_of(requirement), counts_of_class(requirement, counts)
        k, m = (self.ratio * part(cells).squeeze(-1) for part in (rate.successes, rate.trials))
        needed = rows_needed(requirement, self.level)
        if needed == 0:
            return np.full_like(k, -1.0)
        margin = (k / np.maximum(m, 1e-9) - bound) * (1 if requirement.sense == ">=" else -1)
        certainty = margin * np.sqrt(m / max(bound * (1 - bound), 1e-9))
        too_few = np.maximum(1 - m / needed, 0)
        return np.asarray((self.wanted - certainty) / STANDARD_ERRORS + too_few)


def counts_of_class(requirement: Requirement, counts: Counts) -> Counts:
    """Return the counts ``(..., 1)`` that a requirement on one class, or on the accuracy of all, is about.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> counts = Counts(tp=[3, 4], fp=[1, 2], fn=[2, 1], tn=[4, 3])
        >>> counts_of_class(parse_requirement("recall[1] >= 0.5"), counts).tp
        array([4.])
    """
    index = requirement.metric.class_index
    if index is not None:
        return Counts(*(cell[..., index : index + 1] for cell in counts))
    right = counts.tp.sum(-1, keepdims=True)
    zero = np.zeros_like(right)
    return Counts(right, counts.n[..., :1] - right, zero, zero)


def check_class_guarantee(requirements: Sequence[Requirement], y: Integers, confidence: float) -> None:
    """Raise an error if requirements on several classes cannot be guaranteed, whatever the scores are.

    Args:
        requirements: Requirements on one class each, or on the accuracy.
        y: Class numbers.
        confidence: The probability with which all must hold.

    Raises:
        InfeasibleError: There are too few rows.
        InvalidValueError: A requirement has no exact bound.
    """
    for requirement in requirements:
        rate_of(requirement)
        index = requirement.metric.class_index
        positives = len(y) if index is None else int((y == index).sum())
        check_enough_rows(requirement, positives, len(y) - positives, 1 - confidence, share=1 - LEARNING_SHARE)


def certify_offsets(logits: Floats, y: Integers, goal: Goal) -> CertifiedOffsets:
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
    offsets = _choose_path(logits[learning], y[learning], goal, rows, level)
    tested = _counts_at(offsets, logits[testing], y[testing])
    p = np.stack([p_values(each, counts_of_class(each, tested)) for each in requirements])
    if guarantee.out_of_fold:
        certified = _certify_at(level / 2, offsets, p, tested)
        if certified.feasible:
            return certified
    return _certify_at(level, offsets, p, tested)


def _certify_at(level: float, offsets: Floats, p: Floats, tested: Counts) -> CertifiedOffsets:
    passed = np.logical_and.accumulate(np.all(p <= level, axis=0))
    if passed.any():
        return CertifiedOffsets(offsets, passed, True, p, tested, level)
    largest = p.max(0)
    return CertifiedOffsets(offsets, largest <= largest.min() * (1 + 1e-9), False, p, tested, level)


def _choose_path(logits: Floats, y: Integers, goal: Goal, testing: int, level: float) -> Floats:
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
    classes = logits.shape[1]
    one_hot = np.eye(classes)
    true = one_hot[y]
    tp, predicted = [], []
    for each in offsets:
        decided = one_hot[(logits + each).argmax(1)]
        tp.append((decided * true).sum(0))
        predicted.append(decided.sum(0))
    of_class, positives, called = np.stack(tp), true.sum(0), np.stack(predicted)
    cells = (of_class, called - of_class, positives - of_class, len(y) - called - positives + of_class)
    return Counts(*cells, exclusive=True)


def what_offsets_can_promise(certified: CertifiedOffsets, goal: Goal, place: int) -> str:
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
