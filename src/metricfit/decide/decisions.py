"""The decision of a classifier, chosen on held-out logits: the best threshold of two classes or offsets of several."""

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
from metricfit.metrics.curves import best_or_nearest
from metricfit.metrics.feasibility import InfeasibleError, RequirementValue, what_is_reachable
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import sweep
from metricfit.stats import bootstrap

#: Total number of scores that the bootstrap draws, which limits its time to some seconds.
SCORES_DRAWN = 20_000_000


@dataclass(frozen=True)
class Decision:
    """How calibrated logits become decisions, and how good these are on held-out rows.

    Attributes:
        value: The value of the metric on the held-out rows.
        threshold: The threshold of calibrated logits, for two classes.
        interval: The bootstrap interval of the threshold; None for several classes.
        value_interval: The bootstrap interval of the value.
        offsets: For several classes, the offsets that are added to calibrated logits before the argmax.
        requirements: The result of each requirement on the held-out rows; the keys are the requirements as text.
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
        """Shift calibrated logits so that the decision is at 0 (two classes) or the largest wins (several).

        Args:
            logits: Calibrated logits ``(n, 1)`` or ``(n, c)``.

        Returns:
            Shifted logits, ``(n,)`` for two classes and ``(n, c)`` for several.
        """
        if self.offsets is not None:
            return logits + self.offsets
        assert self.threshold is not None
        return logits.squeeze(1) - self.threshold


@dataclass(frozen=True)
class HeldOut:
    """Calibrated logits of training rows, each by the member of the ensemble that did not train on the row.

    Attributes:
        logits: Logits ``(n, 1)`` or ``(n, c)``.
        y: Class numbers ``(n,)``.
        weight: One weight per row, or None.
        groups: The group of each row, or None; the bootstrap draws whole groups.
        shares: The share of each class in all training rows.
    """

    logits: Tensor
    y: Tensor
    weight: Tensor | None
    groups: NDArray[Any] | None
    shares: Tensor

    def with_class_shares(self, shares: Tensor) -> HeldOut:
        """Return the rows as they would be if the classes had other shares (prior shift).

        The distribution of the rows within each class stays the same. The weights change by the ratio of the shares,
        and the logits by its logarithm.

        Args:
            shares: The new share of each class.

        Returns:
            Rows with new weights and logits.
        """
        weight = torch.ones(len(self.y), dtype=torch.float64) if self.weight is None else self.weight.double()
        change = shares.double() / self.shares
        return HeldOut(self.logits + logit_shift(change), self.y, weight * change[self.y], self.groups, shares)


def collect_held_out(logits: Tensor, y: Tensor, weight: Tensor | None, groups: NDArray[Any] | None) -> HeldOut:
    """Collect the rows that were held out by some member of an ensemble.

    Args:
        logits: Logits of all training rows, NaN for rows that no member held out.
        y: Class numbers.
        weight: One weight per row, or None.
        groups: The group of each row, or None.

    Returns:
        The rows whose logits are not NaN, and the class shares of all rows.
    """
    all_weights = torch.ones(len(y), dtype=torch.float64) if weight is None else weight.double()
    shares = torch.zeros(int(y.max()) + 1, dtype=torch.float64).index_add_(0, y, all_weights)
    held_out = ~logits.isnan().any(1)
    return HeldOut(
        logits[held_out],
        y[held_out],
        None if weight is None else weight[held_out],
        None if groups is None else groups[held_out.numpy()],
        shares / shares.sum(),
    )


def logit_shift(change: Tensor) -> Tensor:
    """Return how calibrated logits shift if the share of each class is multiplied by ``change``."""
    shift = change.log()
    return shift[1:] - shift[:1] if len(shift) == 2 else shift


def choose_decision(
    held_out: HeldOut, metric: Metric, *, subject_to: Sequence[Requirement], average: ScalarAverage, seed: int
) -> Decision:
    """Choose the decision with the best value of a metric on held-out rows, under requirements if there are any.

    If no threshold meets the requirements, the one with the smallest violation is chosen, and the decision says so.

    Of all thresholds with the same decisions the middle one is chosen. ``best_threshold`` returns the lowest score of
    the rows decided as positive; if the classes are well separated, it is far above the highest score of the others.

    Args:
        held_out: Calibrated logits of held-out rows.
        metric: The metric.
        subject_to: Requirements, for two classes.
        average: The average over several classes.
        seed: The seed of the bootstrap.

    Returns:
        The decision.
    """
    y, weight = held_out.y, held_out.weight
    if held_out.logits.shape[1] > 1:
        best = best_offsets(held_out.logits, y, metric, average=average, weight=weight)
        return Decision(best.value, offsets=best.offsets.double())
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
        with suppress(InfeasibleError):  # the rows meet the requirements, but none of the resamples does
            drawn = resample(subject_to=requirements)
    if drawn is not None and drawn.threshold_interval is not None:
        low, high = drawn.threshold_interval
        interval = min(low, middle), max(high, middle)  # the ends are scores, but the threshold lies between two scores
    else:
        drawn = resample(threshold=middle)
    # The search uses logits, because probabilities round to 0 or 1; messages show probabilities.
    reachable = what_is_reachable(requirements, chosen.requirements, to_probability(middle)) if requirements else None
    return Decision(
        chosen.value,
        threshold=middle,
        interval=interval,
        value_interval=(drawn.interval.low, drawn.interval.high),
        requirements=chosen.requirements,
        not_reachable=None if chosen.feasible else reachable,
    )


def to_probability(logit: float) -> float:
    """Convert a logit to a probability."""
    return float(torch.sigmoid(torch.tensor(logit, dtype=torch.float64)))


def _middle(scores: Tensor, threshold: float) -> float:
    """Return the middle between the threshold and the next lower score; 1 beyond the last score if there is none."""
    lower = scores[scores < threshold]
    if math.isinf(threshold):
        return float(scores.max()) + 1.0
    return (threshold + float(lower.max())) / 2 if len(lower) else threshold - 1.0
