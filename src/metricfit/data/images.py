"""The image sets of version 0.1.0, which are in the package metricfit_papers now."""

from metricfit._moved import moved_message

raise ImportError(moved_message(__name__, "metricfit_papers.images"), name=__name__)
