"""Tables from files, and splits without leaks. Needs the extra ``data``."""

from metricfit._extras import explain_missing

with explain_missing("metricfit.data", ("numpy", "pandas"), "metricfit[tabular]"):
    from metricfit.data.reading import read_table
    from metricfit.data.splits import folds, split

__all__ = ["folds", "read_table", "split"]
