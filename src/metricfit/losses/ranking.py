"""Losses over pairs of samples: surrogates of the area under the ROC curve, of a part of it, and of average precision.

All of them take logits. A batch without pairs gives 0 with a zero gradient; several labels give the mean of their
losses. All but SoftAUROCLoss and AveragePrecisionLoss are means over pairs of a positive and a negative, weighted by
the product of the weights of the two samples. No loss builds the pairs: the hinge losses sort, the square losses
need only sums. They are an idea of their own, which is why a module holds them that only the package imports.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Columns
from metricfit.core.counts import Counts
from metricfit.core.distributed import gather_over_ranks
from metricfit.core.kernels.pairs import pair_means, violations, weight_ranks
from metricfit.core.numerics import ratio, share
from metricfit.core.steps import Step
from metricfit.core.tensor_numerics import counting_dtype, exact_dtype, tails
from metricfit.core.thresholds import check_threshold
from metricfit.core.validation import check_finite, looks_at_values
from metricfit.errors import InvalidValueError
from metricfit.losses.base import AdditiveLoss, ColumnLoss, check_nonnegative, check_statistics, weights_by_class

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from metricfit.losses.base import ColumnOptions


class _HingeLoss(ColumnLoss):
    """A loss of hinges over pairs, ``max(0, margin - difference of the scores)^power``."""

    def __init__(self, margin: float = 1.0, power: int = 2, **options: Unpack[ColumnOptions]) -> None:
        super().__init__(**options)
        self.margin = check_nonnegative(type(self).__name__, "margin", margin, or_zero=False)
        if power not in (1, 2, 3):
            raise InvalidValueError(f"{type(self).__name__} needs a power of 1, 2 or 3, got {power}")
        self.power = int(power)


class _PairLoss(_HingeLoss):
    """The weighted mean over pairs of ``max(0, margin - (score of the positive - score of the negative))^power``.

    With ``sync`` the samples of all ranks are gathered, in training mode with gradients enabled, so that pairs across
    ranks count and the gradient is taken over the whole batch.
    """

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the mean over pairs.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample; a pair has the product of its two weights.

        Returns:
            The loss, a scalar; 0 if there are no pairs.
        """
        batch = self.columns(logits, target, weight)
        score, negative = self.score(batch.logits), None
        gathers = self.spans_ranks
        if gathers or batch.weight is not None or type(self).select is not _PairLoss.select:
            samples = score, *weights_by_class(batch)
            if gathers:
                samples = tuple(gather_over_ranks(torch.stack(samples), dim=-1))
            score, positive, negative = self.select(*samples)
        else:
            positive = batch.target
        means = pair_means(score, positive, negative, self.margin, self.power)
        return means.reshape(()) if means.numel() == 1 else means.mean()

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


class WMWLoss(_PairLoss):
    r"""The mean hinge loss over pairs, on probabilities: a surrogate of the Wilcoxon-Mann-Whitney statistic.

    .. math:: L = \frac{1}{n_+ n_-} \sum_{j,k} \max(0, \gamma - (p^+_j - p^-_k))^r, \qquad p = \sigma(x)

    Yan et al. 2003. The sum over pairs in the paper is this mean times the number of pairs.

    Args:
        gamma: How far the probability of a positive should be above the probability of a negative; above 0.
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

    def __init__(self, gamma: float = 0.2, power: int = 3, **options: Unpack[ColumnOptions]) -> None:
        super().__init__(gamma, power, **options)
        self.gamma = self.margin

    def score(self, logits: Tensor) -> Tensor:
        """Return the probabilities."""
        return tails(logits)[0]


class PartialAUCLoss(_PairLoss):
    r"""The hinge loss over pairs of the hardest positives and the hardest negatives: a part of the ROC curve's area.

    The hardest positives are those with the lowest scores that make up the share :math:`1 - \mathrm{min\_tpr}` of the
    weight of the positives. The hardest negatives are those with the highest scores that make up the share ``max_fpr``
    of the weight of the negatives. At the border a sample, or samples with equal scores, count with a part of their
    weight. With the loss 1 for a pair in the wrong order and 0 otherwise, the value is one minus the area under the ROC
    curve where TPR is at least ``min_tpr`` and FPR at most ``max_fpr``, divided by the area of that corner.

    Dodd and Pepe 2003; both bounds at once: Yang et al. 2019. The gradient is taken over the selected pairs.

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
        **options: Unpack[ColumnOptions],
    ) -> None:
        super().__init__(margin, power, **options)
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


