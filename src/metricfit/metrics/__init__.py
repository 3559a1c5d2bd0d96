"""Metrics as formulas over counts: named ones, your own, and requirements on them."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later
from metricfit.core.numerics import ratio, root, share
from metricfit.core.thresholds import PerLabel, ThresholdGrid
from metricfit.metrics.average import averaged
from metricfit.metrics.decorators import metric
from metricfit.metrics.formulas import (
    accuracy,
    balanced_accuracy,
    cost,
    dice,
    f1,
    fbeta,
    fnr,
    fowlkes_mallows,
    fpr,
    gmean,
    informedness,
    iou,
    jaccard,
    kappa,
    markedness,
    mcc,
    npv,
    p4,
    ppv,
    precision,
    recall,
    selection_rate,
    sensitivity,
    specificity,
    tnr,
    tpr,
    tversky,
    youden,
)
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.matrix import (
    MatrixMetric,
    MatrixMetricFactory,
    confusion_matrix,
    cost_matrix,
    matrix_metric,
    weighted_kappa,
)
from metricfit.metrics.metric import Metric, MetricFactory, get_metric
from metricfit.metrics.ranking import RankingMetric, auroc, auroc_ovo, average_precision, get_measure
from metricfit.metrics.registry import names
from metricfit.metrics.requirements import Requirement, parse_requirement

if TYPE_CHECKING:
    from metricfit.metrics.accumulator import Accumulator, BinnedScores

#: What has buffers, which need torch.
_LATER = {"metricfit.metrics.accumulator": "Accumulator BinnedScores"}

__all__ = [
    "Accumulator",
    "BinnedScores",
    "GroupGap",
    "MatrixMetric",
    "MatrixMetricFactory",
    "Metric",
    "MetricFactory",
    "PerLabel",
    "RankingMetric",
    "Requirement",
    "ThresholdGrid",
    "accuracy",
    "auroc",
    "auroc_ovo",
    "average_precision",
    "averaged",
    "balanced_accuracy",
    "confusion_matrix",
    "cost",
    "cost_matrix",
    "dice",
    "f1",
    "fbeta",
    "fnr",
    "fowlkes_mallows",
    "fpr",
    "get_measure",
    "get_metric",
    "gmean",
    "informedness",
    "iou",
    "jaccard",
    "kappa",
    "markedness",
    "matrix_metric",
    "mcc",
    "metric",
    "names",
    "npv",
    "p4",
    "parse_requirement",
    "ppv",
    "precision",
    "ratio",
    "recall",
    "root",
    "selection_rate",
    "sensitivity",
    "share",
    "specificity",
    "tnr",
    "tpr",
    "tversky",
    "weighted_kappa",
    "youden",
]


if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _LATER, {"torch": "metricfit[torch]"})
