"""Losses over pairs of a positive and a negative: surrogates of the area under the ROC curve, or of a part of it.

Every one takes logits; a batch without pairs gives 0 with a zero gradient, and several labels the mean over their
losses. All but SoftAUROCLoss are means over pairs weighted by the product of the two samples' weights. None builds the
pairs: hinge losses sort, square losses need only sums.

``task`` is "binary" or "multilabel" where the shapes do not tell, ``ignore_index`` the target of samples that count for
nothing, and ``sync`` takes the samples or sums of all ranks of a distributed run.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Columns
from metricfit.core.counts import Counts
from metricfit.core.distributed import gather_over_ranks, number_of_ranks
from metricfit.core.kernels.pairs import hinge_sums, violations
from metricfit.core.numerics import counting_dtype, exact_dtype, ratio, share, tails
from metricfit.core.steps import Step, check_threshold
from metricfit.errors import InvalidValueError
from metricfit.losses.base import AdditiveLoss
from metricfit.losses.columns import ColumnLoss
from metricfit.losses.pointwise import checked


class _PairLoss(ColumnLoss):
    """The weighted mean over pairs of ``max(0, margin - (score of the positive - score of the negative))^power``.

    With ``sync`` the samples of all ranks are gathered, in training mode with gradients enabled, so that pairs across
    ranks count and the gradient is that of the whole batch.
    """

    def __init__(self, margin: float, power: int, *, task: str | None, ignore_index: int | None, sync: bool) -> None:
        super().__init__()
        self.set_reading(task, ignore_index)
        self.margin = _finite_above_0(margin, self)
        if power not in (1, 2, 3):
            raise InvalidValueError(f"{type(self).__name__} needs a power of 1, 2 or 3, got {power}")
        self.power = int(power)
        self.sync = sync

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The mean over pairs."""
        batch = self.columns(logits, target, weight)
        samples = self.score(batch.logits), *sides(batch)
        if self.sync and self.training and torch.is_grad_enabled() and number_of_ranks() > 1:
            samples = tuple(gather_over_ranks(torch.stack(samples), dim=-1))
        score, positive, negative = self.chosen(*samples)
        sums = checked(violations(score, negative, self.margin, self.power), score)
        return ratio((positive * sums).sum(-1), positive.sum(-1) * negative.sum(-1)).mean()

    def score(self, logits: Tensor) -> Tensor:
        """What is compared: the logits, or a rising function of them."""
        return logits

    def chosen(self, score: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The scores, and how much each sample counts as a positive and as a negative: all of them, or fewer."""
        return score, positive, negative


class PairHingeLoss(_PairLoss):
    """The mean over pairs of max(0, margin - (x+ - x-))^power on logits; squared by default.

    >>> PairHingeLoss()(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]))
    tensor(0.2500)
    """

    def __init__(
        self,
        margin: float = 1.0,
        power: int = 2,
        *,
        task: str | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(margin, power, task=task, ignore_index=ignore_index, sync=sync)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"margin={self.margin:g}, power={self.power}"


class WMWLoss(_PairLoss):
    """The mean over pairs of max(0, gamma - (p+ - p-))^power, p = sigmoid(x). Yan et al. 2003.

    The paper's sum over pairs is this times the number of pairs.

    >>> WMWLoss(gamma=0.2, power=3)(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(0.0080)
    """

    def __init__(
        self,
        gamma: float = 0.2,
        power: int = 3,
        *,
        task: str | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(gamma, power, task=task, ignore_index=ignore_index, sync=sync)
        self.gamma = self.margin

    def score(self, logits: Tensor) -> Tensor:
        """The probabilities."""
        return tails(logits)[0]

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"gamma={self.gamma:g}, power={self.power}"


class PartialAUCLoss(_PairLoss):
    r"""The squared hinge over pairs of the hardest positives and the hardest negatives: a part of the ROC curve's area.

    The hardest positives are those with the lowest scores that make up the share :math:`1 - \mathrm{min\_tpr}` of the
    positives' weight; the hardest negatives those with the highest scores that make up the share ``max_fpr``. Where the
    border runs through a sample, or through equal scores, that part of their weight counts. With a loss of 1 for a pair
    in the wrong order and 0 otherwise it is one minus the area under the ROC curve where TPR is at least ``min_tpr``
    and FPR at most ``max_fpr``, divided by the area of that corner: what FPR at a high TPR depends on, and nothing
    else. (Dodd and Pepe 2003; both bounds at once: Yang et al. 2019.) The gradient is that of the pairs chosen.

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
        task: str | None = None,
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

    def chosen(self, score: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the positives the lowest, of the negatives the highest."""
        return score, _highest(-score, positive, 1 - self.min_tpr), _highest(score, negative, self.max_fpr)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"min_tpr={self.min_tpr:g}, max_fpr={self.max_fpr:g}, margin={self.margin:g}, power={self.power}"


class _SquareLoss(ColumnLoss, AdditiveLoss):
    r"""The mean over pairs of :math:`(e_+ + e_-)^2`, e being an error of each sample.

    With means and variances of e over positives and negatives it is
    :math:`(\bar e_+ + \bar e_-)^2 + \mathrm{var}_+ + \mathrm{var}_-`: six sums, no pairs. They are made in
    float64, for the variances are differences.
    """

    def __init__(self, *, task: str | None = None, ignore_index: int | None = None, sync: bool = True) -> None:
        super().__init__(sync=sync)
        self.set_reading(task, ignore_index)

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The mean over pairs."""
        batch = self.columns(logits, target, weight)
        return self.value(self.over_ranks(self.sums(self.centred(batch)))).to(counting_dtype(logits.dtype))

    @abstractmethod
    def errors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The error of each sample as a positive and as a negative."""

    def centred(self, batch: Columns) -> Columns:
        """The batch, less an offset of its logits where that changes nothing but rounding."""
        return batch

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Of the positives, then of the negatives: weight, sum and sum of squares of the errors; ``(6, c)``.

        About 0, so that they add from batch to batch: scores around 1000 with a spread of 1 lose 6 of its 16 digits.
        """
        return self.sums(self.columns(logits, target, weight))

    def sums(self, batch: Columns) -> Tensor:
        """The six sums of a batch."""
        exact = exact_dtype(batch.logits.device)
        errors = self.errors(batch.logits.to(exact))
        both = zip((side.to(exact) for side in sides(batch)), errors, strict=True)
        return checked(
            torch.stack([(side * error**k).sum(-1) for side, error in both for k in (0, 1, 2)]), batch.logits
        )

    def value(self, statistics: Tensor) -> Tensor:
        """The mean over pairs; 0 without pairs."""
        (n1, s1, t1), (n0, s0, t0) = statistics.reshape(2, 3, -1)
        mean1, mean0 = ratio(s1, n1), ratio(s0, n0)
        spread = ratio(t1, n1) - mean1**2 + ratio(t0, n0) - mean0**2
        return torch.where((n1 > 0) & (n0 > 0), (mean1 + mean0) ** 2 + spread, 0.0).mean()


class PairSquareLoss(_SquareLoss):
    """The mean over pairs of (margin - (x+ - x-))^2 on logits, from six sums. Gao et al. 2013.

    A pair that is in order by more than the margin costs too; where that is not wanted take ``PairHingeLoss``. The sums
    are about the mean logit of the batch, over all ranks, so that an offset of all logits costs no digits.

    >>> PairSquareLoss()(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]))
    tensor(0.2500)
    """

    def __init__(
        self,
        margin: float = 1.0,
        *,
        task: str | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, sync=sync)
        self.margin = _finite_above_0(margin, self)

    def errors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Half the margin less the logit, and half the margin and the logit."""
        return self.margin / 2 - logits, self.margin / 2 + logits

    def centred(self, batch: Columns) -> Columns:
        """The logits in float64, less each column's mean: pairs see only differences."""
        x = batch.logits.to(exact_dtype(batch.logits.device))
        total, number = self.over_ranks(checked(torch.stack([x, torch.ones_like(x)]).sum(-1).detach(), x))
        return replace(batch, logits=x - ratio(total, number).unsqueeze(-1))

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"margin={self.margin:g}"


class MBAUCLoss(_SquareLoss):
    r"""The mean over pairs of :math:`(1 - (p_+ - p_-))^2`, from six sums. Gultekin et al. 2018.

    >>> MBAUCLoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(1.)
    """

    def errors(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """1 - p and p."""
        p, q = tails(logits)
        return q, p


class SoftAUROCLoss(ColumnLoss, AdditiveLoss):
    """One minus the area under the ROC curve of soft counts at several thresholds. Tsoi et al. 2022, Eq. 18.

    The curve is closed by (0, 0) and (1, 1); between thresholds it is a straight line. Without positives, or without
    negatives, there is no curve, and the loss is 0 with a zero gradient.

    >>> round(SoftAUROCLoss()(torch.tensor([3.0, -3.0]), torch.tensor([1, 0])).item(), 3)
    0.007
    """

    def __init__(
        self,
        thresholds: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        step: Step | None = None,
        *,
        task: str | None = None,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(sync=sync)
        self.set_reading(task, ignore_index)
        self.thresholds = tuple(sorted(float(one) for one in thresholds))
        if not self.thresholds:
            raise InvalidValueError("SoftAUROCLoss needs at least one threshold")
        for one in self.thresholds:
            check_threshold(one)
        self.step = step

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Counts:
        """The soft counts at every threshold."""
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
        """One minus the area; 0 without pairs."""
        counts = statistics
        tpr, fpr = share(counts.tp, counts.fn), share(counts.fp, counts.tn)
        ends = tpr.new_ones(1, tpr.shape[-1])
        tpr, fpr = (torch.cat([ends, given, torch.zeros_like(ends)]) for given in (tpr, fpr))
        above = 1 - torch.trapezoid(tpr.flip(0), fpr.flip(0), dim=0)
        no_pairs = (counts.positives[0] == 0) | (counts.negatives[0] == 0)
        return above.masked_fill(no_pairs, 0.0).mean()

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"thresholds={self.thresholds}"


def sides(batch: Columns) -> tuple[Tensor, Tensor]:
    """How much each sample counts as a positive and as a negative."""
    weight = torch.ones_like(batch.target) if batch.weight is None else batch.weight
    return weight * batch.target, weight * (1 - batch.target)


def _highest(score: Tensor, weight: Tensor, part: float) -> Tensor:
    """The weights of the samples with the highest scores that make up a part of the whole weight, 0 for the others.

    Samples of equal score are cut by the same share of their weight, so that their order means nothing.
    """
    if part == 1.0:
        return weight
    with torch.no_grad():
        exact = exact_dtype(score.device)
        f, w = score.to(exact), weight.to(exact)
        total, higher, lower = w.sum(-1, keepdim=True), hinge_sums(f, f, w, 0), hinge_sums(-f, -f, w, 0)
        kept = ratio(part * total - higher, total - higher - lower).clamp(0.0, 1.0)
    return weight * kept.to(weight.dtype)


def _finite_above_0(margin: float, owner: nn.Module) -> float:
    if not 0.0 < margin < math.inf:
        raise InvalidValueError(f"{type(owner).__name__} needs a finite margin above 0, got {margin}")
    return float(margin)
