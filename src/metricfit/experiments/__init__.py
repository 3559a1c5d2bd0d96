"""Experiments: cells of a table, run side by side and kept in folders."""

from metricfit.experiments.cells import Cell, CellError, Progress, run

__all__ = ["Cell", "CellError", "Progress", "run"]
