"""The report: one self-contained HTML page. Needs the extra ``tabular``."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.report.explorer import ScoredMethod, scores
    from metricfit.report.first_screen import FirstScreen
    from metricfit.report.page import Report, Section, render, write
    from metricfit.report.tables import comparison, models, multiclass
    from metricfit.report.training_curves import learning_curves
    from metricfit.tabular.compare.verdict import ComparisonRow

__all__ = [
    "ComparisonRow",
    "FirstScreen",
    "Report",
    "ScoredMethod",
    "Section",
    "comparison",
    "learning_curves",
    "models",
    "multiclass",
    "render",
    "scores",
    "write",
]

#: Loaded when first used: to measure a model takes none of the packages that draw.
_LATER = {
    "metricfit.report.explorer": "ScoredMethod scores",
    "metricfit.report.first_screen": "FirstScreen",
    "metricfit.report.page": "Report Section render write",
    "metricfit.report.tables": "comparison models multiclass",
    "metricfit.report.training_curves": "learning_curves",
    "metricfit.tabular.compare.verdict": "ComparisonRow",
}

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(
        __name__, _LATER, dict.fromkeys(("jinja2", "markupsafe", "matplotlib"), "metricfit[tabular]")
    )
