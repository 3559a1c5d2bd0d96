r"""The search for the best offsets of several classes under constraints.

The search for offsets (``decide.offsets``) improves one number, and stops where no change of a single offset helps. At
the edge of what is allowed that is nearly everywhere, because offsets that are moved one at a time leave it. So the
search maximises the augmented Lagrangian

.. math:: \mathrm{metric} - \sum_r \frac{\max(0, \lambda_r + \mu g_r)^2 - \lambda_r^2}{2 \mu},

where g is how far a requirement is exceeded. At the right multipliers its best offsets are the best allowed ones.

The search starts from the best offsets without constraints and from some others, and moves multipliers and offsets in
turn: one round of the search for offsets maximises the augmented Lagrangian, and the multiplier
of every constraint follows its violation. Of all offsets on the way, those with the smallest total violation are kept,
and among those that meet the constraints the best for the metric. They are improved on all rows in the end, with a
penalty that no gain of the metric outweighs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Floats, Integers
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.decide.offsets import (
    COARSE_CANDIDATES,
    COARSE_ROWS,
    FINE_CANDIDATES_TIMES_CLASSES,
    OffsetProblem,
    ascend,
    search_offsets,
    starting_offsets,
)
from metricfit.metrics.requirements import Requirement


class Constraint(Protocol):
    """What is meant to be at most 0 at the counts of a decision."""

    @property
    def needs_matrix(self) -> bool:
        """Whether the counts must hold the whole confusion matrix."""

    def __call__(self, counts: Counts) -> Floats:
        """Return by how much counts ``(..., c)`` exceed the constraint, ``(...)``."""


class RequirementExcess(NamedTuple):
    """A requirement as a constraint: how far its metric is beyond the bound."""

    requirement: Requirement

    @property
    def needs_matrix(self) -> bool:
        """Whether the metric is one of the whole confusion matrix."""
        return self.requirement.metric.needs_matrix

    def __call__(self, counts: Counts) -> Floats:
        """Return the excess; 0 where it is no more than rounding."""
        violation = self.requirement.violation(counts)
        violation = violation if violation.ndim < counts.tp.ndim else violation.squeeze(-1)
        return np.where((violation > 0) & self.requirement.forgives(violation), 0.0, violation)


class Penalty(NamedTuple):
    """How violations count.

    Attributes:
        multipliers: The multiplier of every constraint, ``(r,)``.
        factor: The factor mu of the squared violation; 0 for violations times their multipliers alone.
        of_metric: What the metric is multiplied by.
        linear: Whether what is left to a bound counts as well, with the opposite sign, if the factor is 0.
    """

    multipliers: Floats
    factor: float
    of_metric: float = 1.0
    linear: bool = False

    def __call__(self, excess: Floats) -> Floats:
        """Return the penalty of excesses ``(..., r)``."""
        if self.factor == 0:
            return np.asarray((self.multipliers * (excess if self.linear else np.maximum(excess, 0))).sum(-1))
        shifted = np.maximum(self.multipliers + self.factor * excess, 0)
        return np.asarray((shifted**2 - self.multipliers**2).sum(-1) / (2 * self.factor))


class PenalisedProblem(OffsetProblem):
    """Rows to decide, a metric and constraints; the value is the metric less the penalty, and higher is better.

    Args:
        base: The rows and the metric: by their labels, or by their probabilities for the plug-in rule.
        observed: The same rows by their labels, on which the constraints are judged.
        constraints: The constraints.
        on_both: Whether the constraints are judged on the shares of ``base`` too.
        penalty: How violations count; by default not at all.
    """

    def __init__(
        self,
        base: OffsetProblem,
        observed: OffsetProblem,
        constraints: Sequence[Constraint],
        *,
        on_both: bool = False,
        penalty: Penalty | None = None,
    ) -> None:
        super().__init__(base.logits, base.given_shares, base.weight, base.metric, base.average)
        self.base, self.observed, self.constraints, self.on_both = base, observed, constraints, on_both
        number = len(constraints) * (2 if on_both else 1)
        self.penalty = Penalty(np.zeros(number), 0.0) if penalty is None else penalty
        self.has_matrix = any(constraint.needs_matrix for constraint in constraints) or base.metric.needs_matrix
        # The shares of every true class where a matrix is needed; otherwise true positives and all rows.
        self.of_each = self.classes if self.has_matrix else 2
        self.sums, self.sign, self.equal_amounts = 2 * self.of_each, 1.0, self.has_matrix

    def with_penalty(self, penalty: Penalty) -> PenalisedProblem:
        """Return the problem with another penalty."""
        return PenalisedProblem(self.base, self.observed, self.constraints, on_both=self.on_both, penalty=penalty)

    def take(self, rows: Integers) -> PenalisedProblem:
        """Return the problem of these rows."""
        base, observed = self.base.take(rows), self.observed.take(rows)
        return PenalisedProblem(base, observed, self.constraints, on_both=self.on_both, penalty=self.penalty)

    def draw(self, rows: int, seed: int) -> PenalisedProblem:
        """Return the problem itself if it has at most this number of rows, and otherwise a random part of it."""
        drawn = super().draw(rows, seed)
        assert isinstance(drawn, PenalisedProblem)
        return drawn

    def amounts(self, decided: Integers) -> Floats:
        """Return what each row adds to the sums of its decided class: those by its shares, then those by its label."""
        if self.has_matrix:
            return np.concatenate([self.base.shares.T, self.observed.shares.T])
        return np.concatenate([OffsetProblem.amounts(part, decided) for part in (self.base, self.observed)])

    def values(self, sums: Floats) -> Floats:
        """Return the metric, higher is better, less the penalty."""
        metric = self.base.sign * self.base.values(self._of_base(sums))
        return self.penalty.of_metric * metric - self.penalty(self.excesses(sums))

    def excesses(self, sums: Floats) -> Floats:
        """Return by how much each constraint is exceeded, ``(..., r)``, on the labels and then on the shares."""
        parts = [self._counts(self.observed, sums[..., self.of_each :, :])]
        if self.on_both:
            parts.append(self._counts(self.base, sums[..., : self.of_each, :]))
        return np.stack([constraint(counts) for counts in parts for constraint in self.constraints], -1)

    def judge(self, offsets: NDArray[Any]) -> tuple[float, float]:
        """Return the total violation and the metric, signed so that higher is better, of offsets."""
        decided = self.decide(offsets)
        sums = self.total(decided, self.amounts(decided))
        violation = float(np.maximum(self.excesses(sums), 0).sum())
        return violation, self.base.sign * float(self.base.values(self._of_base(sums)))

    def excesses_at(self, offsets: NDArray[Any]) -> Floats:
        """Return by how much each constraint is exceeded at offsets."""
        decided = self.decide(offsets)
        return self.excesses(self.total(decided, self.amounts(decided)))

    def counts_at(self, offsets: NDArray[Any]) -> Counts:
        """Return the counts of the labels at offsets, ``(c,)``, or the confusion matrix if a constraint needs it."""
        decided = self.decide(offsets)
        return self._counts(self.observed, self.total(decided, self.amounts(decided))[self.of_each :])

    def _of_base(self, sums: Floats) -> Floats:
        """Return the sums that the problem without constraints has."""
        sums = sums[..., : self.of_each, :]
        if self.has_matrix and not self.base.metric.needs_matrix:
            return np.stack([np.diagonal(sums, axis1=-2, axis2=-1), sums.sum(-2)], -2)
        return sums

    def _counts(self, part: OffsetProblem, sums: Floats) -> Counts:
        if self.has_matrix:
            return ConfusionMatrix(self._without_rounding(sums))
        return part.counts(sums[..., 0, :], sums[..., 1, :])


def scale_of(problem: OffsetProblem, value: float) -> float:
    """Return what a metric is multiplied by so that its range is about 1, as that of rates is."""
    low, high = problem.metric.bounds
    width = high - low if math.isfinite(high - low) else abs(value)
    return 1.0 / max(width, 1e-9)


#: How often multipliers and offsets are moved in turn, from each start, and the number of starts.
TURNS, STARTS = 12, 3
#: The first and the largest factor of squared violations; it doubles with every turn.
FIRST_FACTOR, LARGEST_FACTOR = 1.0, 64.0
#: The multiplier of violations in the end, which no gain of the metric outweighs.
HEAVY = 1e4


class RequiredOffsets(NamedTuple):
    """Offsets, how far they are from meeting the constraints, and the metric.

    Attributes:
        offsets: The offsets ``(c,)``.
        violation: The sum of all violations; 0 if the constraints are met.
        value: The metric, signed so that higher is better.
    """

    offsets: NDArray[Any]
    violation: float
    value: float

    def is_better_than(self, other: RequiredOffsets) -> bool:
        """Whether it violates the constraints less, or as much and has the better value."""
        if abs(self.violation - other.violation) > ROUNDING:
            return self.violation < other.violation
        return self.value > other.value + ROUNDING * max(1.0, abs(other.value))


def search_required(
    problem: PenalisedProblem, rounds: int, *, start: NDArray[Any] | None = None, seed: int = 0
) -> RequiredOffsets:
    """Find the best offsets that meet all constraints, or those with the smallest total violation.

    Args:
        problem: The rows, the metric and the constraints.
        rounds: Maximum number of rounds through the classes.
        start: Offsets to start from, in place of several starts.
        seed: The seed of the random starts.

    Returns:
        The offsets.
    """
    if start is None:
        free = search_offsets(problem.base, rounds)
        best = _judged(problem, free.offsets)
        if best.violation == 0:
            return best
        starts = [free.offsets.astype(np.float64), *starting_offsets(problem.base, STARTS - 1, seed)]
    else:
        best, starts = _judged(problem, start), [start]
    few, scale = problem.draw(COARSE_ROWS, seed), scale_of(problem.base, best.value)
    for offsets in starts:
        penalty = Penalty(np.zeros_like(problem.penalty.multipliers), FIRST_FACTOR, scale)
        for _ in range(TURNS):
            offsets = ascend(few.with_penalty(penalty), offsets, 1, COARSE_CANDIDATES).offsets
            moved = np.maximum(penalty.multipliers + penalty.factor * few.excesses_at(offsets), 0)
            penalty = penalty._replace(multipliers=moved, factor=min(2 * penalty.factor, LARGEST_FACTOR))
            best = _better(best, _judged(problem, offsets))
    heavy = Penalty(np.full_like(problem.penalty.multipliers, HEAVY), 0.0, scale)
    candidates = max(2, problem.fitting(FINE_CANDIDATES_TIMES_CLASSES))
    improved = ascend(problem.with_penalty(heavy), best.offsets, rounds, candidates).offsets
    return _better(best, _judged(problem, improved))


def _judged(problem: PenalisedProblem, offsets: NDArray[Any]) -> RequiredOffsets:
    return RequiredOffsets(offsets, *problem.judge(offsets))


def _better(best: RequiredOffsets, other: RequiredOffsets) -> RequiredOffsets:
    return other if other.is_better_than(best) else best
