"""Name the metric you are judged by; get a classifier trained for it, and the evidence."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later
from metricfit._version import __version__
from metricfit.errors import MetricfitError

if TYPE_CHECKING:
    from metricfit import boosting, constraints, curves, decide, losses, metrics, stats, steps, tabular, train
    from metricfit.constraints import AugmentedLagrangian, RankingConstraint
    from metricfit.core.counts import Counts
    from metricfit.losses import MetricLoss, RunningCounts, SurrogateFBetaLoss
    from metricfit.metrics import get_metric, metric, parse_requirement
    from metricfit.metrics.curves import best_threshold
    from metricfit.metrics.scoring import score, scorer
    from metricfit.tabular import MetricClassifier, TunedDecisionClassifier
    from metricfit.tabular.compare.comparison import compare
    from metricfit.train import evaluate, fit

#: Loaded when first used: ``metricfit --help`` and messages about wrong options do not wait for torch, and some parts
#: need packages that the rest does not.
_LATER = {
    "AugmentedLagrangian": "metricfit.constraints",
    "Counts": "metricfit.core.counts",
    "MetricClassifier": "metricfit.tabular",
    "MetricLoss": "metricfit.losses",
    "RankingConstraint": "metricfit.constraints",
    "RunningCounts": "metricfit.losses",
    "SurrogateFBetaLoss": "metricfit.losses",
    "TunedDecisionClassifier": "metricfit.tabular",
    "best_threshold": "metricfit.metrics.curves",
    "boosting": "metricfit",
    "compare": "metricfit.tabular.compare.comparison",
    "constraints": "metricfit",
    "curves": "metricfit",
    "decide": "metricfit",
    "evaluate": "metricfit.train",
    "fit": "metricfit.train",
    "get_metric": "metricfit.metrics",
    "losses": "metricfit",
    "metric": "metricfit.metrics",
    "metrics": "metricfit",
    "parse_requirement": "metricfit.metrics",
    "score": "metricfit.metrics.scoring",
    "scorer": "metricfit.metrics.scoring",
    "stats": "metricfit",
    "steps": "metricfit",
    "tabular": "metricfit",
    "train": "metricfit",
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
    "score",
    "scorer",
    "stats",
    "steps",
    "tabular",
    "train",
]


_TABULAR = ("pandas", "scipy", "sklearn", "joblib", "lightgbm", "pyarrow", "safetensors", "skops")
_EXTRAS = dict.fromkeys(_TABULAR, "metricfit[tabular]") | {"torch": "metricfit[torch]"}

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _LATER, _EXTRAS)


def __dir__() -> list[str]:
    return sorted(__all__)
