"""Losses that are a mean over samples: cross-entropy weighted, focused or with a margin, and absolute error.

x is a logit, p = sigmoid(x), y the label. Every loss here is ``forward(logits, target, weight=None)`` and averages as
``sum(w l) / sum(w)``; the mean over nothing is 0. A soft target mixes the two branches.

Losses of binary and multilabel logits have three settings in common: ``task``, "binary" or "multilabel", where the
shapes do not tell, as for masks ``(n, c, h, w)`` that may overlap; ``ignore_index``, the target of samples that count
for nothing; and ``sync``, which in a distributed run takes the sums over all ranks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from metricfit.core.numerics import counting_dtype, ratio, tails
from metricfit.core.tasks import (
    check_finite,
    check_labels,
    check_tensors,
    check_weight,
    looks_at_values,
    spread_weight,
)
from metricfit.errors import InvalidValueError
from metricfit.losses.base import AdditiveLoss
from metricfit.losses.columns import ColumnLoss


class PointwiseLoss(ColumnLoss, AdditiveLoss):
    """A mean over samples of one term for positives and one for negatives.

    Args:
        task: "binary" or "multilabel", where the shapes do not tell.
        ignore_index: samples with this target count for nothing.
        sync: take the mean over the samples of all ranks. If False, DistributedDataParallel averages the ranks' means,
            as for torch's own losses; this is another gradient where ranks differ in their numbers of samples, in
            weights or in ignored samples.
    """

    #: Whether the loss weighs the classes by the inverse of their shares, so that ClassBalanced would do it twice.
    balanced = False

    def __init__(self, *, task: str | None = None, ignore_index: int | None = None, sync: bool = False) -> None:
        super().__init__(sync=sync)
        self.set_reading(task, ignore_index)

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The weighted sum of the samples' losses, and the sum of the weights."""
        batch = self.columns(logits, target, weight)
        x, y, w = batch.logits, batch.target, batch.weight
        losses = y * self.of_positive(x) + (1 - y) * self.of_negative(x)
        if w is None:
            sums = torch.stack([losses.sum(), torch.ones_like(x).sum()])
        else:
            sums = torch.stack([(w * losses).sum(), w.sum()])
        return checked(sums, x)

    def value(self, statistics: Tensor) -> Tensor:
        """The weighted mean."""
        return ratio(statistics[0], statistics[1])

    @abstractmethod
    def of_positive(self, logits: Tensor) -> Tensor:
        """The loss of each logit, were its label 1."""

    @abstractmethod
    def of_negative(self, logits: Tensor) -> Tensor:
        """The loss of each logit, were its label 0."""


class WeightedBCELoss(PointwiseLoss):
    """Cross-entropy with the positives' term multiplied: -c y log p - (1-y) log(1-p). Plain cross-entropy at 1.

    >>> WeightedBCELoss(positive_weight=2.0)(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(1.0397)
    """

    def __init__(
        self,
        positive_weight: float = 1.0,
        *,
        task: str | None = None,
        ignore_index: int | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)
        self.positive_weight = _at_least_0("WeightedBCELoss", "positive_weight", positive_weight)

    def of_positive(self, logits: Tensor) -> Tensor:
        """-c log p."""
        return self.positive_weight * softplus(-logits)

    def of_negative(self, logits: Tensor) -> Tensor:
        """-log(1 - p)."""
        return softplus(logits)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"positive_weight={self.positive_weight:g}"


class WeightedCrossEntropyLoss(AdditiveLoss):
    """Cross-entropy of exclusive classes, sum(w l) / sum(w): torch's takes weights of classes, not of samples.

    Logits are ``(n, classes, ...)``, labels class numbers ``(n, ...)``, weights one a sample or a label. Labels
    equal to ``ignore_index`` count for nothing.

    >>> WeightedCrossEntropyLoss()(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    """

    def __init__(self, *, ignore_index: int = -100, sync: bool = False) -> None:
        super().__init__(sync=sync)
        self.ignore_index = ignore_index

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The weighted sum of the samples' losses, and the sum of the weights."""
        check_tensors(logits, target, weight)
        if logits.dim() < 2 or target.shape != logits.shape[:1] + logits.shape[2:]:
            raise InvalidValueError(
                f"WeightedCrossEntropyLoss is for logits (n, classes) and class numbers (n,), got "
                f"{tuple(logits.shape)} and {tuple(target.shape)}; for binary or multilabel logits take WeightedBCELoss"
            )
        x, y = logits.to(counting_dtype(logits.dtype)), target.long()
        if looks_at_values(x, None):
            check_labels(torch.where(y == self.ignore_index, 0, y), x.shape[1])
        losses = cross_entropy(x, y, ignore_index=self.ignore_index, reduction="none")
        counts = (y != self.ignore_index).to(losses.dtype)
        if weight is not None:
            spread = spread_weight(weight, tuple(y.shape), tuple(y.shape))
            if looks_at_values(x, None):
                check_weight(spread)
            counts = counts * spread
        return checked(torch.stack([(counts * losses).sum(), counts.sum()]), logits)

    def value(self, statistics: Tensor) -> Tensor:
        """The weighted mean."""
        return ratio(statistics[0], statistics[1])

    def extra_repr(self) -> str:
        """The constructor's argument, where it is not torch's."""
        return "" if self.ignore_index == -100 else f"ignore_index={self.ignore_index}"


