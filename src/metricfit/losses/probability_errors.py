"""Losses of the error of probabilities: the mean absolute error, and the mean squared error of each class.

In the formulas p = sigmoid(x) of a logit x, and y is the label.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.kernels.pointwise_form import PointwiseForm
from metricfit.core.kernels.pointwise_sums import kernel_applies, weighted_sum
from metricfit.core.numerics import ratio, tails
from metricfit.core.types import Task
from metricfit.losses.base import AdditiveLoss
from metricfit.losses.column_loss import ColumnLoss
from metricfit.losses.pointwise import PointwiseLoss, check_statistics


class MAELoss(PointwiseLoss):
    r"""The mean absolute error of the probabilities of both classes. Lee et al. 2021, Eq. 14.

    .. math:: l = 2\, y\, (1-p) + 2\, (1-y)\, p

    Args:
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        ValueError: If the task is "multiclass" or unknown.

    Example:
        >>> MAELoss()(torch.tensor([0.0]), torch.tensor([1]))
        tensor(1.)
    """

    def of_positive(self, logits: Tensor) -> Tensor:
        """Return 2 (1 - p)."""
        return 2 * tails(logits)[1]

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return 2 p."""
        return 2 * tails(logits)[0]

    def closed_form(self) -> PointwiseForm:
        """Return the absolute error."""
        return PointwiseForm("absolute_error")


class MSFELoss(ColumnLoss, AdditiveLoss):
    r"""The mean squared false error: the squared mean errors of the two classes, added. Wang et al. 2016.

    .. math:: L = \Big(\frac{1}{n_1} \sum_{y_i = 1} \tfrac12 (1-p_i)^2\Big)^2
        + \Big(\frac{1}{n_0} \sum_{y_i = 0} \tfrac12 p_i^2\Big)^2

    A class without samples adds 0. This loss is not a mean over samples, so in a distributed run the sums of each class
    are added over the ranks by default and the gradient is that of the whole batch.

    Args:
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, sum the statistics over the ranks.

    Raises:
        ValueError: If the task is "multiclass" or unknown.

    Example:
        >>> MSFELoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.0312)
    """

    def __init__(self, *, task: Task | None = None, ignore_index: int | None = None, sync: bool = True) -> None:
        super().__init__(sync=sync)
        self.set_target_format(task, ignore_index)

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the errors of positives and negatives and their weights, each summed, ``(4,)``."""
        batch = self.columns(logits, target, weight)
        x, y, w = batch.logits, batch.target, batch.weight
        positives = _times(y, w).sum()
        negatives = x.numel() - positives if w is None else ((1 - y) * w).sum()
        if x.numel() and kernel_applies(x, y, w):
            errors = (
                weighted_sum(x, y, w, PointwiseForm("squared_error", 1.0, 0.0), 1.0, _errors_of_positives),
                weighted_sum(x, y, w, PointwiseForm("squared_error", 0.0, 1.0), 1.0, _errors_of_negatives),
            )
        else:
            errors = _errors_of_positives(x, y, w), _errors_of_negatives(x, y, w)
        return check_statistics(torch.stack([*errors, positives, negatives]), x)

    def value(self, statistics: Tensor) -> Tensor:
        """Return the sum over the classes of their squared mean errors."""
        return (ratio(statistics[:2], statistics[2:]) ** 2).sum()


def _errors_of_positives(logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    return (_times(target, weight) * tails(logits)[1] ** 2 / 2).sum()


def _errors_of_negatives(logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    return (_times(1 - target, weight) * tails(logits)[0] ** 2 / 2).sum()


def _times(share: Tensor, weight: Tensor | None) -> Tensor:
    return share if weight is None else share * weight
