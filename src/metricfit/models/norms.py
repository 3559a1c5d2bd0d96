"""The normalisation of the papers' networks in version 0.1.0, which is in the package metricfit_papers now."""

from metricfit._moved import moved_message

raise ImportError(moved_message(__name__, "metricfit_papers.models.normalisation"), name=__name__)
