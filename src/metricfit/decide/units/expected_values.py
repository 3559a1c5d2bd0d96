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
    """The first three moments of the positives among the k most probable pixels, and among the others, for every k.

    Args:
        ranked: Probabilities ``(units, pixels)`` in descending order, float64.
    """

    def __init__(self, ranked: Tensor) -> None:
        self.units, self.pixels = ranked.shape
        self._sums = [torch.nn.functional.pad(moment.cumsum(1), (1, 0)) for moment in moments_of(ranked)]

    def expected_values(self, metric: Metric, sizes: Tensor) -> Tensor:
        """Compute the expected metric for given numbers of marked pixels.

        Two numbers stand for the true positives and two for the misses (``CountMoments.two_points``), so the metric is
        evaluated at four pairs.

        Args:
            metric: The metric.
            sizes: Numbers of marked pixels ``(units, m)``.

        Returns:
            Expected values ``(units, m)``.

        Example:
            >>> from metricfit.metrics import f1
            >>> moments = RankedMoments(torch.tensor([[0.9, 0.2]], dtype=torch.float64))
            >>> moments.expected_values(f1, torch.tensor([[0, 1, 2]]))
            tensor([[0.0000, 0.8400, 0.6763]], dtype=torch.float64)
        """
        chosen = [sums.gather(1, sizes) for sums in self._sums]
        missed = [sums[:, -1:] - part for sums, part in zip(self._sums, chosen, strict=True)]
        missed[:2] = [moment.clamp(min=0) for moment in missed[:2]]
        return expected_value(metric, CountMoments(*chosen), CountMoments(*missed), sizes, self.pixels)


def expected_value(
    metric: Metric, chosen: CountMoments, missed: CountMoments, size: Tensor | int, pixels: int
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
    total = torch.zeros_like(chosen.mean)
    for tp, share_of_tp in chosen.two_points():
        for fn, share_of_fn in missed.two_points():
            total.addcmul_(share_of_tp * share_of_fn, value_of(metric, tp, fn, size, pixels))
    return total


def value_of(metric: Metric, tp: Tensor, fn: Tensor, size: Tensor | int, pixels: int) -> Tensor:
    """Compute the metric where ``size`` of ``pixels`` are marked, from true positives and misses that broadcast."""
    zero = torch.zeros_like(tp + fn)
    cells = (tp, (size - tp).clamp(min=0), fn, (pixels - size - fn).clamp(min=0))
    return metric(Counts(*((cell + zero).unsqueeze(-1) for cell in cells), exclusive=False)).squeeze(-1)