class AveragePrecisionLoss(_HingeLoss):
    r"""One minus a surrogate of the average precision: hinges instead of ranks. Qi et al. 2021 (SOAP), Eq. 4.

    .. math:: L = 1 - \frac{1}{n_+} \sum_{i \in P} \frac{\sum_{j \in P} h_{ij}}{\sum_{j} h_{ij}}, \qquad
        h_{ij} = \max(0, m - (x_i - x_j))^r

    With :math:`h_{ij} = 1` where :math:`x_j \ge x_i` and 0 elsewhere, the fraction is the precision at the score of
    positive i. The loss is then one minus the average precision. Value and gradient are exact for all samples of
    the batch: both sums over j come from sorted scores. The loss is 0 if every positive is above every negative by
    the margin.

    Args:
        margin: How far a positive should be above a negative, m; above 0.
        power: The exponent r: 1, 2 or 3.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, compare the samples of all ranks.

    Raises:
        ValueError: If the margin or the power is out of range.

    Example:
        >>> AveragePrecisionLoss()(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1, 0, 0]))
        tensor(0.5000)
    """

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample: a sample of weight 2 counts as two equal ones.

        Returns:
            The loss, a scalar: the mean over several labels. Labels without positives or without negatives have the
            loss 0.
        """
        batch = self.columns(logits, target, weight)
        samples = batch.logits, *weights_by_class(batch)
        if self.spans_ranks:
            samples = tuple(gather_over_ranks(torch.stack(samples), dim=-1))
        score, positive, negative = samples
        by_positives, by_negatives = violations(score, torch.stack([positive, negative]), self.margin, self.power)
        if looks_at_values(score, None):
            check_finite(by_positives.detach() + by_negatives.detach(), score)
        false_positives = share(by_negatives, by_positives)  # 1 - precision at the score of each sample
        return ratio((positive * false_positives).sum(-1), positive.sum(-1)).mean()


class _SquareLoss(ColumnLoss, AdditiveLoss):
    r"""The mean over pairs of :math:`(e_+ + e_-)^2`, where e is an error of each sample.

    With the means and variances of e over positives and negatives it is
    :math:`(\bar e_+ + \bar e_-)^2 + \mathrm{var}_+ + \mathrm{var}_-`: six sums, no pairs. The sums are in float64,
    because the variances are small differences of large sums.
    """

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the mean over pairs.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample; a pair has the product of its two weights.

        Returns:
            The loss, a scalar; 0 if there are no pairs.
        """
        batch = self.columns(logits, target, weight)
        loss = self.value(self.over_ranks(self.sums(self.center(batch))))
        return check_statistics(loss.to(counting_dtype(logits.dtype)), logits)  # a sum may overflow float32 alone

    @abstractmethod
    def errors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the error of each sample as a positive and as a negative.

        Args:
            logits: Logits of any shape.

        Returns:
            Two tensors of the same shape.
        """

    def center(self, batch: Columns) -> Columns:
        """Subtract an offset from the logits if that changes nothing but rounding.

        Args:
            batch: Logits, target and weight of shape ``(c, n)``.

        Returns:
            The batch with other logits, or the same batch.
        """
        return batch

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return weight, sum and sum of squares of the errors, of the positives and then of the negatives: ``(6, c)``.

        The sums are about 0, so that the sums of several batches add. Scores around 1000 with a standard deviation of 1
        therefore lose 6 of their 16 digits.
        """
        return self.sums(self.columns(logits, target, weight))

    def sums(self, batch: Columns) -> Tensor:
        """Return the six sums of a batch.

        Args:
            batch: Logits, target and weight of shape ``(c, n)``.

        Returns:
            The statistics, ``(6, c)``.
        """
        exact = exact_dtype(batch.logits.device)
        errors = self.errors(batch.logits.to(exact))
        classes = zip((weight.to(exact) for weight in weights_by_class(batch)), errors, strict=True)
        return check_statistics(
            torch.stack([(weight * error**k).sum(-1) for weight, error in classes for k in (0, 1, 2)]), batch.logits
        )

    def value(self, statistics: Tensor) -> Tensor:
        """Return the mean over pairs; 0 without pairs."""
        (n1, s1, t1), (n0, s0, t0) = statistics.reshape(2, 3, -1)
        mean1, mean0 = ratio(s1, n1), ratio(s0, n0)
        variance = ratio(t1, n1) - mean1**2 + ratio(t0, n0) - mean0**2
        return torch.where((n1 > 0) & (n0 > 0), (mean1 + mean0) ** 2 + variance, 0.0).mean()


