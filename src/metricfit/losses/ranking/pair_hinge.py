"""Hinge losses over pairs of a positive and a negative, computed by sorting in O(n log n)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from metricfit.core.distributed import gather_over_ranks, number_of_ranks
from metricfit.core.kernels.pair_means import pair_means
from metricfit.core.kernels.pairs_sorted import weight_ranks
from metricfit.core.numerics import counting_dtype, ratio, tails
from metricfit.core.types import Task
from metricfit.errors import InvalidValueError
from metricfit.losses.column_loss import ColumnLoss, weights_by_class


class _PairLoss(ColumnLoss):
    """The weighted mean over pairs of ``max(0, margin - (score of the positive - score of the negative))^power``.

    With ``sync`` the samples of all ranks are gathered, in training mode with gradients enabled, so that pairs across
    ranks count and the gradient is that of the whole batch.
    """

    def __init__(self, margin: float, power: int, *, task: Task | None, ignore_index: int | None, sync: bool) -> None:
        super().__init__()
        self.set_target_format(task, ignore_index)
        self.margin = check_margin(margin, self)
        self.power = check_power(power, self)
        self.sync = sync

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the mean over pairs.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample; a pair has the product of its two weights.

        Returns:
            The loss, a scalar; 0 if there are no pairs.
        """
        gathers = self.sync and self.training and torch.is_grad_enabled() and number_of_ranks() > 1
        if weight is None and not gathers and self._takes_as_given(logits, target):
            score = self.score(logits.to(counting_dtype(logits.dtype)))
            return pair_means(score, target, None, self.margin, self.power)
        batch = self.columns(logits, target, weight)
        score, negative = self.score(batch.logits), None
        if gathers or batch.weight is not None or type(self).select is not _PairLoss.select:
            samples = score, *weights_by_class(batch)
            if gathers:
                samples = tuple(gather_over_ranks(torch.stack(samples), dim=-1))
            score, positive, negative = self.select(*samples)
        else:
            positive = batch.target
        means = pair_means(score, positive, negative, self.margin, self.power)
        return means.reshape(()) if means.numel() == 1 else means.mean()

    def _takes_as_given(self, logits: Tensor, target: Tensor) -> bool:
        """Return whether a batch is one row on a CUDA device, of which nothing has to be checked or rearranged.

        There each operation takes longer to start than a small batch to compute.
        """
        if not (isinstance(logits, Tensor) and isinstance(target, Tensor) and logits.device.type == "cuda"):
            return False
        return (
            logits.dim() == 1
            and logits.shape == target.shape
            and target.device == logits.device
            and logits.is_floating_point()
            and not target.is_complex()
            and self.ignore_index is None
            and self.task != "multilabel"
            and type(self).select is _PairLoss.select
        )

    def score(self, logits: Tensor) -> Tensor:
        """Return what is compared: the logits, or an increasing function of them.

        Args:
            logits: Logits of any shape.

        Returns:
            One score per logit, of the same shape.
        """
        return logits

    def select(self, score: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Select the samples to compare, by setting the weights of the others to 0; by default all are kept.

        Args:
            score: The scores, ``(c, n)``.
            positive: The weight of each sample as a positive, ``(c, n)``.
            negative: The weight of each sample as a negative, ``(c, n)``.

        Returns:
            The scores and the two weights.
        """
        return score, positive, negative


class PairHingeLoss(_PairLoss):
    r"""The mean hinge loss over pairs of a positive and a negative, on logits; squared by default.

    .. math:: L = \frac{1}{n_+ n_-} \sum_{j,k} \max(0, m - (x^+_j - x^-_k))^r

    A convex surrogate of one minus the area under the ROC curve (Joachims 2005 with power 1; Yan et al. 2003).

    Args:
        margin: How far a positive should be above a negative, m; above 0.
        power: The exponent r: 1, 2 or 3.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, compare the samples of all ranks.

    Raises:
        ValueError: If the margin or the power is out of range.

    Example:
        >>> PairHingeLoss()(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]))
        tensor(0.2500)
    """

    def __init__(
        self,
        margin: float = 1.0,
        power: int = 2,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(margin, power, task=task, ignore_index=ignore_index, sync=sync)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"margin={self.margin:g}, power={self.power}"


class WMWLoss(_PairLoss):
    r"""The mean hinge loss over pairs, on probabilities: a surrogate of the Wilcoxon-Mann-Whitney statistic.

    .. math:: L = \frac{1}{n_+ n_-} \sum_{j,k} \max(0, \gamma - (p^+_j - p^-_k))^r, \qquad p = \sigma(x)

    Yan et al. 2003. The sum over pairs in the paper is this mean times the number of pairs.

    Args:
        gamma: How far the probability of a positive should be above that of a negative; above 0.
        power: The exponent r: 1, 2 or 3.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, compare the samples of all ranks.

    Raises:
        ValueError: If gamma or the power is out of range.

    Example:
        >>> WMWLoss(gamma=0.2, power=3)(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.0080)
    """

    def __init__(
        self,
        gamma: float = 0.2,
        power: int = 3,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(gamma, power, task=task, ignore_index=ignore_index, sync=sync)
        self.gamma = self.margin

    def score(self, logits: Tensor) -> Tensor:
        """Return the probabilities."""
        return tails(logits)[0]

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"gamma={self.gamma:g}, power={self.power}"


class PartialAUCLoss(_PairLoss):
    r"""The hinge loss over pairs of the hardest positives and the hardest negatives: a part of the ROC curve's area.

    The hardest positives are those with the lowest scores that make up the share :math:`1 - \mathrm{min\_tpr}` of the
    weight of the positives. The hardest negatives are those with the highest scores that make up the share ``max_fpr``
    of the weight of the negatives. At the border a sample, or samples with equal scores, count with a part of their
    weight. With the loss 1 for a pair in the wrong order and 0 otherwise, the value is one minus the area under the ROC
    curve where TPR is at least ``min_tpr`` and FPR at most ``max_fpr``, divided by the area of that corner.

    Dodd and Pepe 2003; both bounds at once: Yang et al. 2019. The gradient is that of the selected pairs.

    Args:
        min_tpr: Lower bound of the true positive rate, at least 0 and below 1.
        max_fpr: Upper bound of the false positive rate, above 0 and at most 1. For a bound of this rate alone, the
            one-way partial area, also pass ``min_tpr=0``.
        margin: How far a positive should be above a negative, in logits; above 0.
        power: The exponent of the hinge: 1, 2 or 3.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, compare the samples of all ranks.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> PartialAUCLoss(min_tpr=0.5)(torch.tensor([3.0, 0.5, 0.0]), torch.tensor([1, 1, 0]))
        tensor(0.2500)
    """

    def __init__(
        self,
        min_tpr: float = 0.95,
        max_fpr: float = 1.0,
        *,
        margin: float = 1.0,
        power: int = 2,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(margin, power, task=task, ignore_index=ignore_index, sync=sync)
        if not 0.0 <= min_tpr < 1.0:
            raise InvalidValueError(f"PartialAUCLoss needs min_tpr of at least 0 and below 1, got {min_tpr}")
        if not 0.0 < max_fpr <= 1.0:
            raise InvalidValueError(f"PartialAUCLoss needs max_fpr above 0 and at most 1, got {max_fpr}")
        self.min_tpr = float(min_tpr)
        self.max_fpr = float(max_fpr)

    def select(self, score: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the weight of the lowest positives and the highest negatives."""
        lowest = _keep_highest(-score, positive, 1 - self.min_tpr)
        return score, lowest, _keep_highest(score, negative, self.max_fpr)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"min_tpr={self.min_tpr:g}, max_fpr={self.max_fpr:g}, margin={self.margin:g}, power={self.power}"


def _keep_highest(score: Tensor, weight: Tensor, share: float) -> Tensor:
    """Keep the weights of the samples with the highest scores that make up a share of the total weight.

    The other samples get the weight 0. Samples with equal scores keep the same share of their weight, so that their
    order does not matter.
    """
    if share == 1.0:
        return weight
    with torch.no_grad():
        higher, same = weight_ranks(score, weight)
        total = weight.sum(-1, keepdim=True, dtype=higher.dtype)
        kept = ratio(share * total - higher, same).clamp(0.0, 1.0)
    return weight * kept.to(weight.dtype)


def check_margin(margin: float, owner: nn.Module) -> float:
    """Return the margin; raise an error if it is not finite and above 0."""
    if not 0.0 < margin < math.inf:
        raise InvalidValueError(f"{type(owner).__name__} needs a finite margin above 0, got {margin}")
    return float(margin)


def check_power(power: int, owner: nn.Module) -> int:
    """Return the exponent of a hinge; raise an error if it is not 1, 2 or 3."""
    if power not in (1, 2, 3):
        raise InvalidValueError(f"{type(owner).__name__} needs a power of 1, 2 or 3, got {power}")
    return int(power)
