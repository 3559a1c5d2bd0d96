"""PointwiseLoss: the base of binary and multilabel losses that are a weighted mean over samples.

The mean is ``sum(w l) / sum(w)``, and 0 if there are no samples. A soft target y mixes the two terms of a loss:
``l = y * of_positive(x) + (1 - y) * of_negative(x)``.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from metricfit.core.numerics import ratio
from metricfit.core.types import Task
from metricfit.core.validation import check_finite, looks_at_values
from metricfit.errors import InvalidValueError
from metricfit.losses.base import AdditiveLoss
from metricfit.losses.column_loss import ColumnLoss


class PointwiseLoss(ColumnLoss, AdditiveLoss):
    """A mean over samples of one term for positives and one for negatives.

    Args:
        task: "binary" or "multilabel", if the shapes do not determine it, as for masks ``(n, c, h, w)`` that may
            overlap.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks. If False, DistributedDataParallel
            averages the means of the ranks, as for torch's own losses. The gradients differ if the ranks have
            different numbers of samples, weights or ignored samples.
    """

    #: Whether the loss weights the classes by the inverse of their shares, so that ClassBalanced would do it twice.
    balanced = False

    def __init__(self, *, task: Task | None = None, ignore_index: int | None = None, sync: bool = False) -> None:
        super().__init__(sync=sync)
        self.set_target_format(task, ignore_index)

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weighted sum of the samples' losses and the sum of the weights, ``(2,)``."""
        batch = self.columns(logits, target, weight)
        x, y, w = batch.logits, batch.target, batch.weight
        losses = y * self.of_positive(x) + (1 - y) * self.of_negative(x)
        if w is None:
            sums = torch.stack([losses.sum(), torch.ones_like(x).sum()])
        else:
            sums = torch.stack([(w * losses).sum(), w.sum()])
        return check_statistics(sums, x)

    def value(self, statistics: Tensor) -> Tensor:
        """Return the weighted mean."""
        return ratio(statistics[0], statistics[1])

    @abstractmethod
    def of_positive(self, logits: Tensor) -> Tensor:
        """Return the loss of each logit if its label is 1.

        Args:
            logits: Logits of any shape.

        Returns:
            One loss per logit, of the same shape.
        """

    @abstractmethod
    def of_negative(self, logits: Tensor) -> Tensor:
        """Return the loss of each logit if its label is 0.

        Args:
            logits: Logits of any shape.

        Returns:
            One loss per logit, of the same shape.
        """


def check_statistics(statistics: Tensor, logits: Tensor) -> Tensor:
    """Return the statistics; raise an error that explains the cause if they are not finite and values are checked."""
    if looks_at_values(logits, None):
        check_finite(statistics.detach(), logits)
    return statistics


def check_prior(owner: str, prior: float) -> float:
    """Return the prior; raise an error if it is not strictly between 0 and 1."""
    if not 0.0 < prior < 1.0:
        raise InvalidValueError(
            f"{owner}: prior is the share of positives in the training set, strictly between 0 and 1, got {prior}"
        )
    return float(prior)


def check_nonnegative(owner: str, name: str, value: float) -> float:
    """Return a setting of a loss; raise an error if it is negative or not finite."""
    if not 0.0 <= value < math.inf:
        raise InvalidValueError(f"{owner} needs a finite {name} of at least 0, got {value}")
    return float(value)
