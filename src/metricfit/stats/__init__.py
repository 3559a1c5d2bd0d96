"""How sure to be: intervals and tests for scores on one test set, and for methods over several datasets."""

try:
    from metricfit.stats.delong import DeLongInterval, DeLongTest, delong_interval, delong_test
    from metricfit.stats.results import Interval
except ModuleNotFoundError as missing:
    if missing.name not in ("numpy", "scipy", "baycomp"):
        raise
    raise ModuleNotFoundError(
        f"metricfit.stats needs {missing.name}, which is not installed: pip install metricfit[stats]", name=missing.name
    ) from missing

__all__ = ["DeLongInterval", "DeLongTest", "Interval", "delong_interval", "delong_test"]
