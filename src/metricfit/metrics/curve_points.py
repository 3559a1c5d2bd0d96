"""The points of the ROC curve and of the precision-recall curve."""

from __future__ import annotations

from typing import NamedTuple

from metricfit.core.arrays import Array


class RocCurve(NamedTuple):
    """Points of the ROC curve, by falling threshold from infinity on, as in scikit-learn without ``drop_intermediate``.

    Attributes:
        fpr: False positive rates.
        tpr: True positive rates.
        thresholds: Thresholds.

    Example:
        >>> from metricfit.curves import roc
        >>> curve = roc([0.9, 0.2], [1, 0])
        >>> curve.fpr.tolist(), curve.tpr.tolist()
        ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    """

    fpr: Array
    tpr: Array
    thresholds: Array


class PrecisionRecallCurve(NamedTuple):
    """Points of the precision-recall curve, by rising threshold; the last point, (1, 0), has none, as in scikit-learn.

    Attributes:
        precision: Precisions, one more than thresholds.
        recall: Recalls, one more than thresholds.
        thresholds: Thresholds.

    Example:
        >>> from metricfit.curves import precision_recall
        >>> curve = precision_recall([0.9, 0.2], [1, 0])
        >>> curve.precision.tolist(), curve.recall.tolist()
        ([0.5, 1.0, 1.0], [1.0, 1.0, 0.0])
    """

    precision: Array
    recall: Array
    thresholds: Array
