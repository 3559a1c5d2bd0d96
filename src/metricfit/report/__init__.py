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
    "ComparisonRow": "metricfit.tabular.compare.verdict",
    "FirstScreen": "metricfit.report.first_screen",
    "Report": "metricfit.report.page",
    "ScoredMethod": "metricfit.report.explorer",
    "Section": "metricfit.report.page",
    "comparison": "metricfit.report.tables",
    "learning_curves": "metricfit.report.training_curves",
    "models": "metricfit.report.tables",
    "multiclass": "metricfit.report.tables",
    "render": "metricfit.report.page",
    "scores": "metricfit.report.explorer",
    "write": "metricfit.report.page",
}

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(
        __name__, _LATER, dict.fromkeys(("jinja2", "markupsafe", "matplotlib"), "metricfit[tabular]")
    )
