"""The papers' tables: each a file that says what is trained, how it is judged and what was published."""

from metricfit.experiments.reproduce.copying import Copied, copy_finished
from metricfit.experiments.reproduce.parsing import find, names
from metricfit.experiments.reproduce.reading import SpecError
from metricfit.experiments.reproduce.running import Result, Unfinished, run_table
from metricfit.experiments.reproduce.spec import TableSpec

__all__ = ["Copied", "Result", "SpecError", "TableSpec", "Unfinished", "copy_finished", "find", "names", "run_table"]
