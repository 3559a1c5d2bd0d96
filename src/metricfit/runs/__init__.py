"""Cells of a study: independent runs, executed in parallel and kept in one folder each."""

from metricfit.runs.cells import Cell, CellError
from metricfit.runs.runner import Progress, run

__all__ = ["Cell", "CellError", "Progress", "run"]
