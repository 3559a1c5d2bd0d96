"""Name the metric you are judged by; get a classifier trained for it, and the evidence."""

from metricfit import constraints, curves, losses, metrics, steps
from metricfit._version import __version__
from metricfit.constraints import AugmentedLagrangian, RankingConstraint
from metricfit.core.counts import Counts
from metricfit.losses import MetricLoss, RunningCounts, SurrogateFBetaLoss
from metricfit.metrics import get_metric, metric, parse_requirement

__all__ = [
    "AugmentedLagrangian",
    "Counts",
    "MetricLoss",
    "RankingConstraint",
    "RunningCounts",
    "SurrogateFBetaLoss",
    "__version__",
    "constraints",
    "curves",
    "get_metric",
    "losses",
    "metric",
    "metrics",
    "parse_requirement",
    "steps",
]
