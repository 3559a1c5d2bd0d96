"""Tables from files, datasets, splits without leaks, and preparation of tables. Needs the extra ``data``."""

from typing import TYPE_CHECKING

from metricfit._extras import explain_missing
from metricfit._moved import moved_names

with explain_missing("metricfit.data", ("numpy", "pandas", "scipy", "sklearn"), "metricfit[data]"):
    from metricfit.data.catalogue import STUDY, names
    from metricfit.data.loading import fetch, load
    from metricfit.data.preparation import Preparation
    from metricfit.data.splits import folds, split
    from metricfit.data.table import Table
    from metricfit.data.table_files import read_table

__all__ = ["STUDY", "Preparation", "Table", "fetch", "folds", "load", "names", "read_table", "split"]

MOVED = {
    "bridging_the_gap": "metricfit_papers.datasets.published_sets.bridging_the_gap",
    "images": "metricfit_papers.images",
    "two_blobs": "metricfit_papers.datasets.published_sets.two_blobs",
}
if not TYPE_CHECKING:  # type checkers report moved names as unknown
    __getattr__ = moved_names(__name__, MOVED)
