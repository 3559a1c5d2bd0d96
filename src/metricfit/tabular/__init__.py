"""Classifiers for tables, as scikit-learn estimators, and their comparison. Needs the extra ``tabular``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier
    from metricfit.tabular.compare.comparison import Comparison
    from metricfit.tabular.compare.comparison_row import ComparisonRow

__all__ = ["Comparison", "ComparisonRow", "MetricClassifier"]

#: Loaded when first used: rows of a comparison need none of the packages that training needs.
_MODULES = {
    "Comparison": "compare.comparison",
    "ComparisonRow": "compare.comparison_row",
    "MetricClassifier": "classifier",
}
_EXTRA = ("numpy", "scipy", "sklearn", "pandas", "pyarrow", "baycomp", "safetensors")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        raise ModuleNotFoundError(
            f"metricfit.tabular needs {missing}, which is not installed: pip install metricfit[tabular]", name=missing
        ) from error


def __dir__() -> list[str]:
    return sorted([*__all__, "classifier", "compare"])
