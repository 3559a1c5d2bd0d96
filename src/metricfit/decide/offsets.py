r"""Offsets of several classes: one number per class, added to the logits before the argmax, chosen for a metric.

With the other offsets fixed, row i is assigned to class k as soon as the offset of k has grown by more than
g_i = max_{j != k}(z_ij + o_j) - (z_ik + o_k). Sorting the g_i and summing in that order gives the counts for every
choice of this one offset. Each row carries a share of each class: 1 and 0 for a true label, or the probabilities of a
calibrated model, and the counts are then expected counts. A step costs O(n log n + n c).

Coordinate ascent stops where no change of a single offset helps, which need not be the best place. So it runs from
several starts, coarsely: on at most 8,192 rows, with about 256 candidates per offset and then all candidates next to
the best of these. The plain argmax and the best others are followed, and the best result is improved on all rows.

*Under constraints* that happens nearly everywhere at the edge of what is allowed. So the search maximises the augmented
Lagrangian

.. math:: \mathrm{metric} - \sum_r \frac{\max(0, \lambda_r + \mu g_r)^2 - \lambda_r^2}{2 \mu},

where g is how far a requirement is exceeded. Multipliers and offsets are moved in turn. Of all offsets, those
with the smallest total violation are kept, and among those that meet the constraints the best for the metric. They are
improved on all rows in the end, with a penalty that no gain of the metric outweighs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Floats, Integers, in_kind_of, to_numpy
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.core.types import ScalarAverage
from metricfit.decide.calibration import softmax
from metricfit.decide.rules import Rule
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.requirements import Requirement

#: Maximum number of counts that are held in memory at a time: candidates times classes.
CANDIDATES_TIMES_CLASSES = 2**22
#: Number of candidates per offset in the coarse search; number of candidates times classes in the fine search.
COARSE_CANDIDATES, FINE_CANDIDATES_TIMES_CLASSES = 256, 2**16
#: Maximum number of rows in the coarse search.
COARSE_ROWS = 8192
#: Number of starts: the plain argmax, equal class shares, and random offsets.
STARTS = 6
#: Number of starts that are followed beyond the first round, and for how many rounds.
FOLLOWED_STARTS, FOLLOWED_ROUNDS = 3, 3


class BestOffsets(NamedTuple):
    """The result of ``best_offsets``.

    Attributes:
        offsets: What to add to the logits before the argmax, ``(c,)``, of the kind of the logits.
        value: The value of the metric with these offsets.

    Example:
        >>> logits, target = np.array([[2.0, 1.0, 0.0], [2.0, 0.0, 1.0], [3.0, 0.0, 0.0]]), [1, 2, 0]
        >>> best = best_offsets(logits, target, "f1")
        >>> best.value, (logits + best.offsets).argmax(1)
        (1.0, array([1, 2, 0]))
    """

    offsets: Any
    value: float


class OffsetProblem:
    """Rows to decide, and the metric to maximise.

    Args:
        logits: Logits ``(n, c)``.
        shares: The share of each class in each row, ``(n, c)``, in float64.
        weight: One weight per row.
        metric: The metric.
        average: The average over the classes.
    """

    def __init__(
        self, logits: NDArray[Any], shares: Floats, weight: Floats, metric: Metric, average: ScalarAverage
    ) -> None:
        self.logits, self.weight, self.metric, self.average = logits, weight, metric, average
        self.exact = logits.astype(np.float64, copy=False)
        self.given_shares, self.shares = shares, shares * weight[:, None]
        self.positives, self.n = self.shares.sum(0), weight.sum()
        self.classes = logits.shape[1]
        #: Sums over the rows for each decided class: true positives and rows, or the rows of every true class.
        self.sums = self.classes if metric.needs_matrix else 2
        #: Whether a row adds the same amounts to the sums of any class.
        self.equal_amounts = metric.needs_matrix
        self.sign = -1.0 if metric.minimize else 1.0

    def draw(self, rows: int, seed: int) -> OffsetProblem:
        """Return the problem itself if it has at most this number of rows, and otherwise a random part of it."""
        if len(self.weight) <= rows:
            return self
        return self.take(np.random.default_rng(seed).permutation(len(self.weight))[:rows])

    def take(self, rows: Integers) -> OffsetProblem:
        """Return the problem of these rows."""
        shares = self.given_shares[rows]
        return OffsetProblem(self.logits[rows], shares, self.weight[rows], self.metric, self.average)

    def with_scores(self, scores: Floats) -> OffsetProblem:
        """Return the problem of the same rows with other scores in place of the logits."""
        return OffsetProblem(scores, self.given_shares, self.weight, self.metric, self.average)

    def decide(self, offsets: NDArray[Any]) -> Integers:
        """Return the decisions with these offsets."""
        return (self.logits + offsets).argmax(1)

    def value(self, decided: Integers) -> float:
        """Return the value of the metric for these decisions."""
        return float(self.values(self.total(decided, self.amounts(decided))))

    def amounts(self, decided: Integers) -> Floats:
        """Return what each row adds to the sums of its decided class, ``(sums, n)``."""
        if self.metric.needs_matrix:
            return np.ascontiguousarray(self.shares.T)
        return np.stack([np.take_along_axis(self.shares, decided[:, None], 1)[:, 0], self.weight])

    def total(self, decided: Integers, amounts: Floats) -> Floats:
        """Add up the amounts of the rows that are decided for each class, ``(sums, c)``."""
        return np.stack([np.bincount(decided, amount, minlength=self.classes) for amount in amounts])

    def values(self, sums: Floats) -> Floats:
        """Return the metric of sums ``(..., sums, c)``; differences that are only rounding errors become 0."""
        if self.metric.needs_matrix:
            return self.metric(ConfusionMatrix(self._without_rounding(sums)))
        tp, predicted = sums[..., 0, :], sums[..., 1, :]
        return averaged(self.metric, self.counts(tp, predicted), self.average)

    def counts(self, tp: Floats, predicted: Floats) -> Counts:
        """Return the counts of every class, ``(..., c)``."""
        cells = (tp, predicted - tp, self.positives - tp, self.n - predicted - self.positives + tp)
        return Counts(*map(self._without_rounding, cells), exclusive=True)

    def _without_rounding(self, cells: Floats) -> Floats:
        return np.where(cells > ROUNDING * self.n, cells, 0.0)

    def fitting(self, counts: int) -> int:
        """Return how many candidates have this number of counts, where a candidate has one count per class.

        Candidates with a whole confusion matrix have c / 2 times as many.
        """
        return max(1, 2 * counts // (self.sums * self.classes))


def offset_problem(
    logits: NDArray[Any],
    y: Integers,
    weight: Floats | None,
    metric: Metric,
    average: ScalarAverage,
    *,
    rule: Rule,
) -> OffsetProblem:
    """Return the problem of a rule: each row counts for its own class, or for all by their calibrated probabilities."""
    shares = np.eye(logits.shape[1])[y] if rule == "empirical" else softmax(logits)
    return OffsetProblem(logits, shares, np.ones(len(y)) if weight is None else weight, metric, average)


def search_offsets(problem: OffsetProblem, rounds: int, starts: int = STARTS, seed: int = 0) -> BestOffsets:
    """Find offsets that no change of a single offset improves, from the best of several starts.

    Args:
        problem: The rows and the metric.
        rounds: Maximum number of rounds through the classes.
        starts: Number of starts, at least 1. From 1 start, the plain argmax, there is no coarse search.
        seed: The seed of the random starts.

    Returns:
        The offsets, in at least float32, and the value of ``argmax(logits + offsets)``; never worse than the argmax.
    """
    dtype = np.promote_types(problem.logits.dtype, np.float32)
    zeros = np.zeros(problem.classes, dtype)
    candidates = max(2, problem.fitting(FINE_CANDIDATES_TIMES_CLASSES))
    if starts == 1:
        return ascend(problem, zeros, rounds, candidates)
    best = BestOffsets(zeros, problem.value(problem.decide(zeros)))
    few_rows = problem.draw(COARSE_ROWS, seed)
    plain, *others = (
        ascend(few_rows, start, 1, COARSE_CANDIDATES) for start in starting_offsets(few_rows, starts, seed)
    )
    others.sort(key=lambda found: -problem.sign * found.value)
    for followed in [plain, *others[: FOLLOWED_STARTS - 1]]:
        offsets = ascend(few_rows, followed.offsets, FOLLOWED_ROUNDS, COARSE_CANDIDATES).offsets.astype(dtype)
        value = problem.value(problem.decide(offsets))
        if problem.sign * (value - best.value) > ROUNDING:
            best = BestOffsets(offsets, value)
    return ascend(problem, best.offsets, rounds, candidates)


def starting_offsets(problem: OffsetProblem, starts: int, seed: int) -> list[Floats]:
    """Return offsets to start from: none, those that give the classes equal shares, and random ones."""
    balanced = -np.log(np.maximum(problem.positives / problem.n, 1e-6))
    spread = (problem.exact - problem.exact.mean(1, keepdims=True)).std(0)
    noise = np.random.default_rng(seed).standard_normal((max(0, starts - 2), problem.classes)) * spread
    return [np.zeros_like(balanced), balanced, *(noise + 0.5 * balanced)][:starts]


def improve_offsets(problem: OffsetProblem, offsets: Floats) -> NDArray[Any]:
    """Improve offsets by two quick rounds, as for a resample of the rows on which they were found."""
    return ascend(problem.draw(COARSE_ROWS, 0), offsets, 2, COARSE_CANDIDATES).offsets


def ascend(problem: OffsetProblem, start: NDArray[Any], rounds: int, candidates: int) -> BestOffsets:
    """Improve one offset after the other until a round brings no improvement."""
    offsets = start
    best = problem.value(problem.decide(offsets))
    for _ in range(rounds):
        before = best
        for k in range(problem.classes):
            tried = offsets.copy()
            tried[k] += OffsetLine(problem, offsets, k).best_change(candidates)
            value = problem.value(problem.decide(tried))
            if problem.sign * (value - best) > ROUNDING:
                offsets, best = tried, value
        if best == before:
            break
    return BestOffsets(offsets, best)


class OffsetLine:
    """All changes of the offset of class k: the rows in the order in which they are assigned to it."""

    def __init__(self, problem: OffsetProblem, offsets: NDArray[Any], k: int) -> None:
        self.problem, self.k = problem, k
        z = problem.exact + offsets
        own = z[:, k].copy()
        z[:, k] = -np.inf
        other = z.argmax(1)
        gaps = np.take_along_axis(z, other[:, None], 1)[:, 0] - own
        order = np.argsort(gaps)
        gaps, self.other = gaps[order], other[order]
        self.lost = problem.amounts(other)[:, order]
        self.gained = self.lost if problem.equal_amounts else problem.amounts(np.full_like(other, k))[:, order]
        first_of_ties = np.concatenate([[True], gaps[1:] != gaps[:-1]])
        self.gap_number = first_of_ties.cumsum() - 1  # ties have one number
        self.first_row = np.flatnonzero(first_of_ties)
        self.gaps = gaps[self.first_row]

    def best_change(self, candidates: int) -> float:
        """Return the best change of the offset over about this number of candidates, and all next to the best."""
        sums = self.problem.total(self.other, self.lost)
        distinct = len(self.gaps)
        stride = max(1, distinct // candidates)
        best, number = self._best_of(sums, 0, distinct, stride)
        if stride > 1:
            first = max(0, number - stride)
            sums = sums + self._changes(0, first, first)[0] if first else sums
            refined, nearby = self._best_of(sums, first, min(distinct, number + stride), 1)
            number = nearby if refined > best else number
        if number == 0:
            return float(self.gaps[0]) - 1.0
        if number == distinct:
            return float(self.gaps[-1]) + 1.0
        return float(self.gaps[number - 1] + self.gaps[number]) / 2

    def _best_of(self, sums: Floats, first: int, last: int, stride: int) -> tuple[float, int]:
        """Return the best value, and the number of distinct gaps that are passed there, from ``first`` to ``last``.

        Args:
            sums: The sums where ``first`` gaps are passed.
            first: The lowest number of gaps.
            last: The highest number of gaps.
            stride: Every how many gaps there is a candidate.
        """
        problem = self.problem
        best, number = float(problem.sign * problem.values(sums)), first
        chunk = problem.fitting(CANDIDATES_TIMES_CLASSES) * stride
        for start in range(first, last, chunk):
            end = min(start + chunk, last)
            all_sums = sums + self._changes(start, end, stride).cumsum(0)
            values = problem.sign * problem.values(all_sums)
            highest = int(values.argmax())
            if float(values[highest]) > best:
                best, number = float(values[highest]), min(start + (highest + 1) * stride, end)
            sums = all_sums[-1]
        return best, number

    def _changes(self, start: int, end: int, stride: int) -> Floats:
        """Return how the sums change with every ``stride`` of the gaps, ``(m, sums, c)``."""
        c, k = self.problem.classes, self.k
        rows = slice(int(self.first_row[start]), int(self.first_row[end]) if end < len(self.gaps) else None)
        block = (self.gap_number[rows] - start) // stride
        m = (end - start + stride - 1) // stride
        places = np.concatenate([block * c + self.other[rows], block * c + k])
        amounts = np.concatenate([-self.lost[:, rows], self.gained[:, rows]], 1)
        return np.stack([np.bincount(places, amount, minlength=m * c).reshape(m, c) for amount in amounts], 1)


#: What the sum of the class shares of a row can differ from 1 by because of rounding.
SHARES_ROUNDING = 1e-4


def best_offsets(
    logits: Array,
    target: Array,
    metric: str | Metric | Formula,
    *,
    average: ScalarAverage = "macro",
    weight: Array | None = None,
    rounds: int = 10,
    starts: int = STARTS,
) -> BestOffsets:
    """Find offsets that improve a metric of the multiclass decisions ``argmax(logits + offsets)``.

    The search starts from several offsets and changes one class at a time until a round brings no improvement. The
    value is never worse than with the plain argmax, and no change of a single offset improves it further. Use data
    that the model was not trained on. The search runs on the CPU; tensors on other devices are copied once.

    Args:
        logits: Logits ``(n, c)`` of at least two classes.
        target: Class numbers ``(n,)``; or class shares ``(n, c)`` that sum to 1. With the probabilities of a calibrated
            model as shares, the value is the metric of the expected counts (the plug-in rule).
        metric: A metric, its name or a function of Counts.
        average: "macro", "micro" or "weighted".
        weight: One weight per sample.
        rounds: Maximum number of rounds through the classes.
        starts: Number of starts. The search from 1 start, the plain argmax, is several times as fast as the default.

    Returns:
        The offsets, of the kind of the logits, and the value of the metric with them.

    Raises:
        ValueError: If the average is not one of these, the shapes do not match, or the logits are not finite.

    Example:
        >>> logits = [[2.0, 1.0], [2.0, 1.5], [2.0, 0.0], [2.0, 0.5]]
        >>> best_offsets(logits, [1, 1, 0, 0], "f1").value
        1.0
    """
    if starts < 1:
        raise InvalidValueError(f"the search needs at least 1 start, got starts={starts}")
    z, shares, w = _check_inputs(logits, target, weight, average)
    found = search_offsets(OffsetProblem(z, shares, w, get_metric(metric), average), rounds, starts)
    return BestOffsets(in_kind_of(found.offsets, logits), found.value)


def _check_inputs(
    logits: Array, target: Array, weight: Array | None, average: ScalarAverage
) -> tuple[NDArray[Any], Floats, Floats]:
    if average not in ("macro", "micro", "weighted"):
        raise InvalidValueError(f"average must be 'macro', 'micro' or 'weighted', got {quote(average)}")
    z, y = to_numpy(logits), to_numpy(target)
    if z.ndim != 2 or z.shape[1] < 2 or y.shape not in (z.shape[:1], z.shape) or len(y) == 0:
        raise InvalidValueError(
            f"best_offsets needs logits (n, c) and labels (n,) or class shares (n, c), got {z.shape} and {y.shape}"
        )
    if not np.isfinite(z).all():
        raise InvalidValueError(f"{int((~np.isfinite(z)).sum())} of {z.size} logits are NaN or infinite")
    w = np.ones(len(z)) if weight is None else to_numpy(weight, np.float64)
    if w.shape != z.shape[:1] or not ((w >= 0) & (w < math.inf)).all() or not (w > 0).any():
        raise InvalidValueError("weights must be one finite number of at least 0 per row, and not all 0")
    return z, _as_shares(y, z.shape[1]), w


def _as_shares(target: NDArray[Any], classes: int) -> Floats:
    """Return the share of each class in each row, 1 and 0 for class numbers."""
    if target.ndim == 2:
        if (target < 0).any() or (np.abs(target.sum(1) - 1) > SHARES_ROUNDING).any():
            raise InvalidValueError("class shares (n, c) must be at least 0 and sum to 1 in each row")
        return target.astype(np.float64, copy=False)
    if target.dtype.kind == "f" and (target != target.round()).any():
        raise InvalidValueError("the target must contain class numbers, got fractions")
    if not ((target >= 0) & (target < classes)).all():
        raise InvalidValueError(
            f"target labels must lie in 0..{classes - 1}, got {int(target.min())} to {int(target.max())}"
        )
    return np.eye(classes)[target.astype(np.int64)]


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
    """Return what a metric is multiplied by so that its range is about 1, as for rates."""
    low, high = problem.metric.bounds
    width = high - low if math.isfinite(high - low) else abs(value)
    return 1.0 / max(width, 1e-9)


#: How often multipliers and offsets are moved in turn, from each start, and the number of starts.
TURNS, REQUIRED_STARTS = 12, 3
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
        starts = [free.offsets.astype(np.float64), *starting_offsets(problem.base, REQUIRED_STARTS - 1, seed)]
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
