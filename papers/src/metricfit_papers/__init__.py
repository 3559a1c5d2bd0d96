"""The tables of five papers, run again: what each row trains, how it is scored, and what was published.

The command ``metricfit reproduce`` runs them; from Python it is `find` and `run_table`. `SVMPerf` is the linear SVM of
the papers' baselines.
"""

from typing import TYPE_CHECKING, Any

from metricfit_papers.results.cell_copies import Copied, copy_finished
from metricfit_papers.results.table_run import Result, Unfinished, run_table
from metricfit_papers.specs.table_parser import find, names
from metricfit_papers.specs.table_spec import TableSpec
from metricfit_papers.specs.toml_section import SpecError

if TYPE_CHECKING:
    from metricfit_papers.baselines.svm_perf import SVMPerf

__all__ = [
    "Copied",
    "Result",
    "SVMPerf",
    "SpecError",
    "TableSpec",
    "Unfinished",
    "copy_finished",
    "find",
    "names",
    "run_table",
]


def __getattr__(name: str) -> Any:
    """Import `SVMPerf` when it is first used: networks need neither scikit-learn's estimators nor a solver."""
    if name == "SVMPerf":
        from metricfit_papers.baselines.svm_perf import SVMPerf

        return SVMPerf
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
