"""Losses of logits: any metric of counts, surrogates, weighted cross-entropies, losses over pairs, and sums of them.

The modules hold more: `surrogate` the Tversky form, `ranking` a part of the ROC curve's area, `base` what a loss of
sums derives from, `accumulation` the backward pass in chunks.
"""

from metricfit._extras import explain_missing

with explain_missing(__name__, ("torch",), "metricfit[torch]"):
    from metricfit.losses.combine import ClassBalanced, Mix
    from metricfit.losses.cross_entropy import LDAMLoss, LogitAdjustedLoss, WeightedCrossEntropyLoss
    from metricfit.losses.memory import RunningCounts
    from metricfit.losses.metric_loss import MetricLoss
    from metricfit.losses.pointwise import (
        EffectiveNumberBCELoss,
        FocalLoss,
        MAELoss,
        MarginLoss,
        MSFELoss,
        WeightedBCELoss,
    )
    from metricfit.losses.ranking import (
        AveragePrecisionLoss,
        MBAUCLoss,
        PairHingeLoss,
        PairSquareLoss,
        SoftAUROCLoss,
        WMWLoss,
    )
    from metricfit.losses.segmentation import LovaszLoss
    from metricfit.losses.surrogate import SurrogateFBetaLoss

__all__ = [
    "AveragePrecisionLoss",
    "ClassBalanced",
    "EffectiveNumberBCELoss",
    "FocalLoss",
    "LDAMLoss",
    "LogitAdjustedLoss",
    "LovaszLoss",
    "MAELoss",
    "MBAUCLoss",
    "MSFELoss",
    "MarginLoss",
    "MetricLoss",
    "Mix",
    "PairHingeLoss",
    "PairSquareLoss",
    "RunningCounts",
    "SoftAUROCLoss",
    "SurrogateFBetaLoss",
    "WMWLoss",
    "WeightedBCELoss",
    "WeightedCrossEntropyLoss",
]
