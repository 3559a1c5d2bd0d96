"""Estimators for scikit-learn. Needs the extra ``estimators``."""

from metricfit.estimators.classifier import MetricClassifier

__all__ = ["MetricClassifier"]
