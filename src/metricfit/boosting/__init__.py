"""Metrics as objectives and early-stopping metrics of LightGBM, XGBoost and CatBoost.

- ``objectives``: ``objective``, cross-entropy plus the loss of a metric, with gradients and second derivatives.
- ``eval_metrics``: ``eval_metric``, the metric at its best threshold, for early stopping.
- ``library_rows``: scores, labels and weights in the way that each library passes them, checked; ``prior_logits``.

The libraries are imported by those who train with them: ``pip install metricfit[boosting]`` has all three.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit._extras import explain_missing

with explain_missing(__name__, ("numpy",), "metricfit[boosting]"):
    from metricfit.boosting.library_rows import prior_logits

if TYPE_CHECKING:
    from metricfit.boosting.eval_metrics import eval_metric
    from metricfit.boosting.objectives import objective

__all__ = ["eval_metric", "objective", "prior_logits"]

#: Loaded when first used, because an objective needs torch.
_LATER = {"eval_metric": "eval_metrics", "objective": "objectives"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explain_missing(f"metricfit.boosting.{name}", ("torch",), "metricfit[torch]"):
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
