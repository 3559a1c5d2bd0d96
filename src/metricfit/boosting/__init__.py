"""Metrics as objectives of boosted trees, for LightGBM. Needs the extra ``tabular``."""

from metricfit.boosting.objectives import objective

__all__ = ["objective"]
