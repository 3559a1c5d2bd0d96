"""The squared error of probabilities, a baseline of AnyLoss (Han et al. 2024)."""

from __future__ import annotations

from torch import Tensor

from metricfit.core.tensor_numerics import tails
from metricfit.losses.pointwise import PointwiseLoss


class SquaredErrorLoss(PointwiseLoss):
    """The mean of (y - p)^2 with the probability p: the Brier score.

    >>> SquaredErrorLoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(0.2500)
    """

    def of_positive(self, logits: Tensor) -> Tensor:
        """Return (1 - p)^2."""
        return tails(logits)[1] ** 2

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return p^2."""
        return tails(logits)[0] ** 2
