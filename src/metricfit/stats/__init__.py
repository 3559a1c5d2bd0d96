"""How sure to be: intervals and tests for scores on one test set, and for methods over several datasets."""

try:
    from metricfit.stats.bootstrap import BootstrapDifference, BootstrapResult, bootstrap, bootstrap_difference
    from metricfit.stats.delong import DeLongInterval, DeLongTest, delong_interval, delong_test
    from metricfit.stats.multiplicity import holm
    from metricfit.stats.paired import Comparison, Probabilities, SplitComparison, compare, compare_splits
    from metricfit.stats.results import Interval
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("numpy", "scipy", "baycomp"):
        raise
    raise ModuleNotFoundError(
        f"metricfit.stats needs {missing}, which is not installed: pip install metricfit[stats]", name=missing
    ) from error

__all__ = [
    "BootstrapDifference",
    "BootstrapResult",
    "Comparison",
    "DeLongInterval",
    "DeLongTest",
    "Interval",
    "Probabilities",
    "SplitComparison",
    "bootstrap",
    "bootstrap_difference",
    "compare",
    "compare_splits",
    "delong_interval",
    "delong_test",
    "holm",
]
