"""The estimators of version 0.1.0, which are in metricfit.tabular now."""

from metricfit._moved import moved_message

raise ImportError(moved_message(__name__, "metricfit.tabular, or metricfit_papers.SVMPerf"), name=__name__)
