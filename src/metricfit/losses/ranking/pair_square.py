"""Square losses over pairs of a positive and a negative, computed from six sums in O(n)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Columns
from metricfit.core.numerics import counting_dtype, exact_dtype, ratio, tails
from metricfit.core.types import Task
from metricfit.losses.base import AdditiveLoss
from metricfit.losses.column_loss import ColumnLoss, weights_by_class
from metricfit.losses.pointwise import check_statistics
from metricfit.losses.ranking.pair_hinge import check_margin


class _SquareLoss(ColumnLoss, AdditiveLoss):
    r"""The mean over pairs of :math:`(e_+ + e_-)^2`, where e is an error of each sample.

    With the means and variances of e over positives and negatives it is
    :math:`(\bar e_+ + \bar e_-)^2 + \mathrm{var}_+ + \mathrm{var}_-`: six sums, no pairs. The sums are in float64,
    because the variances are small differences of large sums.
    """

    def __init__(self, *, task: Task | None = None, ignore_index: int | None = None, sync: bool = True) -> None:
        super().__init__(sync=sync)
        self.set_target_format(task, ignore_index)

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

        The sums are about 0, so that those of several batches add. Scores around 1000 with a standard deviation of 1
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

    def __init__(
        self,
        margin: float = 1.0,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)
        self.margin = check_margin(margin, self)

    def errors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return m/2 - x and m/2 + x."""
        return self.margin / 2 - logits, self.margin / 2 + logits

    def center(self, batch: Columns) -> Columns:
        """Subtract the mean of each column from the logits, in float64; differences of pairs stay the same."""
        x = batch.logits.to(exact_dtype(batch.logits.device))
        total, number = self.over_ranks(check_statistics(torch.stack([x, torch.ones_like(x)]).sum(-1).detach(), x))
        return replace(batch, logits=x - ratio(total, number).unsqueeze(-1))

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"margin={self.margin:g}"


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
