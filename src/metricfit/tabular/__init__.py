"""Classifiers for tables, as scikit-learn estimators, their comparison, and checks of tables (extra ``tabular``)."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier
    from metricfit.tabular.compare.comparison import Comparison
    from metricfit.tabular.compare.verdict import ComparisonRow
    from metricfit.tabular.doctor.examination import Examination, examine_table
    from metricfit.tabular.doctor.finding import Finding
    from metricfit.tabular.families.network import Network
    from metricfit.tabular.insight.importance import Importance
    from metricfit.tabular.insight.worst_rows import WorstRows
    from metricfit.tabular.tuned import TunedDecisionClassifier

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Examination",
    "Finding",
    "Importance",
    "MetricClassifier",
    "Network",
    "TunedDecisionClassifier",
    "WorstRows",
    "examine_table",
]

#: Loaded when first used: rows of a comparison need none of the packages that training needs.
_MODULES = {
    "Comparison": "compare.comparison",
    "ComparisonRow": "compare.verdict",
    "Examination": "doctor.examination",
    "Finding": "doctor.finding",
    "Importance": "insight.importance",
    "MetricClassifier": "classifier",
    "Network": "families.network",
    "TunedDecisionClassifier": "tuned",
    "WorstRows": "insight.worst_rows",
    "examine_table": "doctor.examination",
}
_HOMES = {name: f"{__name__}.{module}" for name, module in _MODULES.items()}
_PACKAGES = ("scipy", "sklearn", "pandas", "pyarrow", "baycomp", "safetensors", "lightgbm", "skops")

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _HOMES, dict.fromkeys(_PACKAGES, "metricfit[tabular]"))


def __dir__() -> list[str]:
    return sorted([*__all__, "classifier", "compare", "doctor"])
