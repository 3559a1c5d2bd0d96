"""The papers' tables: each a file that says what is trained, how it is judged and what was published."""

from metricfit.experiments.reproduce.parsing import find, names
from metricfit.experiments.reproduce.reading import SpecError
from metricfit.experiments.reproduce.running import Result, run_table
from metricfit.experiments.reproduce.spec import TableSpec

__all__ = ["Result", "SpecError", "TableSpec", "find", "names", "run_table"]
