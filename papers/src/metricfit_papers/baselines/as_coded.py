"""The losses of "Bridging the Gap" (Tsoi et al. 2022) as its published code computes them, including its errors.

They show where published numbers come from, and have no other use: the correct losses are ``MetricLoss``,
``SoftAUROCLoss`` and ``WMWLoss``. They were written from scratch after reading the authors' repository.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.core.steps import Step
from metricfit.core.tasks import columns
from metricfit.losses import PairHingeLoss
from metricfit.metrics import get_metric

TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def counts_as_coded(logits: Tensor, target: Tensor, weight: Tensor | None, step: Step, t: Tensor) -> Counts:
    """Return soft counts at every threshold as the code computes them, each of shape ``(thresholds, 1)``.

    If a sample is on the wrong side of the threshold t, its step is evaluated at 1 - t, so that tp + fn is not the
    number of positives. Also, each count sums the step over all samples, and samples of the other class add the step
    of 0: nothing for the Linear step, but 1 / (1 + exp(k t)) per sample for the Sigmoid.
    """
    batch = columns(logits, target, weight, "AsCoded")
    p, y = batch.logits.reshape(-1).sigmoid(), batch.target.reshape(-1)
    w = torch.ones_like(p) if batch.weight is None else batch.weight.reshape(-1)
    t = t.to(p.dtype).unsqueeze(1)
    above, below = p > t, p < t

    def total(is_class: Tensor, score: Tensor, threshold: Tensor) -> Tensor:
        soft: Tensor = step(is_class * score, threshold)
        return (w * soft).sum(-1, keepdim=True)

    up, down = torch.where(below, t, 1 - t), torch.where(below, 1 - t, t)
    return Counts(
        tp=total(y, p, torch.where(above, t, 1 - t)),
        fp=total(1 - y, p, up),
        fn=total(y, 1 - p, down),
        tn=total(1 - y, 1 - p, down),
    )


class MetricAsCoded(nn.Module):
    """One minus the mean over thresholds of a metric of the counts as coded.

    >>> from metricfit.steps import Linear
    >>> loss = MetricAsCoded("f1", Linear(0.2))
    >>> round(loss(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])).item(), 3)
    0.135
    """

    thresholds: Tensor

    def __init__(self, metric: str, step: Step, thresholds: Sequence[float] = TENTHS) -> None:
        super().__init__()
        self.metric, self.step = get_metric(metric), step
        self.register_buffer("thresholds", torch.tensor(thresholds, dtype=torch.float64))

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss of a batch."""
        counts = counts_as_coded(logits, target, weight, self.step, self.thresholds)
        return 1 - self.metric(counts).mean()


class AUROCAsCoded(nn.Module):
    """One minus the area under the points (FPR, TPR) of the counts as coded, sorted by FPR, without (0, 0) and (1, 1).

    The area is therefore at most what the nine points span, and its gradient also spreads the points.
    """

    thresholds: Tensor

    def __init__(self, step: Step, thresholds: Sequence[float] = TENTHS) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("thresholds", torch.tensor(thresholds, dtype=torch.float64))

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss of a batch."""
        counts = counts_as_coded(logits, target, weight, self.step, self.thresholds)
        fpr, tpr = ratio(counts.fp, counts.fp + counts.tn), ratio(counts.tp, counts.tp + counts.fn)
        fpr, order = fpr.squeeze(-1).sort()
        return 1 - torch.trapezoid(tpr.squeeze(-1).gather(0, order), fpr)


class WMWAsCoded(PairHingeLoss):
    """Positives compared with positives, because the code selects the positives twice; a sum over pairs of logits.

    >>> WMWAsCoded()(torch.tensor([0.0, 5.0]), torch.tensor([1, 0]))
    tensor(0.0080)
    """

    def __init__(self, gamma: float = 0.2, power: int = 3) -> None:
        super().__init__(gamma, power)

    def select(self, score: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the positives on both sides."""
        return score, positive, positive

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the sum over pairs."""
        positives = (target.to(logits.dtype) * (1.0 if weight is None else weight)).sum()
        return super().forward(logits, target, weight) * positives**2


class DiceAsCoded(nn.Module):
    """One minus the mean over samples of x y / (x^2 + y^2), x a logit: a Dice coefficient of each sample alone.

    Negatives contribute 0 to it with any score, so that nothing is learned from them.

    Args:
        sigmoid: Whether x is the probability instead, for networks that end in a sigmoid.

    >>> sure = torch.tensor([9.0, 9.0]), torch.tensor([1, 0])
    >>> DiceAsCoded()(*sure), DiceAsCoded(sigmoid=True)(*sure)
    (tensor(0.9451), tensor(0.7500))
    """

    def __init__(self, sigmoid: bool = False) -> None:
        super().__init__()
        self.sigmoid = sigmoid

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of a batch."""
        x, y = logits.reshape(-1), target.reshape(-1).to(logits.dtype)
        x = torch.sigmoid(x) if self.sigmoid else x
        return 1 - (x * y / (x**2 + y**2 + 1e-7)).mean()
