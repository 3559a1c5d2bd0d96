"""Tables from files, datasets, splits without leaks, and preparation of tables. Needs the extra ``data``."""

from metricfit._extras import explain_missing

with explain_missing("metricfit.data", ("numpy", "pandas"), "metricfit[data]"):
    from metricfit.data.datasets import STUDY, Table, fetch, load, names
    from metricfit.data.preparation import Preparation
    from metricfit.data.reading import read_table
    from metricfit.data.splits import folds, split

__all__ = ["STUDY", "Preparation", "Table", "fetch", "folds", "load", "names", "read_table", "split"]
