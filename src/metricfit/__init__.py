"""Name the metric you are judged by; get a classifier trained for it, and the evidence."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit import constraints, curves, losses, metrics, steps
from metricfit._extras import explain_missing
from metricfit._version import __version__
from metricfit.constraints import AugmentedLagrangian, RankingConstraint
from metricfit.core.counts import Counts
from metricfit.errors import MetricfitError
from metricfit.losses import MetricLoss, RunningCounts, SurrogateFBetaLoss
from metricfit.metrics import get_metric, metric, parse_requirement
from metricfit.metrics.curves import best_threshold

if TYPE_CHECKING:
    from metricfit import boosting, decide, stats, tabular, train
    from metricfit.tabular import MetricClassifier, TunedDecisionClassifier
    from metricfit.tabular.compare.comparison import compare
    from metricfit.train import evaluate, fit

#: Loaded when first used, because they need packages that the rest does not.
_LATER = {
    "MetricClassifier": "metricfit.tabular",
    "TunedDecisionClassifier": "metricfit.tabular",
    "boosting": "metricfit",
    "compare": "metricfit.tabular.compare.comparison",
    "decide": "metricfit",
    "evaluate": "metricfit.train",
    "fit": "metricfit.train",
    "stats": "metricfit",
    "tabular": "metricfit",
    "train": "metricfit",
    # Packages of 0.1.0: importing them raises an error that names their successors.
    "estimators": "metricfit",
    "experiments": "metricfit",
}

__all__ = [
    "AugmentedLagrangian",
    "Counts",
    "MetricClassifier",
    "MetricLoss",
    "MetricfitError",
    "RankingConstraint",
    "RunningCounts",
    "SurrogateFBetaLoss",
    "TunedDecisionClassifier",
    "__version__",
    "best_threshold",
    "boosting",
    "compare",
    "constraints",
    "curves",
    "decide",
    "evaluate",
    "fit",
    "get_metric",
    "losses",
    "metric",
    "metrics",
    "parse_requirement",
    "stats",
    "steps",
    "tabular",
    "train",
]


def __getattr__(name: str) -> Any:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == "metricfit":
        return import_module(f"metricfit.{name}")
    packages = ("numpy", "pandas", "scipy", "sklearn", "baycomp", "joblib", "safetensors") if name == "compare" else ()
    with explain_missing(f"metricfit.{name}", packages, "metricfit[cli]"):  # the others explain themselves
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
