"""Binary and multilabel losses of single samples: cross-entropy in its weighted forms, and errors of probabilities.

In the formulas x is a logit, p = sigmoid(x) and y the label. PointwiseLoss is the base of weighted means over samples.
The mean is ``sum(w l) / sum(w)``, and 0 if there are no samples. A soft target y mixes the two terms of a loss:
``l = y * of_positive(x) + (1 - y) * of_negative(x)``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from metricfit.core.kernels.pointwise import PointwiseForm, kernel_applies, weighted_sum
from metricfit.core.numerics import ratio
from metricfit.core.tensor_numerics import SMALLEST_DIVISOR, tails
from metricfit.core.types import Task
from metricfit.core.validation import per_class, refuse_tracing
from metricfit.errors import InvalidValueError
from metricfit.losses.base import (
    AdditiveLoss,
    ColumnLoss,
    ColumnOptions,
    check_nonnegative,
    check_statistics,
    inheritance_level,
    weights_by_class,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The methods of a loss that a kernel replaces.
REPLACED_METHODS = ("of_positive", "of_negative", "statistics", "value", "over_ranks", "columns", "_plain_sum")


class PointwiseLoss(ColumnLoss, AdditiveLoss):
    """A mean over samples of one term for positives and one for negatives.

    Args:
        task: "binary" or "multilabel", if the shapes do not determine it, as for masks ``(n, c, h, w)`` that may
            overlap.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks. If False, DistributedDataParallel
            averages the means of the ranks, as for torch's losses. The gradients differ if the ranks have
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
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)

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
                self._range.look(self, logits)
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
            The form with the current settings, or None if the kernels have no such form.
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


def check_prior(owner: str, prior: float) -> float:
    """Return the prior; raise an error if it is not strictly between 0 and 1."""
    if not 0.0 < prior < 1.0:
        raise InvalidValueError(
            f"{owner}: prior is the share of positives in the training set, strictly between 0 and 1, got {prior}"
        )
    return float(prior)


class WeightedBCELoss(PointwiseLoss):
    r"""Binary cross-entropy with a factor on the term of the positives.

    .. math:: l = -c\, y \log p - (1-y) \log(1-p)

    With :math:`c = 1` it is plain cross-entropy, and unlike torch's loss it accepts one weight per sample.

    Args:
        positive_weight: The factor c, at least 0.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        ValueError: If ``positive_weight`` is negative or not finite.

    Example:
        >>> WeightedBCELoss(positive_weight=2.0)(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(1.0397)
    """

    def __init__(self, positive_weight: float = 1.0, **options: Unpack[ColumnOptions]) -> None:
        super().__init__(**options)
        self.positive_weight = check_nonnegative("WeightedBCELoss", "positive_weight", positive_weight)

    def of_positive(self, logits: Tensor) -> Tensor:
        """Return -c log p."""
        return self.positive_weight * softplus(-logits)

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return -log(1 - p)."""
        return softplus(logits)

    def closed_form(self) -> PointwiseForm:
        """Return cross-entropy with the weight of the positives."""
        return PointwiseForm("cross_entropy", self.positive_weight)


class EffectiveNumberBCELoss(WeightedBCELoss):
    r"""Cross-entropy with the classes weighted by their effective number of samples. Cui et al. 2019.

    .. math:: l = -\frac{1-\beta}{1-\beta^{n_1}}\, y \log p - \frac{1-\beta}{1-\beta^{n_0}}\, (1-y) \log(1-p)

    for :math:`n_0` negatives and :math:`n_1` positives in the training set.

    Args:
        beta: From 0, for equal weights, to below 1; the weights tend to the inverse class sizes as beta tends to 1.
        class_counts: The numbers of negatives and positives in the training set.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        ValueError: If beta is out of range, or ``class_counts`` are not two numbers of at least 1.

    Example:
        >>> EffectiveNumberBCELoss(beta=0.99, class_counts=(90, 10))
        EffectiveNumberBCELoss(beta=0.99, class_counts=(90, 10))
    """

    def __init__(self, beta: float, class_counts: Sequence[int], **options: Unpack[ColumnOptions]) -> None:
        if not 0.0 <= beta < 1.0:
            raise InvalidValueError(f"EffectiveNumberBCELoss needs 0 <= beta < 1, got {beta}")
        rule = "class_counts are the numbers of negatives and of positives, both at least 1"
        counts = per_class(class_counts, rule)
        if len(counts) != 2 or min(counts) < 1:
            raise InvalidValueError(f"{rule}, got {list(counts)}")
        negatives, positives = ((1 - beta) / -math.expm1(n * math.log(beta)) if beta else 1.0 for n in counts)
        super().__init__(positives, **options)
        self.balanced = beta > 0
        self.negative_weight = negatives
        self.beta = float(beta)
        self.class_counts = tuple(int(n) for n in counts)

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return -log(1 - p) times the weight of the negatives."""
        return self.negative_weight * softplus(logits)

    def closed_form(self) -> PointwiseForm:
        """Return cross-entropy with the weights of both classes."""
        return PointwiseForm("cross_entropy", self.positive_weight, self.negative_weight)


