"""The estimators of version 0.1.0, which are in metricfit.tabular and metricfit_papers now."""

from metricfit._moved import moved_message

SUCCESSORS = "metricfit.tabular.MetricClassifier, or metricfit_papers.SVMPerf (pip install metricfit-papers)"
raise ImportError(moved_message(__name__, SUCCESSORS), name=__name__)
