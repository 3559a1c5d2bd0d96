"""AveragePrecisionLoss: a surrogate of the average precision, computed by sorting in O(n log n)."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.distributed import gather_over_ranks, number_of_ranks
from metricfit.core.kernels.pairs import violations
from metricfit.core.numerics import ratio, share
from metricfit.core.types import Task
from metricfit.core.validation import check_finite, looks_at_values
from metricfit.losses.column_loss import ColumnLoss, weights_by_class
from metricfit.losses.ranking.pair_hinge import check_margin, check_power


class AveragePrecisionLoss(ColumnLoss):
    r"""One minus a surrogate of the average precision: hinges instead of ranks. Qi et al. 2021 (SOAP), Eq. 4.

    .. math:: L = 1 - \frac{1}{n_+} \sum_{i \in P} \frac{\sum_{j \in P} h_{ij}}{\sum_{j} h_{ij}}, \qquad
        h_{ij} = \max(0, m - (x_i - x_j))^r

    With :math:`h_{ij} = 1` where :math:`x_j \ge x_i` and 0 elsewhere, the fraction is the precision at the score of
    positive i and the loss is one minus the average precision. Value and gradient are those of all samples of the
    batch, exactly: both sums over j come from sorted scores. The loss is 0 if every positive is above every negative by
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

    def __init__(
        self,
        margin: float = 1.0,
        power: int = 2,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__()
        self.set_target_format(task, ignore_index)
        self.margin, self.power = check_margin(margin, self), check_power(power, self)
        self.sync = sync

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
        if self.sync and self.training and torch.is_grad_enabled() and number_of_ranks() > 1:
            samples = tuple(gather_over_ranks(torch.stack(samples), dim=-1))
        score, positive, negative = samples
        # One after the other: a single row has the quickest sort.
        by_positives, by_negatives = (violations(score, w, self.margin, self.power) for w in (positive, negative))
        if looks_at_values(score, None):
            check_finite(by_positives.detach() + by_negatives.detach(), score)
        false_positives = share(by_negatives, by_positives)  # 1 - precision at the score of each sample
        return ratio((positive * false_positives).sum(-1), positive.sum(-1)).mean()

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"margin={self.margin:g}, power={self.power}"
