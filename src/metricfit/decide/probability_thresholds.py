"""The best threshold of binary logits, given as a probability that reproduces the same decisions.

Choosing on probabilities would lose information: in float32 all logits above 17 have the probability 1, and in float64
all above 37. The search therefore runs on the logits, and only the chosen threshold becomes a probability.

One limit remains, because the result is a float64 probability: no such number below 1 separates two logits above about
36.7. Logits above this value are tied, whatever their order. They are decided alike, and the best value can be lower
than the one that ``curves.best_threshold`` finds on the same logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metricfit.core.tensor_numerics import is_positive
from metricfit.metrics.curves import BestThreshold, Requirements, as_requirements, best_of_sweep
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.sweep import Array, Sweep, column, sweep


def best_probability_threshold(
    logits: Array,
    target: Array,
    metric: str | Metric | Formula,
    subject_to: Requirements | None = None,
    *,
    weight: Array | None = None,
) -> BestThreshold:
    """Find the best threshold of logits for a metric, as a probability strictly between 0 and 1.

    Each candidate lies halfway, in logits, between two neighbouring logits, one below the lowest or one above the
    highest, so the decisions do not depend on rounding: ``tensor_numerics.is_positive(logits, threshold)`` makes
    exactly the decisions that the value was computed from. Logits that no float64 probability separates (neighbours
    above 36.7) are always decided alike.

    Args:
        logits: One logit per sample, of any floating type.
        target: Labels 0 and 1.
        metric: A metric, its name or a function of Counts.
        subject_to: Requirements that the threshold must meet.
        weight: One weight per sample.

    Returns:
        The threshold and the metric's value there. Ties are decided as by ``best_threshold``.

    Raises:
        InfeasibleError: No threshold meets the requirements.

    Example:
        >>> best_probability_threshold([30.0, 25.0, 20.0, 18.5], [1, 1, 0, 0], "f1").value
        1.0
    """
    candidates = probability_sweep(logits, target, weight)
    return best_of_sweep(candidates, get_metric(metric), as_requirements(subject_to))


def probability_sweep(logits: Array, target: Array, weight: Array | None = None) -> Sweep:
    """Compute the counts at every probability threshold that makes different decisions.

    Args:
        logits: One logit per sample.
        target: Labels 0 and 1.
        weight: One weight per sample.

    Returns:
        Decreasing thresholds and the counts at each.
    """
    falling, counts = sweep(logits, target, weight)  # infinity first, then the distinct logits
    dtype = column(logits, "logits").dtype  # decisions depend on the precision of the logits
    dtype = dtype if dtype.is_floating_point else falling.dtype
    upper, lower = falling, torch.cat([falling[1:], falling.new_full((1,), -math.inf)])
    middle = (upper + lower) / 2
    middle[0], middle[-1] = falling[1] + 1, falling[-1] - 1
    thresholds = torch.sigmoid(middle)
    separates = _separates(thresholds, lower.to(dtype), upper.to(dtype))
    if not bool(separates.all()):
        thresholds = torch.where(separates, thresholds, _highest_probability(upper))
        separates = separates | _separates(thresholds, lower.to(dtype), upper.to(dtype))
        thresholds, counts = thresholds[separates], counts.map(lambda count: count[separates])
    return Sweep(thresholds, counts)


def _separates(thresholds: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Whether decisions at these thresholds fall between the two logits: ``lower`` is negative, ``upper`` positive."""
    inside = (thresholds > 0) & (thresholds < 1)
    return inside & is_positive(upper, thresholds) & ~(is_positive(lower, thresholds) & (lower > -math.inf))


def _highest_probability(upper: Tensor) -> Tensor:
    """Return the highest probabilities below 1 at which these logits are positive."""
    return torch.sigmoid(upper).clamp(max=1 - 2.0**-53)


def halfway_probabilities(logits: Tensor, thresholds: Tensor) -> Tensor | None:
    """Move thresholds of logits, which are logits themselves, halfway to the next lower logit, as probabilities.

    Args:
        logits: Logits ``(c, n)`` of float32 or float64.
        thresholds: One of the logits of each row, or infinity, ``(c,)``.

    Returns:
        Probabilities ``(c,)`` in float64 that make the same decisions; None if one of them cannot.
    """
    at = thresholds.to(logits.dtype).unsqueeze(1)
    below = torch.where(logits < at, logits, -math.inf).amax(1)
    highest, lowest = logits.amax(1).double(), logits.amin(1).double()
    upper, lower = thresholds.double(), below.double()
    middle = torch.where(lower > -math.inf, (upper + lower) / 2, lowest - 1)
    middle = torch.where(upper < math.inf, middle, highest + 1)
    found = torch.sigmoid(middle)
    return found if bool(_separates(found, below, thresholds.to(logits.dtype)).all()) else None


def smallest_positive_logits(thresholds: Tensor, dtype: torch.dtype) -> Tensor:
    """Find the smallest logits that are positive at thresholds of probabilities, by bisection over all numbers.

    The logarithm of the odds of a threshold would be rounded, and decide a logit differently whose probability is the
    threshold itself, as every threshold of ``curves.best_thresholds`` is.

    Args:
        thresholds: Thresholds of probabilities ``(c,)``.
        dtype: The type of the logits, float32 or float64.

    Returns:
        Thresholds of logits ``(c,)`` of that type, in float64: ``logits >= result`` makes the decisions of
        ``tensor_numerics.is_positive(logits, thresholds)``. They are infinite where all logits are decided alike.

    Example:
        >>> smallest_positive_logits(torch.tensor([0.75, 2.0]), torch.float64).round(decimals=2)
        tensor([1.1000,    inf], dtype=torch.float64)
    """
    bound = thresholds.detach().cpu().double()
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    last = int(torch.tensor(torch.finfo(dtype).max, dtype=dtype).view(bits))
    low, high = torch.full_like(bound, -last, dtype=torch.int64), torch.full_like(bound, last, dtype=torch.int64)

    def number(place: Tensor) -> Tensor:  # floating-point numbers of one sign have the order of their bits
        return place.abs().to(bits).view(dtype) * torch.where(place < 0, -1.0, 1.0).to(dtype)

    always, never = is_positive(number(low), bound), ~is_positive(number(high), bound)
    while bool((high > low + 1).any()):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # their mean, without overflow
        positive = is_positive(number(middle), bound)
        low, high = torch.where(positive, low, middle), torch.where(positive, middle, high)
    found = number(high).double().masked_fill(never, math.inf)
    return found.masked_fill(always, -math.inf)
