"""What a column holds: numbers, dates or words, and its entries as numbers or as codes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.row_times import read_dates

Kind = Literal["numbers", "dates", "words"]
#: Entries that are looked at to tell dates from words.
LOOKED_AT = 50


def kind_of(column: pd.Series) -> Kind:
    """Say what a column holds; text such as 2024-12-31 or 31.12.2024 is dates.

    Example:
        >>> [kind_of(pd.Series(each)) for each in ([1.5, 2], ["2024-12-31", "2025-01-01"], ["a", "b"], [True, False])]
        ['numbers', 'dates', 'words', 'words']
    """
    if pd.api.types.is_bool_dtype(column):
        return "words"
    if pd.api.types.is_numeric_dtype(column):
        return "numbers"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "dates"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "words"
    entries = column.dropna().iloc[:LOOKED_AT]
    return "dates" if len(entries) and as_times(entries) is not None else "words"


def as_times(column: pd.Series) -> pd.Series | None:
    """Return dates, or numbers as they are; None if an entry is text that is no date, or could be two.

    Missing entries stay missing.

    Example:
        >>> as_times(pd.Series(["2024-12-31", "31.12.2024"])) is None
        True
    """
    if pd.api.types.is_bool_dtype(column):
        return None
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return column
    times = read_dates(column.dropna().astype(object))
    return None if times is None else times.reindex(column.index)


def are_written_dates(column: pd.Series) -> bool:
    """Return whether the first entries are dates as people write them, with the day or the month first.

    Example:
        >>> are_written_dates(pd.Series(["31.12.2024", "1.1.2025"])), are_written_dates(pd.Series(["10-A", "11-B"]))
        (True, False)
    """
    entries = column.dropna().iloc[:LOOKED_AT].astype(str)
    return bool(entries.str.match(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?!\d)").all())


def as_numbers(column: pd.Series) -> NDArray[np.float64] | None:
    """Return the entries of a column of numbers or dates, missing and infinite ones as NaN; None for words."""
    kind = kind_of(column)
    if kind == "words":
        return None
    if kind == "numbers":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.asarray(np.where(np.isfinite(numbers), numbers, np.nan))
    times = as_times(column)
    if times is None:
        return None
    numbers = times.astype("int64").to_numpy(dtype=np.float64)
    return np.asarray(np.where(times.isna(), np.nan, numbers))


def as_codes(column: pd.Series) -> NDArray[np.int64]:
    """Return one whole number per entry, the same for equal entries, in the order of their first appearance.

    Example:
        >>> as_codes(pd.Series(["b", "a", None, "b"])).tolist()
        [0, 1, 2, 0]
    """
    values: Any = column
    if pd.api.types.is_object_dtype(column):
        values = column.where(column.isna(), column.astype(str))
    codes, _ = pd.factorize(values, use_na_sentinel=False)
    return np.asarray(codes, dtype=np.int64)
