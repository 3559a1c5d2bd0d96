"""Tables from files, datasets, splits without leaks, and preparation of tables. Needs the extra ``data``."""

from metricfit._extras import explain_missing

with explain_missing("metricfit.data", ("numpy", "pandas", "scipy", "sklearn"), "metricfit[data]"):
    from metricfit.data.catalogue import STUDY, names
    from metricfit.data.loading import fetch, load
    from metricfit.data.preparation import Preparation
    from metricfit.data.splits import folds, split
    from metricfit.data.table import Table
    from metricfit.data.table_files import read_table

__all__ = ["STUDY", "Preparation", "Table", "fetch", "folds", "load", "names", "read_table", "split"]
