r"""Thresholds whose requirements hold on new rows with a given probability.

The rows are taken as independent draws of one population, and their scores as those of a model that was fitted on other
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

*Out-of-fold scores* are not those of one model that was fitted on other rows: new rows are scored by the mean of the
folds' models or by a model of all rows, and weights and stopping times were chosen on the same rows. Thresholds are
then certified at half of alpha, by analogy with cross-validated prediction intervals, which may fail at twice their
nominal rate (Barber et al. 2021). If no threshold is certified there, the whole of alpha is used. This is a margin for
what is measured in docs/guarantees.md, not a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.decide.guarantees.bounds import (
    Floats,
    check_enough_rows,
    easiest_end,
    exact_bound,
    format_percent,
    joined,
    p_values,
    rate_of,
)
from metricfit.decide.guarantees.chosen_path import choose_path
from metricfit.decide.guarantees.independent_rows import draw_learning_rows, draw_one_per_group
from metricfit.errors import InvalidValueError
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import sum_by_threshold

#: The share of the rows on which the path of requirements that are not monotone is chosen.
LEARNING_SHARE = 0.2
#: Makes the draw of these rows differ from others with the same seed.
LEARNING = 1_934

Booleans = NDArray[np.bool_]


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

    def take(self, rows: Tensor) -> Guarantee:
        """Return what is asked for of some of the rows."""
        return self if self.groups is None else replace(self, groups=self.groups[rows.numpy()])


class Certified(NamedTuple):
    """The thresholds among which a decision may be chosen.

    Attributes:
        allowed: One boolean per threshold. If none is certified: those with the smallest p-value.
        feasible: Whether some threshold is certified.
        p: The p-value of each requirement at each threshold, ``(requirements, thresholds)``.
        tested: The counts on which the requirements were tested, ``(thresholds, 1)``.
        level: The largest p-value at which a requirement is certified.
    """

    allowed: Tensor
    feasible: bool
    p: Floats
    tested: Counts
    level: float


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


def check_guarantee(requirements: Sequence[Requirement], y: Tensor, confidence: float) -> None:
    """Raise an error if requirements cannot be guaranteed on rows with these labels, whatever the scores are.

    Args:
        requirements: The requirements.
        y: Class numbers 0 and 1.
        confidence: The probability with which all must hold.

    Raises:
        InfeasibleError: There are too few rows.
        InvalidValueError: There is no requirement, or one on a metric without an exact bound.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> check_guarantee([parse_requirement("recall >= 0.9")], torch.tensor([1] * 40 + [0] * 60), 0.95)
    """
    if not requirements:
        raise InvalidValueError("confidence= is about requirements: give subject_to=, or leave confidence out")
    level, share = level_of(requirements, confidence)
    positives = int((y == 1).sum())
    for requirement in requirements:
        check_enough_rows(requirement, positives, len(y) - positives, level, share=share)


def certify_thresholds(
    logits: Tensor,
    y: Tensor,
    metric: Metric,
    requirements: Sequence[Requirement],
    guarantee: Guarantee,
    times: Tensor | None = None,
) -> Certified:
    """Find the thresholds at which all requirements hold on new rows, with the probability that was asked for.

    Args:
        logits: Held-out logits ``(n,)``.
        y: Labels 0 and 1.
        metric: The metric, which decides the direction of a path that is chosen.
        requirements: Requirements on rates; at least one.
        guarantee: The probability.
        times: How often each row counts, in a bootstrap; by default once.

    Returns:
        The certified thresholds, in the order of ``metrics.sweep.sweep``: infinity and the distinct logits, falling. A
        threshold stands for all numbers from it down to the next lower logit.

    Example:
        >>> from metricfit.metrics import f1, parse_requirement
        >>> z, y = torch.linspace(-1, 1, 100), (torch.arange(100) >= 50).long()
        >>> required = [parse_requirement("recall >= 0.9")]
        >>> certified = certify_thresholds(z, y, f1, required, Guarantee(0.95))
        >>> int(certified.allowed.sum()), float(certified.tested.fn[certified.allowed].max())
        (52, 1.0)
    """
    level, share = level_of(requirements, guarantee.confidence)
    if guarantee.groups is not None:
        counted = torch.ones(len(y), dtype=torch.float64) if times is None else times.double()
        times = counted * draw_one_per_group(guarantee.groups, y, requirements, guarantee.seed)
    if guarantee.out_of_fold:
        certified = _certify_at(level / 2, share, logits, y, metric, requirements, guarantee, times)
        if certified.feasible:
            return certified
    return _certify_at(level, share, logits, y, metric, requirements, guarantee, times)


def _certify_at(
    level: float,
    share: float,
    logits: Tensor,
    y: Tensor,
    metric: Metric,
    requirements: Sequence[Requirement],
    guarantee: Guarantee,
    times: Tensor | None,
) -> Certified:
    if share < 1:
        return _along_a_chosen_path(logits, y, metric, requirements, guarantee, level, times)
    swept = sum_by_threshold(logits, y.double(), times)
    p = np.stack([p_values(requirement, swept.counts) for requirement in requirements])
    ends = np.array([easiest_end(requirement) for requirement in requirements])
    on_path = np.ones(p.shape[1], dtype=bool)
    for end in ("lowest", "highest"):  # thresholds fall, so the lowest is the last
        rejected = np.all(p[ends == end] <= level, axis=0)
        on_path &= _until_first_failure(rejected[::-1])[::-1] if end == "lowest" else _until_first_failure(rejected)
    return _certified(on_path, p, swept.counts, level)


def _along_a_chosen_path(
    logits: Tensor,
    y: Tensor,
    metric: Metric,
    requirements: Sequence[Requirement],
    guarantee: Guarantee,
    level: float,
    times: Tensor | None,
) -> Certified:
    """Choose a path on some of the rows, and test the requirements along it on the others."""
    counted = torch.ones(len(y), dtype=torch.float64) if times is None else times.double()
    learning = draw_learning_rows(guarantee.groups, len(y), LEARNING_SHARE, (guarantee.seed, LEARNING))
    tested = sum_by_threshold(logits, y.double(), counted * ~learning).counts
    p = np.stack([p_values(requirement, tested) for requirement in requirements])
    on_path = np.zeros(p.shape[1], dtype=bool)
    if bool(counted[learning].any()) and bool(counted[~learning].any()):
        path = choose_path(logits, y, counted, learning, metric, requirements, level)
        on_path[path[_until_first_failure(np.all(p[:, path] <= level, axis=0))]] = True
    return _certified(on_path, p, tested, level)


def _until_first_failure(passed: Booleans) -> Booleans:
    return np.logical_and.accumulate(passed)


def _certified(on_path: Booleans, p: Floats, tested: Counts, level: float) -> Certified:
    """Collect the result; without a certified threshold, those with the smallest p-value may be chosen."""
    if on_path.any():
        return Certified(torch.from_numpy(on_path), True, p, tested, level)
    largest = p.max(0)
    return Certified(torch.from_numpy(largest <= largest.min() * (1 + 1e-9)), False, p, tested, level)


def what_can_be_promised(
    logits: Tensor,
    y: Tensor,
    metric: Metric,
    requirements: Sequence[Requirement],
    guarantee: Guarantee,
    threshold: float,
    shown: float,
) -> str:
    """Say that requirements cannot be guaranteed, and what holds at the nearest threshold.

    Args:
        logits: Held-out logits ``(n,)``.
        y: Labels 0 and 1.
        metric: The metric.
        requirements: The requirements.
        guarantee: The probability that was asked for.
        threshold: The nearest threshold.
        shown: The same on the scale that readers see.

    Returns:
        A sentence without its full stop.
    """
    certified = certify_thresholds(logits, y, metric, requirements, guarantee)
    index = len(set(logits[logits >= threshold].tolist()))  # thresholds fall from infinity on
    at = certified.tested.map(lambda cell: cell[index])
    bounds = []
    for requirement in requirements:
        rate = rate_of(requirement)
        successes, trials = float(rate.successes(at)), float(rate.trials(at))
        bound = exact_bound(successes, trials, 1 - certified.level, requirement.sense)
        side = "at least" if requirement.sense == ">=" else "at most"
        bounds.append(f"{requirement.metric.name} is {side} {bound:.3g}")
    confidence = format_percent(guarantee.confidence)
    return (
        f"no threshold can be promised to give {joined(requirements)} at {confidence} confidence; at threshold "
        f"{shown:.6g}, which comes nearest, {' and '.join(bounds)} with that confidence"
    )
