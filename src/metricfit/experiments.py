"""The experiments of version 0.1.0, which are in metricfit.runs and metricfit_papers now."""

from metricfit._moved import moved_message

raise ImportError(
    moved_message(__name__, "metricfit.runs for cells, metricfit.compare, or metricfit_papers for the papers' tables"),
    name=__name__,
)
