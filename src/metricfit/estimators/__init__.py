"""Estimators for scikit-learn. Needs the extra ``estimators``."""

from typing import TYPE_CHECKING

from metricfit._moved import moved_names

try:
    from metricfit.estimators.classifier import MetricClassifier
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("numpy", "scipy", "sklearn", "pandas", "pyarrow", "baycomp", "safetensors"):
        raise
    raise ModuleNotFoundError(
        f"metricfit.estimators needs {missing}, which is not installed: pip install metricfit[estimators]", name=missing
    ) from error

__all__ = ["MetricClassifier"]

MOVED = {"SVMPerf": "metricfit_papers.SVMPerf"}
if not TYPE_CHECKING:  # type checkers report moved names as unknown
    __getattr__ = moved_names(__name__, MOVED)
