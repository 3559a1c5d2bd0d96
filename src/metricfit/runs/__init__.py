"""Cells of a study: independent runs, executed in parallel and kept in one folder each."""

from metricfit._extras import explain_missing

with explain_missing("metricfit.runs", ("joblib",), "metricfit[tabular]"):
    from metricfit.runs.cells import Cell, CellError, Progress, run

__all__ = ["Cell", "CellError", "Progress", "run"]
