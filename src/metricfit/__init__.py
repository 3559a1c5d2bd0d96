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
    "metricfit": "boosting constraints curves decide losses metrics stats steps tabular train",
    "metricfit.constraints": "AugmentedLagrangian RankingConstraint",
    "metricfit.core.counts": "Counts",
    "metricfit.losses": "MetricLoss RunningCounts SurrogateFBetaLoss",
    "metricfit.metrics": "get_metric metric parse_requirement",
    "metricfit.metrics.curves": "best_threshold",
    "metricfit.metrics.scoring": "score scorer",
    "metricfit.tabular": "MetricClassifier TunedDecisionClassifier",
    "metricfit.tabular.compare.comparison": "compare",
    "metricfit.train": "evaluate fit",
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
