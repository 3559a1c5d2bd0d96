"""Class maps of images: every pixel has one class, and the mean over the classes of the expected metric is best.

Marking a pixel with class c changes the expected metric of c by ``p * if_true + (1 - p) * if_false``, where the two
prices depend on the pixels that c has. So the classes set prices, every pixel goes to the class that gains most, the
prices change, and so on. New prices are averaged with the last ones, without which whole classes would change places
in every round. The best class map on the way is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.decide.units.count_moments import CountMoments, moments_of
from metricfit.decide.units.expected_values import expected_value
from metricfit.metrics.metric import Metric

#: How many times the prices are set.
ROUNDS = 10
#: Number of sums per class to which neighbouring pixels are added in turn; threads of a GPU would wait at a single one.
LANES = 32
#: Hits, misses, marked pixels and pixels that are added to a class: nothing, a hit, a miss, a false alarm, and a pixel
#: of another class that is not marked. They are evaluated together, because a GPU waits for launches.
VARIANTS = ((0, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 1, 0, 1, 0), (0, 1, 1, 1, 1))


@torch.no_grad()
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
        values, asked = market.values_and_prices(maps)
        value = market.sign * values.mean(1)
        better = value > best_value
        best = torch.where(better.unsqueeze(1), maps, best)
        best_value = torch.where(better, value, best_value)
        prices = asked if prices is None else (prices + asked) / 2
        maps = market.highest_bidders(prices)
    return best


class _Market:
    """The pixels, which go to the classes that gain most by them."""

    def __init__(self, probabilities: Tensor, metric: Metric, zero_division: float) -> None:
        self.metric, self.sign = metric, -1.0 if metric.minimize else 1.0
        self._probabilities = probabilities
        self._totals = [_sums(moment) for moment in moments_of(probabilities)]
        self._variants = torch.tensor(VARIANTS, dtype=torch.float64, device=probabilities.device)[:, :, None, None]
        self._lane = torch.arange(probabilities.shape[2], device=probabilities.device) % LANES
        self._reward = zero_division * _sums((-probabilities).log1p()).exp() if zero_division else self._totals[0] * 0

    def values_and_prices(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Return the expected metric of every class with the pixels that a class map gives it, and its prices.

        Args:
            maps: Class numbers ``(units, pixels)``.

        Returns:
            The values ``(units, classes)``, and what one pixel more changes, if it is of the class and if it is not,
            ``(2, units, classes)``.
        """
        own = self._probabilities.gather(1, maps.unsqueeze(1)).squeeze(1).double()
        lanes = maps * LANES + self._lane
        *chosen, sizes = (self._sum_by_class(lanes, moment) for moment in (*moments_of(own), torch.ones_like(own)))
        missed = [total - part for total, part in zip(self._totals, chosen, strict=True)]
        missed[:2] = [moment.clamp(min=0) for moment in missed[:2]]
        hits, misses, marked, pixels = self._variants
        now, hit, missing, false_alarm, spared = expected_value(
            self.metric,
            _with_certain(chosen, hits),
            _with_certain(missed, misses),
            sizes + marked,
            maps.shape[1] + pixels,
        )
        reward = self._reward * (sizes == 0)
        return now + reward, torch.stack([hit - missing, false_alarm - spared - reward])

    def _sum_by_class(self, lanes: Tensor, values: Tensor) -> Tensor:
        """Add up values ``(units, pixels)`` by class, ``(units, classes)``."""
        units, classes, _ = self._probabilities.shape
        sums = values.new_zeros((units, classes * LANES)).scatter_add_(1, lanes, values)
        return sums.view(units, classes, LANES).sum(2)

    def highest_bidders(self, prices: Tensor) -> Tensor:
        """Return the class of each pixel that gains most at these prices, ``(units, pixels)``."""
        if_true, if_false = (self.sign * prices).to(self._probabilities.dtype).unsqueeze(3)
        return _highest(torch.addcmul(if_false, self._probabilities, if_true - if_false))


def _with_certain(moments: list[Tensor], positives: Tensor) -> CountMoments:
    """Return moments ``(units, classes)`` after certain positives ``(variants, 1, 1)`` are added."""
    mean, variance, third = moments
    mean = mean + positives
    return CountMoments(mean, variance.expand_as(mean), third.expand_as(mean))


def _highest(values: Tensor) -> Tensor:
    """Return the class with the highest value ``(units, pixels)``; on a CPU this is six times as fast as argmax."""
    return values.max(1).indices


def _sums(values: Tensor) -> Tensor:
    return values.sum(2, dtype=torch.float64)
