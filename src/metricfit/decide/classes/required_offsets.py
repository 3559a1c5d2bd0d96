"""The search for the best offsets of several classes under constraints.

The search starts from the best offsets without constraints and from some others, and moves multipliers and offsets in
turn: one round of the search for offsets maximises the augmented Lagrangian (``penalised_problem``), and the multiplier
of every constraint follows its violation. Of all offsets on the way, those with the smallest total violation are kept,
and among those that meet the constraints the best for the metric. They are improved on all rows in the end, with a
penalty that no gain of the metric outweighs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.numerics import ROUNDING
from metricfit.decide.classes.penalised_problem import PenalisedProblem, Penalty, scale_of
from metricfit.decide.offset_search import (
    COARSE_CANDIDATES,
    COARSE_ROWS,
    FINE_CANDIDATES_TIMES_CLASSES,
    ascend,
    search_offsets,
    starting_offsets,
)

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

    offsets: Tensor
    violation: float
    value: float

    def is_better_than(self, other: RequiredOffsets) -> bool:
        """Whether it violates the constraints less, or as much and has the better value."""
        if abs(self.violation - other.violation) > ROUNDING:
            return self.violation < other.violation
        return self.value > other.value + ROUNDING * max(1.0, abs(other.value))


def search_required(
    problem: PenalisedProblem, rounds: int, *, start: Tensor | None = None, seed: int = 0
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
        starts = [free.offsets.double(), *starting_offsets(problem.base, STARTS - 1, seed)]
    else:
        best, starts = _judged(problem, start), [start]
    few, scale = problem.draw(COARSE_ROWS, seed), scale_of(problem.base, best.value)
    for offsets in starts:
        penalty = Penalty(torch.zeros_like(problem.penalty.multipliers), FIRST_FACTOR, scale)
        for _ in range(TURNS):
            offsets = ascend(few.with_penalty(penalty), offsets, 1, COARSE_CANDIDATES).offsets
            moved = (penalty.multipliers + penalty.factor * few.excesses_at(offsets)).clamp(min=0)
            penalty = penalty._replace(multipliers=moved, factor=min(2 * penalty.factor, LARGEST_FACTOR))
            best = _better(best, _judged(problem, offsets))
    heavy = Penalty(torch.full_like(problem.penalty.multipliers, HEAVY), 0.0, scale)
    candidates = max(2, problem.fitting(FINE_CANDIDATES_TIMES_CLASSES))
    improved = ascend(problem.with_penalty(heavy), best.offsets, rounds, candidates).offsets
    return _better(best, _judged(problem, improved))


def _judged(problem: PenalisedProblem, offsets: Tensor) -> RequiredOffsets:
    return RequiredOffsets(offsets, *problem.judge(offsets))


def _better(best: RequiredOffsets, other: RequiredOffsets) -> RequiredOffsets:
    return other if other.is_better_than(best) else best
