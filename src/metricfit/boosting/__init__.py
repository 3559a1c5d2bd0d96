"""Metrics as objectives and early-stopping metrics of LightGBM, XGBoost and CatBoost.

- ``objectives``: ``objective``, cross-entropy plus the loss of a metric, with gradients and second derivatives.
- ``eval_metrics``: ``eval_metric``, the metric at its best threshold, for early stopping.
- ``library_rows``: scores, labels and weights in the way that each library passes them, checked.
- ``start_scores``: ``prior_logits``, where boosting starts.

The libraries are imported by those who train with them: ``pip install metricfit[boosting]`` has all three.
"""

from metricfit._extras import explain_missing

with explain_missing(__name__, ("numpy",), "metricfit[boosting]"):
    from metricfit.boosting.eval_metrics import eval_metric
    from metricfit.boosting.objectives import objective
    from metricfit.boosting.start_scores import prior_logits

__all__ = ["eval_metric", "objective", "prior_logits"]
