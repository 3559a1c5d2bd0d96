"""The experiments of version 0.1.0, which are in metricfit.runs, metricfit.tabular and metricfit_papers now."""

from metricfit._moved import moved_message

SUCCESSORS = (
    "metricfit.runs (Cell, CellError, Progress, run), metricfit.compare, metricfit.tabular (Comparison, ComparisonRow) "
    "or metricfit_papers (find_table, table_names, run_table, copy_finished, CopyReport, TableResult, TableSpec, "
    "SpecError, UnfinishedCellsError; pip install metricfit-papers)"
)
raise ImportError(moved_message(__name__, SUCCESSORS), name=__name__)
