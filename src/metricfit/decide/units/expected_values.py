"""The expected metric of marking the k most probable pixels of a unit, for every k.

The pixels are positive or not independently of each other, with the given probabilities. Then for every metric that
gains when a true positive is exchanged for a false one, the best k pixels are the k most probable ones: exchanging a
marked pixel for a more probable one makes the better of the two outcomes the more frequent. What is left is one number,
k, and the expected metric at every k.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.decide.units.count_moments import CountMoments, moments_of
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
