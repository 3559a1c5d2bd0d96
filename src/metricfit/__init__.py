"""Name the metric you are judged by; get a classifier trained for it, and the evidence."""

from metricfit import curves, losses, metrics, steps
from metricfit._version import __version__
from metricfit.core.counts import Counts
from metricfit.losses import MetricLoss, RunningCounts, SurrogateFBetaLoss
from metricfit.metrics import get_metric, metric, parse_requirement

__all__ = [
    "Counts",
    "MetricLoss",
    "RunningCounts",
    "SurrogateFBetaLoss",
    "__version__",
    "curves",
    "get_metric",
    "losses",
    "metric",
    "metrics",
    "parse_requirement",
    "steps",
]
