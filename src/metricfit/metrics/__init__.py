"""Metrics as formulas over counts: named ones, your own, and requirements on them."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later
from metricfit.core.numerics import ratio, root
from metricfit.core.thresholds import PerLabel, ThresholdGrid
from metricfit.metrics import formulas
from metricfit.metrics.average import averaged
from metricfit.metrics.decorators import metric
from metricfit.metrics.formulas import *  # noqa: F403
from metricfit.metrics.matrix import MatrixMetric, confusion_matrix, cost_matrix, matrix_metric, weighted_kappa
from metricfit.metrics.metric import Metric, get_metric
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
    "MatrixMetric",
    "Metric",
    "PerLabel",
    "RankingMetric",
    "Requirement",
    "ThresholdGrid",
    "auroc",
    "auroc_ovo",
    "average_precision",
    "averaged",
    "confusion_matrix",
    "cost_matrix",
    "get_measure",
    "get_metric",
    "matrix_metric",
    "metric",
    "names",
    "parse_requirement",
    "ratio",
    "root",
    "weighted_kappa",
]
__all__ += formulas.__all__


if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _LATER, {"torch": "metricfit[torch]"})
