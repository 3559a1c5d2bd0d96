"""Metrics as objectives and early-stopping metrics of LightGBM, XGBoost and CatBoost.

- ``objectives``: ``objective``, cross-entropy plus the loss of a metric, with gradients and second derivatives.
- ``eval_metrics``: ``eval_metric``, the metric at its best threshold, for early stopping.
- ``library_rows``: scores, labels and weights in the way that each library passes them, checked.
- ``start_scores``: ``prior_logits``, where boosting starts.
- ``metric_boosting_classifier``: ``MetricBoostingClassifier``, an estimator of scikit-learn that does all of this;
  ``library_training`` trains for it.

The libraries are imported by those who train with them: ``pip install metricfit[boosting]`` has all three.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit._extras import explain_missing

with explain_missing(__name__, ("numpy",), "metricfit[boosting]"):
    from metricfit.boosting.eval_metrics import eval_metric
    from metricfit.boosting.objectives import objective
    from metricfit.boosting.start_scores import prior_logits

if TYPE_CHECKING:
    from metricfit.boosting.metric_boosting_classifier import MetricBoostingClassifier

#: Loaded when first used, because the estimator needs scikit-learn, and the functions do not.
_LATER = {"MetricBoostingClassifier": "metricfit.boosting.metric_boosting_classifier"}

__all__ = ["MetricBoostingClassifier", "eval_metric", "objective", "prior_logits"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explain_missing(f"metricfit.boosting.{name}", ("scipy", "sklearn", "pandas"), "metricfit[boosting]"):
        return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
