"""Decisions tuned on held-out logits: the best threshold of two classes, the best offsets of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.core.types import ScalarAverage
from metricfit.decide.offsets import best_offsets
from metricfit.metrics.curves import best_or_nearest, sweep
from metricfit.metrics.feasibility import InfeasibleError, RequirementValue, what_is_reachable
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.stats import bootstrap

SCORES_DRAWN = 20_000_000  # by the bootstrap in all, which bounds its time to some seconds


@dataclass(frozen=True)
class Decision:
    """Where decisions are made.

    Attributes:
        threshold: of calibrated logits, for two classes.
        interval: its bootstrap interval; None for several classes.
        offsets: added to calibrated logits before the largest is taken, for several classes.
        value: the metric's on the held-out rows.
        value_interval: its bootstrap interval.
        requirements: the result of each requirement on the held-out rows, by the requirement as text.
        not_reachable: None if the threshold meets the requirements; otherwise what is reachable. The threshold is then
            the one with the smallest violation.
    """

    value: float
    threshold: float | None = None
    interval: tuple[float, float] | None = None
    value_interval: tuple[float, float] | None = None
    offsets: Tensor | None = None
    requirements: Mapping[str, RequirementValue] = field(default_factory=dict)
    not_reachable: str | None = None

    def margins(self, logits: Tensor) -> Tensor:
        """Calibrated logits moved so that decisions fall at 0, or to the largest."""
        if self.offsets is not None:
            return logits + self.offsets
        assert self.threshold is not None
        return logits.squeeze(1) - self.threshold


@dataclass(frozen=True)
class HeldOut:
    """Training rows' calibrated logits by the member that did not train on them; the classes' shares of all rows."""

    logits: Tensor
    y: Tensor
    weight: Tensor | None
    groups: NDArray[Any] | None
    shares: Tensor

    def balanced_as(self, shares: Tensor) -> HeldOut:
        """As they would be if the classes had these shares: other weights, and logits moved by the log of the change.

        A class's rows keep their distribution, only their number changes (prior shift).
        """
        weight = torch.ones(len(self.y), dtype=torch.float64) if self.weight is None else self.weight.double()
        change = shares.double() / self.shares
        return HeldOut(self.logits + shift_of(change), self.y, weight * change[self.y], self.groups, shares)


def held_out_of(logits: Tensor, y: Tensor, weight: Tensor | None, groups: NDArray[Any] | None) -> HeldOut:
    """Those rows that a member held out, whose logits are numbers."""
    each = torch.ones(len(y), dtype=torch.float64) if weight is None else weight.double()
    shares = torch.zeros(int(y.max()) + 1, dtype=torch.float64).index_add_(0, y, each)
    there = ~logits.isnan().any(1)
    kept = None if weight is None else weight[there]
    return HeldOut(
        logits[there], y[there], kept, None if groups is None else groups[there.numpy()], shares / shares.sum()
    )


def shift_of(change: Tensor) -> Tensor:
    """How calibrated logits move when classes become so many times as frequent."""
    moved = change.log()
    return moved[1:] - moved[:1] if len(moved) == 2 else moved


def decided(
    held_out: HeldOut, metric: Metric, *, subject_to: Sequence[Requirement], average: ScalarAverage, seed: int
) -> Decision:
    """The best decisions for a metric, under requirements where there are any.

    If no threshold meets the requirements, the one with the smallest violation is taken, and the decision says so.

    Among thresholds with the same decisions the middle one is taken: best_threshold's own is the score of the lowest
    row called positive, which on rows that are easily told apart lies far above the highest of the others.
    """
    y, weight = held_out.y, held_out.weight
    if held_out.logits.shape[1] > 1:
        found = best_offsets(held_out.logits, y, metric, average=average, weight=weight)
        return Decision(found.value, offsets=found.offsets.double())
    scores, requirements = held_out.logits.squeeze(1), list(subject_to)
    chosen = best_or_nearest(sweep(scores, y, weight), metric, requirements)
    middle = _middle(scores, chosen.threshold)
    resample = partial(
        bootstrap,
        scores.numpy(),
        y.numpy(),
        metric,
        weight=None if weight is None else weight.numpy(),
        groups=held_out.groups,
        resamples=int(np.clip(SCORES_DRAWN // len(y), 100, 1000)),
        seed=seed,
    )
    interval = drawn = None
    if chosen.feasible:
        with suppress(InfeasibleError):  # raised where the rows meet the requirements and none of their resamples does
            drawn = resample(subject_to=requirements)
    if drawn is not None and drawn.threshold_interval is not None:
        low, high = drawn.threshold_interval
        interval = min(low, middle), max(high, middle)  # its ends are scores, the threshold lies between two
    else:
        drawn = resample(threshold=middle)
    # The search is over logits, which stay apart where probabilities round to 0 or 1; people see probabilities.
    reachable = what_is_reachable(requirements, chosen.requirements, probability_of(middle)) if requirements else None
    return Decision(
        chosen.value,
        threshold=middle,
        interval=interval,
        value_interval=(drawn.interval.low, drawn.interval.high),
        requirements=chosen.requirements,
        not_reachable=None if chosen.feasible else reachable,
    )


def probability_of(logit: float) -> float:
    """The probability that a logit stands for."""
    return float(torch.sigmoid(torch.tensor(logit, dtype=torch.float64)))


def _middle(scores: Tensor, threshold: float) -> float:
    """Halfway down to the next score; one beyond the last where there is none."""
    lower = scores[scores < threshold]
    if math.isinf(threshold):
        return float(scores.max()) + 1.0
    return (threshold + float(lower.max())) / 2 if len(lower) else threshold - 1.0
