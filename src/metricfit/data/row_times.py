"""The order of rows by a column of times."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.labels import quote_label
from metricfit.errors import InvalidValueError, quote


def order_by_time(times: pd.Series) -> NDArray[np.int64]:
    """Return the numbers of the rows in the order of time, earliest first; rows of the same time keep their order.

    Args:
        times: Dates, numbers, or text such as 2024-12-31; its name is used in messages.

    Raises:
        InvalidValueError: A time is missing, all are equal, or text is no date in that form.

    Example:
        >>> order_by_time(pd.Series(["2024-03-01", "2023-12-31", "2024-01-15"], name="granted")).tolist()
        [1, 2, 0]
    """
    missing = int(times.isna().sum())
    if missing:
        raise InvalidValueError(
            f"the time {quote(times.name)} is missing in {missing} of {len(times)} rows; remove those rows, or give "
            "each a time"
        )
    sortable = _as_times(times)
    if sortable.nunique() == 1:
        raise InvalidValueError(
            f"all rows have one value of {quote(times.name)}: they have no order. Do not name a column of times"
        )
    order: NDArray[np.int64] = sortable.argsort(kind="stable").to_numpy().astype(np.int64)
    return order


def _as_times(column: pd.Series) -> pd.Series:
    """Return times that can be sorted."""
    if pd.api.types.is_bool_dtype(column):
        raise InvalidValueError(f"the column {quote(column.name)} holds true and false, which are no times")
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return column
    times = pd.to_datetime(column.astype(str), format="ISO8601", errors="coerce", utc=True)
    if times.isna().any():
        wrong = column[times.isna()].iloc[0]
        raise InvalidValueError(
            f"the column {quote(column.name)} holds {quote_label(wrong)}, which is no date of the form 2024-12-31 or "
            "2024-12-31 18:30, and no number; write all times in that form, because in others day and month can be "
            "mistaken"
        )
    return times