class EffectiveNumberBCELoss(WeightedBCELoss):
    r"""Cross-entropy weighted by class, :math:`(1-\beta)/(1-\beta^{n_y})` for a class of n_y samples. Cui et al. 2019.

    ``class_counts`` are the numbers of negatives and positives in the training set.

    >>> EffectiveNumberBCELoss(beta=0.99, class_counts=(90, 10))
    EffectiveNumberBCELoss(beta=0.99, class_counts=(90, 10))
    """

    def __init__(
        self,
        beta: float,
        class_counts: Sequence[int],
        *,
        task: str | None = None,
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
        """-log(1 - p), weighted."""
        return self.negative_weight * softplus(logits)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"beta={self.beta:g}, class_counts={self.class_counts}"


class FocalLoss(PointwiseLoss):
    r"""Cross-entropy times :math:`(1-p)^\gamma` for positives and :math:`p^\gamma` for negatives. Lin et al. 2017.

    ``asymmetric=True`` keeps the factor on the negatives only.

    >>> FocalLoss(gamma=2.0)(torch.tensor([0.0]), torch.tensor([1]))
    tensor(0.1733)
    """

    def __init__(
        self,
        gamma: float,
        asymmetric: bool = False,
        *,
        task: str | None = None,
        ignore_index: int | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)
        self.gamma = _at_least_0("FocalLoss", "gamma", gamma)
        self.asymmetric = asymmetric

    def of_positive(self, logits: Tensor) -> Tensor:
        """-(1 - p)^gamma log p, or -log p."""
        return softplus(-logits) if self.asymmetric else torch.exp(-self.gamma * softplus(logits)) * softplus(-logits)

    def of_negative(self, logits: Tensor) -> Tensor:
        """-p^gamma log(1 - p)."""
        return torch.exp(-self.gamma * softplus(-logits)) * softplus(logits)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"gamma={self.gamma:g}, asymmetric={self.asymmetric}"


class MarginLoss(PointwiseLoss):
    """Cross-entropy that asks for a margin: -log s(x - m) for positives, -log(1 - s(x + m)) for negatives.

    ``asymmetric=True`` keeps the margin on the positives only. Li et al. 2019, as used by Sangalli et al. 2021.

    >>> MarginLoss(margin=1.0)(torch.tensor([1.0]), torch.tensor([1]))
    tensor(0.6931)
    """

    def __init__(
        self,
        margin: float,
        asymmetric: bool = False,
        *,
        task: str | None = None,
        ignore_index: int | None = None,
        sync: bool = False,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)
        self.margin = _at_least_0("MarginLoss", "margin", margin)
        self.asymmetric = asymmetric

    def of_positive(self, logits: Tensor) -> Tensor:
        """-log sigmoid(x - m)."""
        return softplus(self.margin - logits)

    def of_negative(self, logits: Tensor) -> Tensor:
        """-log(1 - sigmoid(x + m)), or with no margin."""
        return softplus(logits if self.asymmetric else logits + self.margin)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"margin={self.margin:g}, asymmetric={self.asymmetric}"


class MAELoss(PointwiseLoss):
    """The absolute error of the two probabilities, 2 y (1-p) + 2 (1-y) p. Lee et al. 2021, Eq. 14.

    >>> MAELoss()(torch.tensor([0.0]), torch.tensor([1]))
    tensor(1.)
    """

    def of_positive(self, logits: Tensor) -> Tensor:
        """2 (1 - p)."""
        return 2 * tails(logits)[1]

    def of_negative(self, logits: Tensor) -> Tensor:
        """2 p."""
        return 2 * tails(logits)[0]


class MSFELoss(ColumnLoss, AdditiveLoss):
    r"""The mean squared false error: each class's mean of :math:`(y-p)^2/2`, squared, added. Wang et al. 2016.

    A class without samples adds nothing. This is no mean over samples: in a distributed run the sums of each class are
    added over the ranks (``sync=True``), so that the gradient is that of the whole batch.

    >>> MSFELoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(0.0312)
    """

    def __init__(self, *, task: str | None = None, ignore_index: int | None = None, sync: bool = True) -> None:
        super().__init__(sync=sync)
        self.set_reading(task, ignore_index)

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """For positives and negatives, the sum of their errors and of their weights."""
        batch = self.columns(logits, target, weight)
        p, q = tails(batch.logits)
        positive, negative = batch.target, 1 - batch.target
        if batch.weight is not None:
            positive, negative = batch.weight * positive, batch.weight * negative
        errors = (positive * q**2 / 2).sum(), (negative * p**2 / 2).sum()
        return checked(torch.stack([*errors, positive.sum(), negative.sum()]), batch.logits)

    def value(self, statistics: Tensor) -> Tensor:
        """The sum over the classes of their squared mean errors."""
        return (ratio(statistics[:2], statistics[2:]) ** 2).sum()


def checked(statistics: Tensor, logits: Tensor) -> Tensor:
    """The statistics, after an explanation where they are not finite and values are looked at."""
    if looks_at_values(logits, None):
        check_finite(statistics.detach(), logits)
    return statistics


def check_prior(owner: str, prior: float) -> float:
    """Refuse a prior that is not a share strictly between 0 and 1."""
    if not 0.0 < prior < 1.0:
        raise InvalidValueError(
            f"{owner}: prior is the share of positives in the training set, strictly between 0 and 1, got {prior}"
        )
    return float(prior)


def _at_least_0(owner: str, name: str, value: float) -> float:
    if not 0.0 <= value < math.inf:
        raise InvalidValueError(f"{owner} needs a finite {name} of at least 0, got {value}")
    return float(value)
