"""Losses of logits: any metric of counts, surrogates, weighted cross-entropies, losses over pairs, and sums of them."""

from metricfit.core.class_shares import OneHotTargetWarning
from metricfit.losses.accumulation import backward_in_chunks
from metricfit.losses.adversarial.adversarial_loss import AdversarialLoss
from metricfit.losses.base import AdditiveLoss
from metricfit.losses.class_surrogates import GeneralizedCrossEntropyLoss, MulticlassSurrogateLoss
from metricfit.losses.combine import ClassBalanced, Mix
from metricfit.losses.cross_entropy import (
    EffectiveNumberBCELoss,
    FocalLoss,
    MarginLoss,
    WeightedBCELoss,
    WeightedCrossEntropyLoss,
)
from metricfit.losses.gradient_watch import DeadGradientWarning, StalledLossWarning
from metricfit.losses.long_tail import LDAMLoss, LogitAdjustedLoss
from metricfit.losses.lovasz import LovaszLoss
from metricfit.losses.memory import RunningCounts
from metricfit.losses.metric_loss import MetricLoss
from metricfit.losses.probability_errors import MAELoss, MSFELoss
from metricfit.losses.ranking import (
    AveragePrecisionLoss,
    MBAUCLoss,
    PairHingeLoss,
    PairSquareLoss,
    PartialAUCLoss,
    SoftAUROCLoss,
    WMWLoss,
)
from metricfit.losses.surrogate import SurrogateFBetaLoss, SurrogateTverskyLoss

__all__ = [
    "AdditiveLoss",
    "AdversarialLoss",
    "AveragePrecisionLoss",
    "ClassBalanced",
    "DeadGradientWarning",
    "EffectiveNumberBCELoss",
    "FocalLoss",
    "GeneralizedCrossEntropyLoss",
    "LDAMLoss",
    "LogitAdjustedLoss",
    "LovaszLoss",
    "MAELoss",
    "MBAUCLoss",
    "MSFELoss",
    "MarginLoss",
    "MetricLoss",
    "Mix",
    "MulticlassSurrogateLoss",
    "OneHotTargetWarning",
    "PairHingeLoss",
    "PairSquareLoss",
    "PartialAUCLoss",
    "RunningCounts",
    "SoftAUROCLoss",
    "StalledLossWarning",
    "SurrogateFBetaLoss",
    "SurrogateTverskyLoss",
    "WMWLoss",
    "WeightedBCELoss",
    "WeightedCrossEntropyLoss",
    "backward_in_chunks",
]
