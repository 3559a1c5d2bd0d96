"""Cross-entropy in its weighted forms: by class, by effective number of samples, by difficulty, and with a margin.

In the formulas x is a logit, p = sigmoid(x) and y the label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from metricfit.core.kernels.pointwise_form import PointwiseForm
from metricfit.core.numerics import counting_dtype, has_storage, ratio
from metricfit.core.tasks import spread_weight
from metricfit.core.types import Task
from metricfit.core.validation import check_labels, check_tensors, check_weight, looks_at_values, refuse_tracing
from metricfit.errors import InvalidValueError
from metricfit.losses.base import AdditiveLoss
from metricfit.losses.pointwise import PointwiseLoss, check_nonnegative, check_statistics


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

    def __init__(
        self,
        positive_weight: float = 1.0,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)
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

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"positive_weight={self.positive_weight:g}"


class WeightedCrossEntropyLoss(AdditiveLoss):
    r"""Cross-entropy of exclusive classes with one weight per sample.

    .. math:: \frac{\sum_i w_i\, l_i}{\sum_i w_i}, \qquad l_i = -\log \mathrm{softmax}(x_i)_{y_i}

    torch's own loss accepts weights of classes, but not of samples. Logits are ``(n, classes, ...)``, targets are class
    numbers ``(n, ...)``, and there is one weight per sample or per label.

    Args:
        ignore_index: Labels with this value are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        ValueError: If the shapes of logits and target do not match (when called).

    Example:
        >>> WeightedCrossEntropyLoss()(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor(1.3863)
    """

    def __init__(self, *, ignore_index: int = -100, sync: bool = False) -> None:
        super().__init__(sync=sync)
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: The outputs of the model, ``(n, classes, ...)``.
            target: The class numbers, ``(n, ...)``.
            weight: One weight per sample or per label.

        Returns:
            The loss, a scalar.
        """
        refuse_tracing()
        own = type(self)
        is_plain = own.statistics is WeightedCrossEntropyLoss.statistics and (
            own.label_losses is WeightedCrossEntropyLoss.label_losses
        )
        if weight is None and not self.sync and is_plain:
            mean = self._quick_mean(logits, target)
            if mean is not None:
                return mean
        return super().forward(logits, target, weight)

    def _quick_mean(self, logits: Tensor, target: Tensor) -> Tensor | None:
        """Return torch's own mean; None if it is not finite or torch refuses the batch: the general path says why."""
        if (
            type(logits) is not Tensor
            or type(target) is not Tensor
            or torch.compiler.is_compiling()
            or not logits.is_cpu
            or logits.dtype not in (torch.float32, torch.float64)
            or target.dtype is not torch.int64
            or logits.dim() != 2
            or target.dim() != 1
            or not (has_storage(logits) and has_storage(target))
        ):
            return None
        try:
            mean = cross_entropy(logits, target, ignore_index=self.ignore_index)
        except (RuntimeError, IndexError, ValueError):
            return None
        return mean if math.isfinite(mean.item()) else None

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weighted sum of the samples' losses and the sum of the weights, ``(2,)``.

        Args:
            logits: The outputs of the model, ``(n, classes, ...)``.
            target: The class numbers, ``(n, ...)``.
            weight: One weight per sample or per label.

        Returns:
            The two sums.

        Raises:
            ValueError: If the shapes of logits and target do not match.
        """
        check_tensors(logits, target, weight)
        if logits.dim() < 2 or target.shape != logits.shape[:1] + logits.shape[2:]:
            remedy = "for binary or multilabel logits use WeightedBCELoss"
            if logits.dim() > 1 and logits.shape[1] > 1 and target.shape == logits.shape:
                remedy = f"pass one-hot targets as target.argmax(1); {remedy}"
            raise InvalidValueError(
                f"{type(self).__name__} is for logits (n, classes) and class numbers (n,), got "
                f"{tuple(logits.shape)} and {tuple(target.shape)}; {remedy}"
            )
        if target.is_floating_point():
            raise InvalidValueError(f"class numbers must be integers, got {target.dtype}; use target.long()")
        x, y = logits.to(counting_dtype(logits.dtype)), target.long()
        if looks_at_values(x, None):
            check_labels(torch.where(y == self.ignore_index, 0, y), x.shape[1])
        losses = self.label_losses(x, y)
        label_weight = (y != self.ignore_index).to(losses.dtype)
        if weight is not None:
            spread = spread_weight(weight, tuple(y.shape), tuple(y.shape))
            if looks_at_values(x, None):
                check_weight(spread)
            label_weight = label_weight * spread
        return check_statistics(torch.stack([(label_weight * losses).sum(), label_weight.sum()]), logits)

    def label_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each label; what it is for ignored labels does not matter, if it is finite.

        Args:
            logits: The outputs of the model, ``(n, classes, ...)``.
            target: The class numbers, ``(n, ...)``.

        Returns:
            One loss per label, ``(n, ...)``.
        """
        return cross_entropy(logits, target, ignore_index=self.ignore_index, reduction="none")

    def value(self, statistics: Tensor) -> Tensor:
        """Return the weighted mean."""
        return ratio(statistics[0], statistics[1])

    def extra_repr(self) -> str:
        """Return the argument of the constructor if it is not torch's default."""
        return "" if self.ignore_index == -100 else f"ignore_index={self.ignore_index}"


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

    def __init__(
        self,
        beta: float,
        class_counts: Sequence[int],
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = False,
    ) -> None:
        if not 0.0 <= beta < 1.0:
            raise InvalidValueError(f"EffectiveNumberBCELoss needs 0 <= beta < 1, got {beta}")
        if len(class_counts) != 2 or min(class_counts) < 1:
            raise InvalidValueError(
                f"class_counts are the numbers of negatives and of positives, both at least 1, got {class_counts}"
            )
        negatives, positives = ((1 - beta) / -math.expm1(n * math.log(beta)) if beta else 1.0 for n in class_counts)
        super().__init__(positives, task=task, ignore_index=ignore_index, sync=sync)
        self.balanced = beta > 0
        self.negative_weight = negatives
        self.beta = float(beta)
        self.class_counts = tuple(int(n) for n in class_counts)

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return -log(1 - p) times the weight of the negatives."""
        return self.negative_weight * softplus(logits)

    def closed_form(self) -> PointwiseForm:
        """Return cross-entropy with the weights of both classes."""
        return PointwiseForm("cross_entropy", self.positive_weight, self.negative_weight)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"beta={self.beta:g}, class_counts={self.class_counts}"


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

    def __init__(
        self,
        gamma: float,
        asymmetric: bool = False,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)
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

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"gamma={self.gamma:g}, asymmetric={self.asymmetric}"


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

    def __init__(
        self,
        margin: float,
        asymmetric: bool = False,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)
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

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"margin={self.margin:g}, asymmetric={self.asymmetric}"