class PairSquareLoss(_SquareLoss):
    r"""The mean square loss over pairs of a positive and a negative, on logits. Gao et al. 2013.

    .. math:: L = \frac{1}{n_+ n_-} \sum_{j,k} (m - (x^+_j - x^-_k))^2

    Pairs that are in order by more than the margin also cost something; ``PairHingeLoss`` does not penalise them. The
    sums are about the mean logit of the batch, over all ranks, so that an offset of all logits costs no precision.

    Args:
        margin: How far a positive should be above a negative, m; above 0.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, sum the statistics over the ranks.

    Raises:
        ValueError: If the margin is not above 0 and finite.

    Example:
        >>> PairSquareLoss()(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]))
        tensor(0.2500)
    """

    def __init__(self, margin: float = 1.0, **options: Unpack[ColumnOptions]) -> None:
        super().__init__(**options)
        self.margin = check_nonnegative(type(self).__name__, "margin", margin, or_zero=False)

    def errors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return m/2 - x and m/2 + x."""
        return self.margin / 2 - logits, self.margin / 2 + logits

    def center(self, batch: Columns) -> Columns:
        """Subtract the mean of each column from the logits, in float64; differences of pairs stay the same."""
        x = batch.logits.to(exact_dtype(batch.logits.device))
        total, number = self.over_ranks(check_statistics(torch.stack([x, torch.ones_like(x)]).sum(-1).detach(), x))
        return replace(batch, logits=x - ratio(total, number).unsqueeze(-1))


class MBAUCLoss(_SquareLoss):
    r"""The mean square loss over pairs of a positive and a negative, on probabilities. Gultekin et al. 2018.

    .. math:: L = \frac{1}{n_+ n_-} \sum_{j,k} (1 - (p^+_j - p^-_k))^2, \qquad p = \sigma(x)

    Args:
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, sum the statistics over the ranks.

    Raises:
        ValueError: If the task is "multiclass" or unknown.

    Example:
        >>> MBAUCLoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(1.)
    """

    def errors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return 1 - p and p."""
        p, q = tails(logits)
        return q, p


class SoftAUROCLoss(ColumnLoss, AdditiveLoss):
    r"""One minus the area under the ROC curve of soft counts at several thresholds. Tsoi et al. 2022, Eq. 18.

    .. math:: L = 1 - \sum_t \tfrac12 (\mathrm{TPR}_t + \mathrm{TPR}_{t+1}) (\mathrm{FPR}_t - \mathrm{FPR}_{t+1})

    The points (0, 0) and (1, 1) are added, and the curve is linear between thresholds. Without positives, or without
    negatives, there is no curve: the loss is 0 with a zero gradient.

    Args:
        thresholds: Probabilities at which the counts are taken.
        step: The soft decision; by default Linear(0.1).
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, sum the counts over the ranks.

    Raises:
        ValueError: If there are no thresholds, or one is not strictly between 0 and 1.

    Example:
        >>> round(SoftAUROCLoss()(torch.tensor([3.0, -3.0]), torch.tensor([1, 0])).item(), 3)
        0.007
    """

    def __init__(
        self,
        thresholds: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        step: Step | None = None,
        **options: Unpack[ColumnOptions],
    ) -> None:
        super().__init__(**options)
        self.thresholds = tuple(sorted(float(threshold) for threshold in thresholds))
        if not self.thresholds:
            raise InvalidValueError("SoftAUROCLoss needs at least one threshold")
        for threshold in self.thresholds:
            check_threshold(threshold)
        self.step = step

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Counts:
        """Return the soft counts at every threshold."""
        self.columns(logits, target, weight)  # refuses multiclass logits
        return Counts.soft(
            logits,
            target,
            step=self.step,
            threshold=self.thresholds,
            task=self.task,
            weight=weight,
            ignore_index=self.ignore_index,
        )

    def value(self, statistics: Counts) -> Tensor:
        """Return one minus the area; 0 without pairs."""
        counts = statistics
        tpr, fpr = share(counts.tp, counts.fn), share(counts.fp, counts.tn)
        ends = tpr.new_ones(1, tpr.shape[-1])
        tpr, fpr = (torch.cat([ends, rate, torch.zeros_like(ends)]) for rate in (tpr, fpr))
        loss = 1 - torch.trapezoid(tpr.flip(0), fpr.flip(0), dim=0)
        no_pairs = (counts.positives[0] == 0) | (counts.negatives[0] == 0)
        return loss.masked_fill(no_pairs, 0.0).mean()
