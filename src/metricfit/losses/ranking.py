"""Losses over pairs of a positive and a negative: surrogates of the area under the ROC curve.

Every one takes logits and is a mean over pairs weighted by the product of the two samples' weights; a batch without
pairs gives 0. None builds the pairs: hinge losses sort, square losses need only sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from metricfit.core.batch import Columns
from metricfit.core.counts import Counts, soft_stack
from metricfit.core.numerics import ratio, share, tails
from metricfit.core.pairs import hinge_sums
from metricfit.core.steps import Step, check_threshold
from metricfit.core.task import columns
from metricfit.losses.additive import AdditiveLoss


class _PairLoss(nn.Module):
    """The weighted mean over pairs of ``max(0, margin - (score of the positive - score of the negative))^power``."""

    def __init__(self, margin: float, power: int) -> None:
        super().__init__()
        if not 0.0 < margin < math.inf:
            raise ValueError(f"{type(self).__name__} needs a finite margin above 0, got {margin}")
        if power not in (1, 2, 3):
            raise ValueError(f"{type(self).__name__} needs a power of 1, 2 or 3, got {power}")
        self.margin = float(margin)
        self.power = int(power)

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The mean over pairs."""
        batch = columns(logits, target, weight, type(self).__name__)
        score = self.score(batch.logits)
        positive, negative = sides(batch)
        violations = hinge_sums(score, score + self.margin, negative, self.power)
        return ratio((positive * violations).sum(-1), positive.sum(-1) * negative.sum(-1)).mean()

    def score(self, logits: Tensor) -> Tensor:
        """What is compared: the logits, or a rising function of them."""
        return logits


class PairHingeLoss(_PairLoss):
    """The mean over pairs of max(0, margin - (x+ - x-))^power on logits; squared by default.

    >>> PairHingeLoss()(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]))
    tensor(0.2500)
    """

    def __init__(self, margin: float = 1.0, power: int = 2) -> None:
        super().__init__(margin, power)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"margin={self.margin:g}, power={self.power}"


class WMWLoss(_PairLoss):
    """The mean over pairs of max(0, gamma - (p+ - p-))^power, p = sigmoid(x). Yan et al. 2003.

    The paper's sum over pairs is this times the number of pairs.

    >>> WMWLoss(gamma=0.2, power=3)(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(0.0080)
    """

    def __init__(self, gamma: float = 0.2, power: int = 3) -> None:
        super().__init__(gamma, power)
        self.gamma = self.margin

    def score(self, logits: Tensor) -> Tensor:
        """The probabilities."""
        return tails(logits)[0]

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"gamma={self.gamma:g}, power={self.power}"


class MBAUCLoss(AdditiveLoss):
    r"""The mean over pairs of :math:`(1 - (p_+ - p_-))^2`. Gultekin et al. 2018.

    With means and variances of p over positives and negatives it is
    :math:`(1 - \bar p_+ + \bar p_-)^2 + \mathrm{var}_+ + \mathrm{var}_-`: five sums, no pairs.

    >>> MBAUCLoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(1.)
    """

    def __init__(self, *, sync: bool = False) -> None:
        super().__init__(sync=sync)

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """For positives, in terms of 1 - p, and for negatives, of p: weight, sum, sum of squares."""
        batch = columns(logits, target, weight, "MBAUCLoss")
        p, q = tails(batch.logits)
        return torch.stack(
            [(side * error**k).sum() for side, error in zip(sides(batch), (q, p), strict=True) for k in (0, 1, 2)]
        )

    def value(self, statistics: Tensor) -> Tensor:
        """The mean over pairs; 0 without pairs."""
        (n1, s1, t1), (n0, s0, t0) = statistics.reshape(2, 3)
        mean1, mean0 = ratio(s1, n1), ratio(s0, n0)
        spread = ratio(t1, n1) - mean1**2 + ratio(t0, n0) - mean0**2
        mean: Tensor = (mean1 + mean0) ** 2 + spread
        return torch.where((n1 > 0) & (n0 > 0), mean, 0.0)


class SoftAUROCLoss(AdditiveLoss):
    """One minus the area under the ROC curve of soft counts at several thresholds. Tsoi et al. 2022, Eq. 18.

    The curve is closed by (0, 0) and (1, 1); between thresholds it is a straight line.

    >>> round(SoftAUROCLoss()(torch.tensor([3.0, -3.0]), torch.tensor([1, 0])).item(), 3)
    0.007
    """

    def __init__(
        self,
        thresholds: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        step: Step | None = None,
        *,
        sync: bool = True,
    ) -> None:
        super().__init__(sync=sync)
        self.thresholds = tuple(sorted(float(one) for one in thresholds))
        if not self.thresholds:
            raise ValueError("SoftAUROCLoss needs at least one threshold")
        for one in self.thresholds:
            check_threshold(one)
        self.step = step

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The soft counts at every threshold."""
        columns(logits, target, weight, "SoftAUROCLoss")
        return soft_stack(logits, target, self.step, self.thresholds, weight=weight, validate=None)[0]

    def value(self, statistics: Tensor) -> Tensor:
        """One minus the area."""
        counts = Counts(*statistics)
        tpr, fpr = share(counts.tp, counts.fn), share(counts.fp, counts.tn)
        ends = tpr.new_ones(1, tpr.shape[-1])
        tpr, fpr = (torch.cat([ends, given, torch.zeros_like(ends)]) for given in (tpr, fpr))
        return (1 - torch.trapezoid(tpr.flip(0), fpr.flip(0), dim=0)).mean()

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"thresholds={self.thresholds}"


def sides(batch: Columns) -> tuple[Tensor, Tensor]:
    """How much each sample counts as a positive and as a negative."""
    weight = torch.ones_like(batch.target) if batch.weight is None else batch.weight
    return weight * batch.target, weight * (1 - batch.target)
