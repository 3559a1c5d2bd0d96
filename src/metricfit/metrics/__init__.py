"""Metrics as formulas over counts: named ones, your own, and requirements on them."""

from metricfit.core.numerics import ratio, root, share
from metricfit.metrics.average import averaged
from metricfit.metrics.formulas import (
    accuracy,
    balanced_accuracy,
    cost,
    f1,
    fbeta,
    fnr,
    fowlkes_mallows,
    fpr,
    gmean,
    informedness,
    jaccard,
    kappa,
    markedness,
    mcc,
    npv,
    p4,
    precision,
    recall,
    specificity,
    tversky,
)
from metricfit.metrics.matrix import confusion_matrix
from metricfit.metrics.metric import Metric, MetricFactory, get_metric, metric
from metricfit.metrics.parsing import names
from metricfit.metrics.requirements import Requirement, parse_requirement

__all__ = [
    "Metric",
    "MetricFactory",
    "Requirement",
    "accuracy",
    "averaged",
    "balanced_accuracy",
    "confusion_matrix",
    "cost",
    "f1",
    "fbeta",
    "fnr",
    "fowlkes_mallows",
    "fpr",
    "get_metric",
    "gmean",
    "informedness",
    "jaccard",
    "kappa",
    "markedness",
    "mcc",
    "metric",
    "names",
    "npv",
    "p4",
    "parse_requirement",
    "precision",
    "ratio",
    "recall",
    "root",
    "share",
    "specificity",
    "tversky",
]
