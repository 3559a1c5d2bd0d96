"""Metrics as objectives and early-stopping metrics of LightGBM, XGBoost and CatBoost.

- ``functions``: ``objective``, cross-entropy plus the loss of a metric, with gradients and second derivatives, and
  ``eval_metric``, the metric at its best threshold, for early stopping.

The libraries are imported by those who train with them: ``pip install metricfit[boosting]`` has all three.
"""

from metricfit.boosting.functions import eval_metric, objective, prior_logits

__all__ = ["eval_metric", "objective", "prior_logits"]
