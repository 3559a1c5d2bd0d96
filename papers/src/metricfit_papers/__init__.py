"""The tables of five papers, run again: what each row trains, how it is scored, and what was published.

The command ``metricfit reproduce`` runs them; from Python, `find_table` and `run_table` do. `AdversarialLoss` and
`SVMPerf`, a linear SVM, are the baselines that take a metric.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit_papers.results.cell_copies import CopyReport, copy_finished
from metricfit_papers.results.table_run import TableResult, UnfinishedCellsError, run_table
from metricfit_papers.specs.table_parser import find_table, table_names
from metricfit_papers.specs.table_spec import TableSpec
from metricfit_papers.specs.toml_section import SpecError

if TYPE_CHECKING:
    from metricfit_papers.baselines.adversarial_loss import AdversarialLoss
    from metricfit_papers.baselines.svm_perf import SVMPerf

__all__ = [
    "AdversarialLoss",
    "CopyReport",
    "SVMPerf",
    "SpecError",
    "TableResult",
    "TableSpec",
    "UnfinishedCellsError",
    "copy_finished",
    "find_table",
    "run_table",
    "table_names",
]


#: Baselines that are imported when they are first used: networks need neither scikit-learn's estimators nor a solver.
_BASELINES = {"AdversarialLoss": "adversarial_loss", "SVMPerf": "svm_perf"}


def __getattr__(name: str) -> Any:
    """Import a baseline when it is first used."""
    if name in _BASELINES:
        return getattr(import_module(f"metricfit_papers.baselines.{_BASELINES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
