"""The report: one self-contained HTML page. Needs the extra ``report``."""

from metricfit._extras import explain_missing

with explain_missing("metricfit.report", ("numpy", "jinja2", "markupsafe", "matplotlib"), "metricfit[tabular]"):
    from metricfit.report.explorer import ScoredMethod, scores
    from metricfit.report.first_screen import FirstScreen
    from metricfit.report.learning_curves import learning_curves
    from metricfit.report.page import Report, Section, render, write
    from metricfit.report.tables import comparison, models, multiclass
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
