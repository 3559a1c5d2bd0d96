"""Exact curves and the best threshold, for any metric, from one sort."""

from metricfit.metrics.curves import (
    BestThreshold,
    InfeasibleError,
    PrecisionRecallCurve,
    RocCurve,
    auroc,
    average_precision,
    best_threshold,
    fpr_at_fn,
    fpr_at_tpr,
    precision_recall,
    roc,
)

__all__ = [
    "BestThreshold",
    "InfeasibleError",
    "PrecisionRecallCurve",
    "RocCurve",
    "auroc",
    "average_precision",
    "best_threshold",
    "fpr_at_fn",
    "fpr_at_tpr",
    "precision_recall",
    "roc",
]
