"""The number of positives among independent pixels: its first moments, and the two numbers that stand for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
