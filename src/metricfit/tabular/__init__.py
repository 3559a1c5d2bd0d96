"""Classifiers for tables, as scikit-learn estimators. Needs the extra ``tabular``."""

try:
    from metricfit.tabular.classifier import MetricClassifier
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("numpy", "scipy", "sklearn", "pandas", "pyarrow", "baycomp", "safetensors"):
        raise
    raise ModuleNotFoundError(
        f"metricfit.tabular needs {missing}, which is not installed: pip install metricfit[tabular]", name=missing
    ) from error

__all__ = ["MetricClassifier"]
