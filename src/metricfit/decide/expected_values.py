"""The expected metric of marking the k most probable pixels of a unit, for every k.

The pixels are positive or not independently of each other, with the given probabilities. Then for every metric that
gains when a true positive is exchanged for a false one, the best k pixels are the k most probable ones: exchanging a
marked pixel for a more probable one makes the better of the two outcomes the more frequent. What is left is one number,
k, and the expected metric at every k.

In class maps every pixel has one class, and the mean over the classes of the expected metric is best. Marking a pixel
with class c changes the expected metric of c by ``p * if_true + (1 - p) * if_false``, where the two prices depend on
the pixels that c has. So the classes set prices, every pixel goes to the class that gains most, the prices change, and
so on. New prices are averaged with the last ones, without which whole classes would change places in every round. The
best class map on the way is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.metrics.metric import Metric

#: How many numbers the exact method keeps at once; it works on blocks of units.
NUMBERS_AT_ONCE = 2**25


def exact_values(ranked: Tensor, metric: Metric) -> Tensor:
    """Compute the expected metric of every number of marked pixels, exactly.

    Of k marked pixels a are positive, of the others b, and a and b are independent; their distributions are built
    pixel by pixel. Time grows with the cube of the number of pixels.

    Args:
        ranked: Probabilities ``(units, pixels)`` in descending order, float64.
        metric: The metric.

    Returns:
        Expected values ``(units, pixels + 1)``, for 0 to all pixels marked.

    Example:
        >>> from metricfit.metrics import f1
        >>> exact_values(torch.tensor([[0.9, 0.2]], dtype=torch.float64), f1)
        tensor([[0.0000, 0.8400, 0.6733]], dtype=torch.float64)
    """
    pixels = ranked.shape[1]
    rows = max(1, NUMBERS_AT_ONCE // (pixels + 1) ** 2)
    blocks = [_exact_block(ranked[start : start + rows], metric) for start in range(0, len(ranked), rows)]
    return torch.cat(blocks) if blocks else ranked.new_empty((0, pixels + 1))


def _exact_block(ranked: Tensor, metric: Metric) -> Tensor:
    units, pixels = ranked.shape
    missed = list(_distributions(ranked.flip(1)))[::-1]  # of the pixels after the k-th
    values = ranked.new_empty((units, pixels + 1))
    for size, chosen in enumerate(_distributions(ranked)):
        tp = torch.arange(size + 1, dtype=ranked.dtype, device=ranked.device).unsqueeze(1)
        fn = torch.arange(pixels - size + 1, dtype=ranked.dtype, device=ranked.device)
        outcomes = value_of(metric, tp, fn, size, pixels)
        values[:, size] = ((chosen @ outcomes) * missed[size]).sum(1)
    return values


def _distributions(probabilities: Tensor) -> Iterator[Tensor]:
    """Yield the distribution of the number of positives among the first 0, 1, 2, ... pixels, ``(units, k + 1)``."""
    known = probabilities.new_ones((len(probabilities), 1))
    yield known
    for pixel in range(probabilities.shape[1]):
        probability = probabilities[:, pixel : pixel + 1]
        longer = known.new_zeros((len(known), known.shape[1] + 1))
        longer[:, :-1] = known * (1 - probability)
        longer[:, 1:] += known * probability
        known = longer
        yield known


class RankedMoments:
    """The first three moments of the positives among the k most probable pixels, and among the others.

    They are known for every k, or for every ``spacing``-th k, which takes no sums over single pixels.

    Args:
        ranked: Probabilities ``(units, pixels)`` in descending order, float32 or float64.
        spacing: The distance between the known numbers; the number of all pixels is known, too.
    """

    def __init__(self, ranked: Tensor, spacing: int = 1) -> None:
        self.units, self.pixels = ranked.shape
        self._ranked, self._spacing = ranked, spacing
        whole = self.pixels - self.pixels % spacing
        blocks = [_block_sums(ranked[:, :whole].view(self.units, -1, spacing))]
        if whole < self.pixels:
            blocks.append(_block_sums(ranked[:, whole:].unsqueeze(1)))
        self._sums = torch.nn.functional.pad(torch.cat(blocks, 2).cumsum(2), (1, 0))

    def known_sizes(self) -> Tensor:
        """Return the numbers of marked pixels for which the moments are known, ``(units, m)``."""
        numbers = torch.arange(self._sums.shape[2], device=self._ranked.device) * self._spacing
        return numbers.clamp(max=self.pixels).expand(self.units, -1)

    def expected_values(self, metric: Metric, sizes: Tensor) -> Tensor:
        """Compute the expected metric for known numbers of marked pixels.

        Two numbers stand for the true positives and two for the misses (``CountMoments.two_points``), so the metric is
        evaluated at four pairs.

        Args:
            metric: The metric.
            sizes: Numbers of marked pixels ``(units, m)``, of ``known_sizes``.

        Returns:
            Expected values ``(units, m)``.

        Example:
            >>> from metricfit.metrics import f1
            >>> moments = RankedMoments(torch.tensor([[0.9, 0.2]], dtype=torch.float64))
            >>> moments.expected_values(f1, torch.tensor([[0, 1, 2]]))
            tensor([[0.0000, 0.8400, 0.6763]], dtype=torch.float64)
        """
        return self._expected_values(metric, self._sums_at(sizes), sizes)

    def expected_values_around(self, metric: Metric, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the expected metric for all numbers between the known neighbours of a known number.

        Args:
            metric: The metric.
            sizes: One number of marked pixels per unit, ``(units, 1)``, of ``known_sizes``.

        Returns:
            The numbers of marked pixels and their expected values, both ``(units, 2 * spacing + 1)``.
        """
        before = (-(-sizes // self._spacing) - 1).clamp(min=0) * self._spacing
        places = before + torch.arange(2 * self._spacing, device=sizes.device)
        nearby = self._ranked.gather(1, places.clamp(max=self.pixels - 1)).double() * (places < self.pixels)
        sums = torch.stack(moments_of(nearby)).cumsum(2)
        known = self._sums_at(before)
        around = torch.cat([before, places + 1], 1).clamp(max=self.pixels)
        return around, self._expected_values(metric, torch.cat([known, known + sums], 2), around)

    def _sums_at(self, sizes: Tensor) -> Tensor:
        return self._sums.gather(2, (-(-sizes // self._spacing)).expand(3, -1, -1))

    def _expected_values(self, metric: Metric, chosen: Tensor, sizes: Tensor) -> Tensor:
        mean, variance, third = self._sums[:, :, -1:] - chosen
        missed = CountMoments(mean.clamp(min=0), variance.clamp(min=0), third)
        return expected_value(metric, CountMoments(*chosen), missed, sizes, self.pixels)


def _block_sums(blocks: Tensor) -> Tensor:
    """Return the moments of blocks of pixels ``(units, blocks, pixels)`` as ``(3, units, blocks)``, in float64.

    A block is added up pairwise in the type of the pixels, which keeps all but the last digits, at a fifth of the time.
    """
    return torch.stack([moment.sum(2) for moment in moments_of(blocks)]).double()


def expected_value(
    metric: Metric, chosen: CountMoments, missed: CountMoments, size: Tensor | int, pixels: Tensor | int
) -> Tensor:
    """Compute the expected metric from the moments of the true positives and of the misses.

    Args:
        metric: The metric.
        chosen: The positives among the marked pixels.
        missed: The positives among the others.
        size: How many pixels are marked.
        pixels: How many there are.

    Returns:
        The expected value, of the shape of the moments.
    """
    # Both kinds and all four pairs at once: a GPU waits for launches.
    (tp, fn), (share_of_tp, share_of_fn) = (part.unbind(1) for part in chosen.beside(missed).two_points())
    values = value_of(metric, tp.unsqueeze(1), fn, size, pixels)
    return (share_of_tp.unsqueeze(1) * share_of_fn * values).sum((0, 1))


def value_of(metric: Metric, tp: Tensor, fn: Tensor, size: Tensor | int, pixels: Tensor | int) -> Tensor:
    """Compute the metric where ``size`` of ``pixels`` are marked, from true positives and misses that broadcast."""
    fp, tn = (size - tp).clamp(min=0), (pixels - size - fn).clamp(min=0)
    shape = torch.broadcast_shapes(tp.shape, fp.shape, tn.shape)  # type: ignore[no-untyped-call]
    cells = (cell.expand(shape).unsqueeze(-1) for cell in (tp, fp, fn, tn))
    return metric(Counts(*cells, exclusive=False)).squeeze(-1)


@dataclass(frozen=True)
class CountMoments:
    """Mean, variance and third central moment of the number of positives.

    Attributes:
        mean: The expected number.
        variance: Its variance.
        third: Its third central moment.
    """

    mean: Tensor
    variance: Tensor
    third: Tensor

    def beside(self, other: CountMoments) -> CountMoments:
        """Return both in one, ``(2, ...)``."""
        return CountMoments(
            torch.stack([self.mean, other.mean]),
            torch.stack([self.variance, other.variance]),
            torch.stack([self.third, other.third]),
        )

    def two_points(self) -> tuple[Tensor, Tensor]:
        """Return two numbers and their weights, which have the same first three moments.

        They are the nodes of the two-point Gauss rule for the distribution of the number. So the expected value of a
        polynomial up to degree 3 is exact, and no node lies below 0 or above the number of pixels.

        Returns:
            The two numbers, the lower one first, and their weights, both ``(2, ...)``.

        Example:
            >>> one_pixel = moments_of(torch.tensor([0.3], dtype=torch.float64))
            >>> numbers, weights = CountMoments(*(part.sum() for part in one_pixel)).two_points()
            >>> [round(float(number), 3) for number in (*numbers, *weights)]
            [0.0, 1.0, 0.7, 0.3]
        """
        constant = self.variance < torch.finfo(self.variance.dtype).tiny
        skew = (self.third / self.variance.masked_fill(constant, 1.0)).masked_fill(constant, 0.0) / 2
        spread = (self.variance + skew.square()).sqrt()
        lean = skew / spread.masked_fill(constant, 1.0)
        centre = self.mean + skew
        numbers = torch.stack([(centre - spread).clamp(min=0), centre + spread])
        return numbers, torch.stack([1 + lean, 1 - lean]) / 2


def moments_of(probabilities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, variance and third central moment of each pixel's label; those of independent pixels add."""
    variance = probabilities * (1 - probabilities)
    return probabilities, variance, variance * (1 - 2 * probabilities)


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
