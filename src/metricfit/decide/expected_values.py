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

This is the arithmetic behind ``decide.units``, which reads and checks what users pass. It takes arrays and tensors, and
computes where the data are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from metricfit.core.arrays import (
    Array,
    arange,
    cast,
    full,
    in_kind_of,
    is_tensor,
    namespace,
    pad_last,
    sum_at,
    take_along,
)
from metricfit.core.counts import Counts
from metricfit.metrics.metric import Metric

#: How many numbers the exact method keeps at once; it works on blocks of units.
NUMBERS_AT_ONCE = 2**25


def exact_values(ranked: Array, metric: Metric) -> Array:
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
        >>> exact_values(np.array([[0.9, 0.2]]), f1).round(4)
        array([[0.    , 0.84  , 0.6733]])
    """
    pixels = ranked.shape[1]
    rows = max(1, NUMBERS_AT_ONCE // (pixels + 1) ** 2)
    blocks = [_exact_block(ranked[start : start + rows], metric) for start in range(0, len(ranked), rows)]
    return namespace(ranked).concatenate(blocks) if blocks else full(ranked, (0, pixels + 1), 0.0)


def _exact_block(ranked: Array, metric: Metric) -> Array:
    units, pixels = ranked.shape
    missed = list(_distributions(ranked, reverse=True))[::-1]  # of the pixels after the k-th
    values = full(ranked, (units, pixels + 1), 0.0)
    for size, chosen in enumerate(_distributions(ranked)):
        tp = arange(ranked, 0, size + 1, ranked.dtype)[:, None]
        outcomes = value_of(metric, tp, arange(ranked, 0, pixels - size + 1, ranked.dtype), size, pixels)
        values[:, size] = ((chosen @ outcomes) * missed[size]).sum(1)
    return values


def _distributions(probabilities: Array, *, reverse: bool = False) -> Iterator[Array]:
    """Yield the distribution of the number of positives among the first 0, 1, 2, ... pixels, ``(units, k + 1)``.

    With ``reverse`` they are the last pixels in place of the first.
    """
    known = full(probabilities, (len(probabilities), 1), 1.0)
    yield known
    for pixel in range(probabilities.shape[1]):
        probability = probabilities[:, -pixel - 1 if reverse else pixel, None]
        known = pad_last(known * (1 - probability), after=0.0) + pad_last(known * probability, before=0.0)
        yield known


class RankedMoments:
    """The first three moments of the positives among the k most probable pixels, and among the others.

    They are known for every k, or for every ``spacing``-th k, which takes no sums over single pixels.

    Args:
        ranked: Probabilities ``(units, pixels)`` in descending order, float32 or float64.
        spacing: The distance between the known numbers; the number of all pixels is known, too.
    """

    def __init__(self, ranked: Array, spacing: int = 1) -> None:
        self.units, self.pixels = ranked.shape
        self._ranked, self._spacing = ranked, spacing
        whole = self.pixels - self.pixels % spacing
        blocks = [_block_sums(ranked[:, :whole].reshape(self.units, whole // spacing, spacing))]
        if whole < self.pixels:
            blocks.append(_block_sums(ranked[:, None, whole:]))
        self._sums = pad_last(namespace(ranked).concatenate(blocks, 2).cumsum(2), before=0.0)

    def known_sizes(self) -> Array:
        """Return the numbers of marked pixels for which the moments are known, ``(units, m)``."""
        numbers = arange(self._ranked, 0, self._sums.shape[2]) * self._spacing
        return namespace(numbers).broadcast_to(numbers.clip(0, self.pixels), (self.units, len(numbers)))

    def expected_values(self, metric: Metric, sizes: Array) -> Array:
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
            >>> moments = RankedMoments(np.array([[0.9, 0.2]]))
            >>> moments.expected_values(f1, np.array([[0, 1, 2]])).round(4)
            array([[0.    , 0.84  , 0.6763]])
        """
        return self._expected_values(metric, self._sums_at(sizes), sizes)

    def expected_values_around(self, metric: Metric, sizes: Array) -> tuple[Array, Array]:
        """Compute the expected metric for all numbers between the known neighbours of a known number.

        Args:
            metric: The metric.
            sizes: One number of marked pixels per unit, ``(units, 1)``, of ``known_sizes``.

        Returns:
            The numbers of marked pixels and their expected values, both ``(units, 2 * spacing + 1)``.
        """
        xp = namespace(sizes)
        before = (-(-sizes // self._spacing) - 1).clip(0) * self._spacing
        places = before + arange(sizes, 0, 2 * self._spacing)
        nearby = as_double(take_along(self._ranked, places.clip(0, self.pixels - 1))) * (places < self.pixels)
        sums = xp.stack(moments_of(nearby)).cumsum(2)
        known = self._sums_at(before)
        around = xp.concatenate([before, places + 1], 1).clip(0, self.pixels)
        return around, self._expected_values(metric, xp.concatenate([known, known + sums], 2), around)

    def _sums_at(self, sizes: Array) -> Array:
        places = -(-sizes // self._spacing)
        return take_along(self._sums, namespace(places).broadcast_to(places, (3, *places.shape)))

    def _expected_values(self, metric: Metric, chosen: Array, sizes: Array) -> Array:
        missed = self._sums[:, :, -1:] - chosen
        return expected_value(metric, chosen, without_negative(missed), sizes, self.pixels)


def _block_sums(blocks: Array) -> Array:
    """Return the moments of blocks of pixels ``(units, blocks, pixels)`` as ``(3, units, blocks)``, in float64.

    A block is added up pairwise in the type of the pixels, which keeps all but the last digits, at a fifth of the time.
    """
    return as_double(namespace(blocks).stack([moment.sum(2) for moment in moments_of(blocks)]))


def expected_value(metric: Metric, chosen: Array, missed: Array, size: Array | int, pixels: Array | int) -> Array:
    """Compute the expected metric from the moments of the true positives and of the misses.

    Args:
        metric: The metric.
        chosen: The moments of the positives among the marked pixels, ``(3, ...)``.
        missed: The same of the positives among the others.
        size: How many pixels are marked.
        pixels: How many there are.

    Returns:
        The expected value, of the shape of a moment.
    """
    # Both kinds and all four pairs at once: a GPU waits for launches.
    numbers, weights = two_points(namespace(chosen).stack([chosen, missed], 1))
    values = value_of(metric, numbers[:, 0, None], numbers[:, 1], size, pixels)
    return (weights[:, 0, None] * weights[:, 1] * values).sum((0, 1))


def value_of(metric: Metric, tp: Array, fn: Array, size: Array | int, pixels: Array | int) -> Array:
    """Compute the metric where ``size`` of ``pixels`` are marked, from true positives and misses that broadcast."""
    cells = (tp, (size - tp).clip(0), fn, (pixels - size - fn).clip(0))
    shape = np.broadcast_shapes(*(tuple(cell.shape) for cell in cells))
    parts = (namespace(tp).broadcast_to(cell, shape)[..., None] for cell in cells)
    return metric(Counts(*parts, exclusive=False))[..., 0]


def two_points(moments: Array) -> tuple[Array, Array]:
    """Return two numbers and their weights, which have the same first three moments.

    They are the nodes of the two-point Gauss rule for the distribution of the number. So the expected value of a
    polynomial up to degree 3 is exact, and no node lies below 0 or above the number of pixels.

    Args:
        moments: Mean, variance and third central moment of a number of positives, ``(3, ...)``.

    Returns:
        The two numbers, the lower one first, and their weights, both ``(2, ...)``.

    Example:
        >>> numbers, weights = two_points(np.array(moments_of(0.3)))
        >>> [round(float(number), 3) for number in (*numbers, *weights)]
        [0.0, 1.0, 0.7, 0.3]
    """
    mean, variance, third = moments
    xp = namespace(moments)
    constant = variance < xp.finfo(variance.dtype).tiny
    skew = xp.where(constant, 0.0, third / xp.where(constant, 1.0, variance)) / 2
    spread = xp.sqrt(variance + skew**2)
    lean = skew / xp.where(constant, 1.0, spread)
    centre = mean + skew
    return xp.stack([(centre - spread).clip(0), centre + spread]), xp.stack([1 + lean, 1 - lean]) / 2


def moments_of(probabilities: Array) -> tuple[Array, Array, Array]:
    """Return mean, variance and third central moment of each pixel's label; they add over independent pixels."""
    variance = probabilities * (1 - probabilities)
    return probabilities, variance, variance * (1 - 2 * probabilities)


def without_negative(moments: Array) -> Array:
    """Return moments whose mean and variance are at least 0, although differences were rounded."""
    return namespace(moments).concatenate([moments[:2].clip(0), moments[2:]])


def as_double(values: Array) -> Array:
    """Return numbers in float64, in which sums over a million pixels keep their digits."""
    return cast(values, namespace(values).float64)


#: How many times the prices are set.
ROUNDS = 10
#: Number of sums per class to which neighbouring pixels are added in turn; threads of a GPU would wait at a single one.
LANES = 32
#: Hits, misses, marked pixels and pixels that are added to a class: nothing, a hit, a miss, a false alarm, and a pixel
#: of another class that is not marked. They are evaluated together, because a GPU waits for launches.
VARIANTS = ((0, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 1, 0, 1, 0), (0, 1, 1, 1, 1))


def best_class_maps(probabilities: Array, metric: Metric, zero_division: float) -> Array:
    """Find class maps with a high expected mean of the metric over the classes.

    Args:
        probabilities: Probabilities ``(units, classes, pixels)``, which add up to 1 over the classes.
        metric: The metric.
        zero_division: The value of a class that has no pixels and was not marked.

    Returns:
        Class numbers ``(units, pixels)``.
    """
    market, xp = _Market(probabilities, metric, zero_division), namespace(probabilities)
    maps = _highest(probabilities)
    best, best_value = maps, full(probabilities, maps.shape[:1], -np.inf, xp.float64)
    prices: Array | None = None
    for _ in range(ROUNDS):
        values, asked = market.values_and_prices(maps)
        value = market.sign * values.mean(1)
        better = value > best_value
        best = xp.where(better[:, None], maps, best)
        best_value = xp.where(better, value, best_value)
        prices = asked if prices is None else (prices + asked) / 2
        maps = market.highest_bidders(prices)
    return best


class _Market:
    """The pixels, which go to the classes that gain most by them."""

    def __init__(self, probabilities: Array, metric: Metric, zero_division: float) -> None:
        self.metric, self.sign = metric, -1.0 if metric.minimize else 1.0
        self._probabilities, xp = probabilities, namespace(probabilities)
        self._totals = xp.stack([_sums(moment) for moment in moments_of(probabilities)])
        self._variants = in_kind_of(np.array(VARIANTS, float)[:, :, None, None], probabilities)
        self._lane = arange(probabilities, 0, probabilities.shape[2]) % LANES
        self._reward = zero_division * xp.exp(_sums(xp.log1p(-probabilities))) if zero_division else self._totals[0] * 0

    def values_and_prices(self, maps: Array) -> tuple[Array, Array]:
        """Return the expected metric of every class with the pixels that a class map gives it, and its prices.

        Args:
            maps: Class numbers ``(units, pixels)``.

        Returns:
            The values ``(units, classes)``, and what one pixel more changes, if it is of the class and if it is not,
            ``(2, units, classes)``.
        """
        xp = namespace(maps)
        own = as_double(_of_classes(self._probabilities, maps))
        lanes = maps * LANES + self._lane
        *moments, sizes = (self._sum_by_class(lanes, moment) for moment in (*moments_of(own), xp.ones_like(own)))
        chosen = xp.stack(moments)
        hits, misses, marked, pixels = self._variants
        now, hit, missing, false_alarm, spared = expected_value(
            self.metric,
            _with_certain(chosen, hits),
            _with_certain(without_negative(self._totals - chosen), misses),
            sizes + marked,
            maps.shape[1] + pixels,
        )
        reward = self._reward * (sizes == 0)
        return now + reward, xp.stack([hit - missing, false_alarm - spared - reward])

    def _sum_by_class(self, lanes: Array, values: Array) -> Array:
        """Add up values ``(units, pixels)`` by class, ``(units, classes)``."""
        units, classes, _ = self._probabilities.shape
        width = classes * LANES
        places = lanes + arange(lanes, 0, units)[:, None] * width
        return sum_at(places.reshape(-1), values.reshape(-1), units * width).reshape(units, classes, LANES).sum(2)

    def highest_bidders(self, prices: Array) -> Array:
        """Return the class of each pixel that gains most at these prices, ``(units, pixels)``."""
        if_true, if_false = cast(self.sign * prices, self._probabilities.dtype)[..., None]
        return _highest(if_false + self._probabilities * (if_true - if_false))


def _with_certain(moments: Array, positives: Array) -> Array:
    """Return moments ``(3, units, classes)`` after certain positives ``(variants, 1, 1)`` are added."""
    mean = moments[0] + positives
    xp = namespace(mean)
    return xp.stack([mean, *(xp.broadcast_to(moment, mean.shape) for moment in moments[1:])])


def _of_classes(values: Array, maps: Array) -> Array:
    """Return the value of the class of each pixel, ``(units, pixels)``."""
    if is_tensor(values):
        return values.gather(1, maps[:, None]).squeeze(1)
    return np.take_along_axis(values, maps[:, None], 1)[:, 0]


def _highest(values: Array) -> Array:
    """Return the class with the highest value ``(units, pixels)``; max of tensors is six times as fast as argmax."""
    return values.max(1).indices if is_tensor(values) else values.argmax(1)


def _sums(values: Array) -> Array:
    return values.sum(2, dtype=namespace(values).float64)
