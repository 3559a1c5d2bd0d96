"""PointwiseLoss: the base of binary and multilabel losses that are a weighted mean over samples.

The mean is ``sum(w l) / sum(w)``, and 0 if there are no samples. A soft target y mixes the two terms of a loss:
``l = y * of_positive(x) + (1 - y) * of_negative(x)``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels.pointwise_form import PointwiseForm
from metricfit.core.kernels.pointwise_sums import kernel_applies, weighted_sum
from metricfit.core.numerics import SMALLEST_DIVISOR, ratio
from metricfit.core.types import Task
from metricfit.core.validation import check_finite, looks_at_values, refuse_tracing
from metricfit.errors import InvalidValueError
from metricfit.losses.base import AdditiveLoss, inheritance_level
from metricfit.losses.column_loss import ColumnLoss

#: What a kernel does in place of a loss's own methods.
REPLACED_METHODS = ("of_positive", "of_negative", "statistics", "value", "over_ranks", "columns", "_plain_sum")


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
    #: The numbers of dimensions of logits that are averaged over all entries if the target has the same shape.
    _plain_dims: tuple[int, ...] = (1, 2)
    #: Whether the methods that the kernels replace are those that ``closed_form`` describes.
    _form_applies = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        described = min(inheritance_level(cls, name) for name in REPLACED_METHODS)
        cls._form_applies = inheritance_level(cls, "closed_form") <= described

    def __init__(self, *, task: Task | None = None, ignore_index: int | None = None, sync: bool = False) -> None:
        super().__init__(sync=sync)
        self.set_target_format(task, ignore_index)

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.

        Returns:
            The loss, a scalar.
        """
        refuse_tracing()
        if self.ignore_index is None and self.task is None and not self.sync:
            mean = self._quick_mean(logits, target, weight)
            if mean is not None:
                return mean
        return super().forward(logits, target, weight)

    def _quick_mean(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor | None:
        """Return the mean over a batch whose shapes need no reading; None if the batch needs the general path.

        That path also finds what is not finite, and raises an error.
        """
        if (
            not isinstance(logits, Tensor)
            or not isinstance(target, Tensor)
            or target.shape != logits.shape
            or target.device != logits.device
            or logits.dim() not in self._plain_dims
            or not self._form_applies
            or target.is_complex()
            or not (weight is None or isinstance(weight, Tensor))
        ):
            return None
        form, total = self.closed_form(), float(logits.numel())
        y = target if target.dtype is logits.dtype else target.to(logits.dtype)
        if form is None or not total or not kernel_applies(logits, y, weight):
            return None
        if weight is not None:
            total = _sum_of_valid(weight, logits)
            if not total:
                return None
        mean = weighted_sum(logits, y, weight, form, 1 / total, self._plain_sum)
        return mean if not logits.is_cpu or math.isfinite(mean.item()) else None

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weighted sum of the samples' losses and the sum of the weights, ``(2,)``."""
        batch = self.columns(logits, target, weight)
        x, y, w = batch.logits, batch.target, batch.weight
        form = known_form(self)
        if form is not None and x.numel() and kernel_applies(x, y, w):
            total = weighted_sum(x, y, w, form, 1.0, self._plain_sum)
        else:
            total = self._plain_sum(x, y, w)
        number = torch.full_like(total, x.numel(), requires_grad=False) if w is None else w.sum()
        return check_statistics(torch.stack([total, number]), x)

    def _plain_sum(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        losses = target * self.of_positive(logits) + (1 - target) * self.of_negative(logits)
        return (losses if weight is None else weight * losses).sum()

    def value(self, statistics: Tensor) -> Tensor:
        """Return the weighted mean."""
        return ratio(statistics[0], statistics[1])

    def closed_form(self) -> PointwiseForm | None:
        """Return the loss as one of the forms that the kernels know, or None.

        It must be the same loss as ``of_positive`` and ``of_negative``. A class that overrides one of these without
        overriding this method is computed from them.

        Returns:
            The form with the current settings, or None if the kernels have none for it.
        """
        return None

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


def _sum_of_valid(weight: Tensor, logits: Tensor) -> float:
    """Return the sum of one weight per logit on the CPU; 0 if they need other shapes or types, or a closer look."""
    if weight.shape != logits.shape or weight.dtype is not logits.dtype or not (weight.is_cpu and logits.is_cpu):
        return 0.0
    low, high = torch.aminmax(weight)
    total = float(weight.sum())
    usual = low.item() >= 0 and high.item() < math.inf and SMALLEST_DIVISOR[weight.dtype] < total < math.inf
    return total if usual else 0.0


def known_form(loss: PointwiseLoss) -> PointwiseForm | None:
    """Return the closed form of a loss, unless a subclass changed what the form describes."""
    return loss.closed_form() if loss._form_applies else None


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
