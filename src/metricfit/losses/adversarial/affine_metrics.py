"""Metrics that are affine in the true positives once the numbers of predicted and true positives are fixed."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError
from metricfit.metrics.metric import Metric

#: Maximum number of values of tp that are tried at each pair of margins.
TRIED = 9
#: Maximum distance of a value from the straight line, as a share of the largest value.
STRAIGHT = 1e-9


def affine_in_tp(metric: Metric, n: int) -> tuple[Tensor, Tensor]:
    """Find slope and offset of a metric that is affine in tp: value = slope[k, l] tp + offset[k, l].

    Of n samples, k are predicted to be positive and l are positive. The other counts follow from tp, because
    tn = n - k - l + tp. The formula is evaluated at every pair (k, l) and up to 9 values of tp, which are all of them
    for n < 18. F1, 2 tp / (k + l), is affine, and so are MCC and kappa; the G-mean and the Jaccard index are not.
    If k or l is 0 or n, only one tp is possible and the slope is 0.

    Args:
        metric: The metric.
        n: Number of samples.

    Returns:
        Slope and offset, both ``(n + 1, n + 1)`` in float64.

    Raises:
        ValueError: If the metric is not affine in tp, or not finite.

    Example:
        >>> from metricfit.metrics import f1
        >>> slope, offset = affine_in_tp(f1, 4)
        >>> slope[2, 1], offset[2, 1]
        (tensor(0.6667, dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    sizes = torch.arange(n + 1, dtype=torch.float64)
    predicted, positive = sizes.unsqueeze(1), sizes
    rest = n - predicted - positive
    fewest, most = (-rest).clamp_min(0.0), torch.minimum(predicted, positive)
    fractions = torch.linspace(0.0, 1.0, min(TRIED, n // 2 + 1) if n else 1, dtype=torch.float64)
    tp = (fewest + fractions.reshape(-1, 1, 1) * (most - fewest)).round()
    tables = Counts(*(cell.unsqueeze(-1) for cell in (tp, predicted - tp, positive - tp, rest + tp)))
    value = metric(tables).reshape(tp.shape)
    if not bool(value.isfinite().all()):
        raise InvalidValueError(
            f"{metric.name} is not finite for some tables of {n} samples; see metricfit.metrics.ratio"
        )
    width = most - fewest
    slope = torch.where(width > 0, (value[-1] - value[0]) / width.clamp_min(1.0), 0.0)
    offset = value[0] - slope * fewest
    bend = (value - slope * tp - offset).abs().amax(0)
    if float(bend.max()) > STRAIGHT * max(1.0, float(value.abs().max())):
        worst = int(bend.argmax())
        raise InvalidValueError(
            f"{metric.name} is not affine in the true positives at fixed margins: with {worst // (n + 1)} predicted "
            f"and {worst % (n + 1)} true positives of {n} samples it is {float(bend.max()):.2g} off a straight line. "
            "Adversarial prediction is for metrics such as accuracy, f1, fbeta, precision, recall, specificity, "
            "balanced_accuracy, mcc and kappa; MetricLoss takes any"
        )
    return slope, offset
