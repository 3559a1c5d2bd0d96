"""The order of rows by a column of times."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.labels import quote_label
from metricfit.errors import InvalidValueError, quote

#: A date as people write it, and perhaps a time of day.
_WRITTEN = r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?:[ T](\d{1,2})(:\d{2}(?::\d{2})?))?"


def first_part_of_dates(text: pd.Series) -> str | None:
    """Say whether dates are written with the day or the month first, as far as the column tells.

    Args:
        text: Text without missing entries.

    Returns:
        "day" or "month". None if some entry is no such date, or if no date tells: with dots the day is first, and with
        other marks a number above 12 is a day.

    Example:
        >>> first_part_of_dates(pd.Series(["02/01/2024", "31/12/2024"]))
        'day'
        >>> first_part_of_dates(pd.Series(["02/01/2024", "03/01/2024"])) is None
        True
    """
    parts = text.astype(str).str.strip().str.extract(f"^{_WRITTEN}$")
    if not len(parts) or parts[3].isna().any():
        return None
    first, second = parts[0].astype(int).max(), parts[2].astype(int).max()
    if first > 12 >= second or (second <= 12 and (parts[1] == ".").all()):
        return "day"
    return "month" if second > 12 >= first else None


def read_dates(text: pd.Series) -> pd.Series | None:
    """Read dates such as 2024-12-31 18:30, or others if the column tells where the day is.

    Args:
        text: Text without missing entries.

    Returns:
        The dates, in UTC; None if some entry is no date, or could be two.

    Example:
        >>> read_dates(pd.Series(["2.1.2024", "31.12.2024 18:30"])).dt.strftime("%Y-%m-%d %H:%M").tolist()
        ['2024-01-02 00:00', '2024-12-31 18:30']
    """
    words = text.astype(str).str.strip()
    if not words.str.match(r"\d{4}-\d").all():
        first = first_part_of_dates(words)
        if first is None:
            return None
        parts = words.str.extract(f"^{_WRITTEN}$")
        day, month = (parts[0], parts[2]) if first == "day" else (parts[2], parts[0])
        hour = " " + parts[4].str.zfill(2) + parts[5]
        words = parts[3] + "-" + month.str.zfill(2) + "-" + day.str.zfill(2) + hour.fillna("")
    times = pd.to_datetime(words, format="ISO8601", errors="coerce", utc=True)
    return None if times.isna().any() else times


def order_by_time(times: pd.Series) -> NDArray[np.int64]:
    """Return the numbers of the rows in the order of time, earliest first; rows of the same time keep their order.

    Args:
        times: Dates, numbers, or text such as 2024-12-31 or 31.12.2024; its name is used in messages.

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
    times = read_dates(column)
    if times is None:
        wrong = next((entry for entry in column if read_dates(pd.Series([entry])) is None), column.iloc[0])
        raise InvalidValueError(
            f"the column {quote(column.name)} holds {quote_label(wrong)}, which is no number and no date of the form "
            "2024-12-31 or 2024-12-31 18:30; write all times in that form. Dates such as 31.12.2024 and 31/12/2024 are "
            "read if the column tells which number is the day"
        )
    return times
