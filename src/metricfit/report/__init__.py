"""The report: one self-contained HTML page. Needs the extra ``report``."""

try:
    from metricfit.report.binary import scores
    from metricfit.report.learning import learning_curves
    from metricfit.report.methods import Method, comparison
    from metricfit.report.page import Report, Section, render, write
    from metricfit.report.rows import table
    from metricfit.report.several_classes import multiclass
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("numpy", "jinja2", "markupsafe", "matplotlib"):
        raise
    raise ModuleNotFoundError(
        f"metricfit.report needs {missing}, which is not installed: pip install metricfit[report]", name=missing
    ) from error

__all__ = [
    "Method",
    "Report",
    "Section",
    "comparison",
    "learning_curves",
    "multiclass",
    "render",
    "scores",
    "table",
    "write",
]
