"""Class maps of images: every pixel has one class, and the mean over the classes of the expected metric is best.

Marking a pixel with class c changes the expected metric of c by ``p * if_true + (1 - p) * if_false``, where the two
prices depend on the pixels that c has. So the classes set prices, every pixel goes to the class that gains most, the
prices change, and so on. New prices are averaged with the last ones, without which whole classes would change places
in every round. The best class map on the way is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from metricfit.decide.units.count_moments import CountMoments, moments_of
from metricfit.decide.units.expected_values import expected_value
from metricfit.metrics.metric import Metric

#: How many times the prices are set.
ROUNDS = 10


def best_class_maps(probabilities: Tensor, metric: Metric, zero_division: float) -> Tensor:
    """Find class maps with a high expected mean of the metric over the classes.

    Args:
        probabilities: Probabilities ``(units, classes, pixels)``, which add up to 1 over the classes.
        metric: The metric.
        zero_division: The value of a class that has no pixels and was not marked.

    Returns:
        Class numbers ``(units, pixels)``.
    """
    market = _Market(probabilities, metric, zero_division)
    maps = _highest(probabilities)
    best, best_value = maps, torch.full(maps.shape[:1], -torch.inf, dtype=torch.float64, device=maps.device)
    prices: Tensor | None = None
    for _ in range(ROUNDS):
        classes = market.classes(maps)
        value = market.sign * classes.values().mean(1)
        better = value > best_value
        best = torch.where(better.unsqueeze(1), maps, best)
        best_value = torch.where(better, value, best_value)
        prices = classes.prices() if prices is None else (prices + classes.prices()) / 2
        maps = market.highest_bidders(prices)
    return best


class _Market:
    """The pixels, which go to the classes that gain most by them."""

    def __init__(self, probabilities: Tensor, metric: Metric, zero_division: float) -> None:
        self.metric, self.sign = metric, -1.0 if metric.minimize else 1.0
        self._probabilities = probabilities
        self._totals = [_sums(moment) for moment in moments_of(probabilities)]
        self._reward = zero_division * _sums((-probabilities).log1p()).exp() if zero_division else self._totals[0] * 0

    def classes(self, maps: Tensor) -> _Classes:
        """Return the classes with the pixels that a class map gives them."""
        own = self._probabilities.gather(1, maps.unsqueeze(1)).squeeze(1).double()
        chosen = [torch.zeros_like(self._totals[0]).scatter_add_(1, maps, moment) for moment in moments_of(own)]
        missed = [total - part for total, part in zip(self._totals, chosen, strict=True)]
        missed[:2] = [moment.clamp(min=0) for moment in missed[:2]]
        sizes = torch.zeros_like(self._totals[0]).scatter_add_(1, maps, torch.ones_like(own))
        reward = self._reward * (sizes == 0)
        return _Classes(self.metric, CountMoments(*chosen), CountMoments(*missed), sizes, maps.shape[1], reward)

    def highest_bidders(self, prices: Tensor) -> Tensor:
        """Return the class of each pixel that gains most at these prices, ``(units, pixels)``."""
        if_true, if_false = (self.sign * prices).to(self._probabilities.dtype).unsqueeze(3)
        return _highest(torch.addcmul(if_false, self._probabilities, if_true - if_false))


@dataclass(frozen=True)
class _Classes:
    """The classes of every unit with the pixels that they have; all tensors are ``(units, classes)``.

    Attributes:
        metric: The metric.
        chosen: The positives among the pixels of a class.
        missed: The positives of a class among all other pixels.
        sizes: How many pixels a class has.
        pixels: How many pixels there are.
        reward: What a class without pixels is worth because it may be absent.
    """

    metric: Metric
    chosen: CountMoments
    missed: CountMoments
    sizes: Tensor
    pixels: int
    reward: Tensor

    def values(self) -> Tensor:
        """Compute the expected metric of every class."""
        return self._value() + self.reward

    def prices(self) -> Tensor:
        """Compute what one pixel more changes, if it is of the class and if it is not: ``(2, units, classes)``."""
        if_true = self._value(hits=1, marked=1, pixels=1) - self._value(misses=1, pixels=1)
        if_false = self._value(marked=1, pixels=1) - self._value(pixels=1) - self.reward
        return torch.stack([if_true, if_false])

    def _value(self, *, hits: int = 0, misses: int = 0, marked: int = 0, pixels: int = 0) -> Tensor:
        """Compute the expected metric after certain hits, certain misses, marked pixels and pixels are added."""
        chosen = replace(self.chosen, mean=self.chosen.mean + hits)
        missed = replace(self.missed, mean=self.missed.mean + misses)
        return expected_value(self.metric, chosen, missed, self.sizes + marked, self.pixels + pixels)


def _highest(values: Tensor) -> Tensor:
    """Return the class with the highest value ``(units, pixels)``; on a CPU this is six times as fast as argmax."""
    return values.max(1).indices


def _sums(values: Tensor) -> Tensor:
    return values.sum(2, dtype=torch.float64)