class FocalLoss(PointwiseLoss):
    r"""Cross-entropy with less weight on samples that are already classified well. Lin et al. 2017, Eq. 4.

    .. math:: l = -y\, (1-p)^\gamma \log p - (1-y)\, p^\gamma \log(1-p)

    Args:
        gamma: The exponent, at least 0; 0 is plain cross-entropy.
        asymmetric: Apply the factor to the negatives only.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        ValueError: If gamma is negative or not finite.

    Example:
        >>> FocalLoss(gamma=2.0)(torch.tensor([0.0]), torch.tensor([1]))
        tensor(0.1733)
    """

    def __init__(self, gamma: float, asymmetric: bool = False, **options: Unpack[ColumnOptions]) -> None:
        super().__init__(**options)
        self.gamma = check_nonnegative("FocalLoss", "gamma", gamma)
        self.asymmetric = asymmetric

    def of_positive(self, logits: Tensor) -> Tensor:
        """Return -(1 - p)^gamma log p, or -log p if asymmetric."""
        return softplus(-logits) if self.asymmetric else torch.exp(-self.gamma * softplus(logits)) * softplus(-logits)

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return -p^gamma log(1 - p)."""
        return torch.exp(-self.gamma * softplus(-logits)) * softplus(logits)

    def closed_form(self) -> PointwiseForm:
        """Return the exponents of positives and of negatives."""
        return PointwiseForm("focal", first=0.0 if self.asymmetric else self.gamma, second=self.gamma)


class MarginLoss(PointwiseLoss):
    r"""Cross-entropy that asks for a margin m. Li et al. 2019, as used by Sangalli et al. 2021.

    .. math:: l = -y \log \sigma(x - m) - (1-y) \log(1 - \sigma(x + m))

    Args:
        margin: The margin m in logits, at least 0; 0 is plain cross-entropy.
        asymmetric: Apply the margin to the positives only.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        ValueError: If the margin is negative or not finite.

    Example:
        >>> MarginLoss(margin=1.0)(torch.tensor([1.0]), torch.tensor([1]))
        tensor(0.6931)
    """

    def __init__(self, margin: float, asymmetric: bool = False, **options: Unpack[ColumnOptions]) -> None:
        super().__init__(**options)
        self.margin = check_nonnegative("MarginLoss", "margin", margin)
        self.asymmetric = asymmetric

    def of_positive(self, logits: Tensor) -> Tensor:
        """Return -log sigmoid(x - m)."""
        return softplus(self.margin - logits)

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return -log(1 - sigmoid(x + m)), or -log(1 - sigmoid(x)) if asymmetric."""
        return softplus(logits if self.asymmetric else logits + self.margin)

    def closed_form(self) -> PointwiseForm:
        """Return cross-entropy with the margins of positives and of negatives."""
        return PointwiseForm("cross_entropy", first=self.margin, second=0.0 if self.asymmetric else self.margin)


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

    A class without samples adds 0. This loss is not a mean over samples. In a distributed run the sums of each class
    are therefore added over the ranks by default, which gives the gradient of the whole batch.

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

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the errors of positives and negatives and their weights, each summed, ``(4,)``."""
        batch = self.columns(logits, target, weight)
        (p, q), (positives, negatives) = tails(batch.logits), weights_by_class(batch)
        errors = (positives * q**2 / 2).sum(), (negatives * p**2 / 2).sum()
        return check_statistics(torch.stack([*errors, positives.sum(), negatives.sum()]), batch.logits)

    def value(self, statistics: Tensor) -> Tensor:
        """Return the sum over the classes of their squared mean errors."""
        return (ratio(statistics[:2], statistics[2:]) ** 2).sum()
