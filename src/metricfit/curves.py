"""Exact curves and the best threshold, for any metric, from one sort."""

from metricfit.decide.offsets import BestOffsets, best_offsets
from metricfit.metrics.column_thresholds import BestThresholds, best_thresholds
from metricfit.metrics.curve_points import PrecisionRecallCurve, RocCurve
from metricfit.metrics.curves import (
    BestThreshold,
    auroc,
    average_precision,
    best_threshold,
    fpr_at_fn,
    fpr_at_tpr,
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
    "auroc",
    "average_precision",
    "best_offsets",
    "best_threshold",
    "best_thresholds",
    "fpr_at_fn",
    "fpr_at_tpr",
    "precision_recall",
    "roc",
]
