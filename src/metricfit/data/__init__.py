"""Tables from files, and splits without leaks. Needs the extra ``tabular``."""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.data.reading import read_table
    from metricfit.data.splits import folds, split

__all__ = ["folds", "read_table", "split"]

_HOMES = {"metricfit.data.reading": "read_table", "metricfit.data.splits": "folds split"}

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, _HOMES, dict.fromkeys(("pandas", "pyarrow", "sklearn"), "metricfit[tabular]"))
