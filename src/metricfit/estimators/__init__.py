"""Estimators for scikit-learn. Needs the extra ``estimators``."""

try:
    from metricfit.estimators.classifier import MetricClassifier
    from metricfit.estimators.svm_perf import SVMPerf
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("numpy", "scipy", "sklearn", "pandas", "pyarrow", "baycomp", "safetensors"):
        raise
    raise ModuleNotFoundError(
        f"metricfit.estimators needs {missing}, which is not installed: pip install metricfit[estimators]", name=missing
    ) from error

__all__ = ["MetricClassifier", "SVMPerf"]
