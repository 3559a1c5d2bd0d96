"""Confidence intervals and tests, for models on one test set and for methods on several datasets."""

from metricfit._extras import explain_missing

with explain_missing("metricfit.stats", ("scipy",), "metricfit[tabular]"):
    from metricfit.stats.bootstrap import BootstrapDifference, BootstrapResult, bootstrap, bootstrap_difference
    from metricfit.stats.delong import DeLongInterval, DeLongTest, delong_interval, delong_test
    from metricfit.stats.paired import Comparison, Probabilities, SplitComparison, compare, compare_splits, holm
    from metricfit.stats.results import Interval

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
