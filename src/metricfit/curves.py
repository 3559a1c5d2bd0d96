"""Exact curves and the best threshold, for any metric, from one sort."""

from metricfit.decide.offsets import BestOffsets, best_offsets
from metricfit.metrics.areas import (
    UndefinedRankingWarning,
    auroc,
    average_precision,
    brier_score,
    expected_calibration_error,
)
from metricfit.metrics.curves import (
    BestThreshold,
    BestThresholds,
    PrecisionRecallCurve,
    RocCurve,
    best_threshold,
    best_thresholds,
    fpr_at_fn,
    fpr_at_tpr,
    partial_auroc,
    precision_recall,
    roc,
)
from metricfit.metrics.feasibility import InfeasibleError, InfeasibleWarning, RequirementValue

__all__ = [
    "BestOffsets",
    "BestThreshold",
    "BestThresholds",
    "InfeasibleError",
    "InfeasibleWarning",
    "PrecisionRecallCurve",
    "RequirementValue",
    "RocCurve",
    "UndefinedRankingWarning",
    "auroc",
    "average_precision",
    "best_offsets",
    "best_threshold",
    "best_thresholds",
    "brier_score",
    "expected_calibration_error",
    "fpr_at_fn",
    "fpr_at_tpr",
    "partial_auroc",
    "precision_recall",
    "roc",
]
