"""Losses over pairs of samples: surrogates of the area under the ROC curve, of a part of it, and of average precision.

All of them take logits. A batch without pairs gives 0 with a zero gradient; several labels give the mean of their
losses. All but SoftAUROCLoss and AveragePrecisionLoss are means over pairs of a positive and a negative, weighted by
the product of the weights of the two samples. None of them builds the pairs: the hinge losses sort, the square losses
need only sums.
"""

from metricfit.losses.ranking.average_precision import AveragePrecisionLoss
from metricfit.losses.ranking.pair_hinge import PairHingeLoss, PartialAUCLoss, WMWLoss
from metricfit.losses.ranking.pair_square import MBAUCLoss, PairSquareLoss
from metricfit.losses.ranking.soft_auroc import SoftAUROCLoss

__all__ = [
    "AveragePrecisionLoss",
    "MBAUCLoss",
    "PairHingeLoss",
    "PairSquareLoss",
    "PartialAUCLoss",
    "SoftAUROCLoss",
    "WMWLoss",
]
