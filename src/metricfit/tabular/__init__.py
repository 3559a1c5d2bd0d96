"""Classifiers for tables, as scikit-learn estimators, their comparison, and checks of tables (extra ``tabular``)."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier as MetricClassifier
    from metricfit.tabular.compare.comparison import Comparison as Comparison
    from metricfit.tabular.compare.verdict import ComparisonRow as ComparisonRow
    from metricfit.tabular.doctor.examination import Examination as Examination
    from metricfit.tabular.doctor.examination import examine_table as examine_table
    from metricfit.tabular.doctor.finding import Finding as Finding
    from metricfit.tabular.families.in_context import InContext as InContext
    from metricfit.tabular.families.network import Network as Network
    from metricfit.tabular.insight.importance import Importance as Importance
    from metricfit.tabular.insight.judged_rows import WorstRows as WorstRows
    from metricfit.tabular.tuned import TunedDecisionClassifier as TunedDecisionClassifier
    from metricfit.tabular.watch import Watch as Watch

#: Loaded when first used: rows of a comparison need none of the packages that training needs.
_HOMES = {
    "metricfit.tabular.classifier": "MetricClassifier",
    "metricfit.tabular.compare.comparison": "Comparison",
    "metricfit.tabular.compare.verdict": "ComparisonRow",
    "metricfit.tabular.doctor.examination": "Examination examine_table",
    "metricfit.tabular.doctor.finding": "Finding",
    "metricfit.tabular.families.in_context": "InContext",
    "metricfit.tabular.families.network": "Network",
    "metricfit.tabular.insight.importance": "Importance",
    "metricfit.tabular.insight.judged_rows": "WorstRows",
    "metricfit.tabular.tuned": "TunedDecisionClassifier",
    "metricfit.tabular.watch": "Watch",
}
__all__ = [name for names in _HOMES.values() for name in names.split()]
_PACKAGES = ("scipy", "sklearn", "pandas", "pyarrow", "baycomp", "safetensors", "lightgbm", "skops")

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _HOMES, dict.fromkeys(_PACKAGES, "metricfit[tabular]"))


def __dir__() -> list[str]:
    return sorted([*__all__, "classifier", "compare", "doctor"])
