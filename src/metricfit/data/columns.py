"""Names of columns, labels, and the order of rows by a column of times."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.errors import QUOTED, InvalidValueError, TableError, quote, shorten

MAX_COLUMNS = 20_000
#: Names of more characters, and tables of more columns, are not compared letter by letter.
LONGEST_COMPARED, MOST_COMPARED = 100, 2000


def check_names(names: list[str], path: Path) -> None:
    """Refuse a table with two columns of one name.

    Raises:
        TableError: Two columns have one name.
    """
    duplicates = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if duplicates:
        raise TableError(f"{path} has more than one column named {quote(duplicates[0])}; give them different names.")


def describe_too_wide(path: Path, columns: int) -> str:
    """Say that a table has too many columns."""
    return (
        f"{path} has {columns} columns; the maximum is {MAX_COLUMNS}. Choose the ones that matter, or transpose the "
        "table if its features are in rows."
    )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a sentence that suggests the column that was probably meant, or nothing.

    Example:
        >>> did_you_mean("fruad", ["amount", "fraud"])
        " Did you mean 'fraud'?"
    """
    candidates = [str(known) for known in names]
    plain = {known.strip().lower(): known for known in reversed(candidates)}
    similar = plain.get(name.strip().lower())
    if similar is None and len(name) <= LONGEST_COMPARED and len(candidates) <= MOST_COMPARED:
        close = difflib.get_close_matches(name.strip().lower(), [known[:LONGEST_COMPARED] for known in plain], n=1)
        similar = plain.get(close[0]) if close else None
    return "" if similar is None else f" Did you mean {quote(similar)}?"


def separator_hint(names: list[str]) -> str:
    """Explain a table with one column whose name holds another separator than the expected one."""
    if len(names) != 1:
        return ""
    for separator, description in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars"), (",", "commas")):
        if separator in names[0]:
            given = "tab" if separator == "\t" else f"'{separator}'"
            return f" Its columns seem to be separated by {description}: give --sep {given}."
    return ""


def split_target(frame: pd.DataFrame, target: str, source: str) -> tuple[pd.DataFrame, pd.Series]:
    """Split a table into the columns to learn from and the labels.

    Args:
        frame: The table.
        target: Name of the column with the labels.
        source: Name of the table, for messages.

    Returns:
        The other columns, and the labels. Categories become the values they name, and dates become text.

    Raises:
        TableError: If there is no such column, a label is missing, or the labels have a type that cannot be used.
    """
    if target not in frame.columns:
        hint = did_you_mean(target, frame.columns) or separator_hint(list(frame.columns))
        listed = ", ".join(quote(name, 40) for name in frame.columns[:12]) + (", ..." if frame.shape[1] > 12 else "")
        raise TableError(f"{source} has no column {quote(target)}. It has {frame.shape[1]}: {listed}.{hint}")
    missing = int(frame[target].isna().sum())
    if missing:
        raise TableError(
            f"The target {quote(target)} is missing in {missing} of {len(frame)} rows of {source} (empty cells, "
            "infinite numbers, or words such as NA among numbers). Give those rows a label, or leave them out: "
            "--skip-unlabelled on the command line."
        )
    features = frame.drop(columns=target)
    if features.shape[1] == 0:
        raise TableError(f"{source} has no column except the target {quote(target)}: there is nothing to learn from.")
    labels = _as_plain_labels(frame[target])
    _check_label_types(labels, target, source)
    return features, labels


def _as_plain_labels(labels: pd.Series) -> pd.Series:
    """Replace categories by the values they name, and dates by text that does not depend on the other dates."""
    if isinstance(labels.dtype, pd.CategoricalDtype):
        labels = labels.astype(labels.cat.categories.dtype)
    if isinstance(labels.dtype, (pd.PeriodDtype, pd.IntervalDtype)):
        return labels.astype("str")
    if pd.api.types.infer_dtype(labels) in ("datetime64", "datetime", "date"):
        return labels.map(lambda day: str(day).removesuffix(" 00:00:00")).astype("str")
    return labels


def _check_label_types(labels: pd.Series, target: str, source: str) -> None:
    """Refuse labels that are neither all text, nor all numbers of at most 64 bits, nor all true and false."""
    if not pd.api.types.is_object_dtype(labels):
        return
    examples = {type(label): label for label in labels}
    if set(examples) in ({str}, {bool}):
        return
    large = [label for label in labels if isinstance(label, int) and not -(2**63) <= label < 2**64]
    examples = {int: large[0]} if large else examples
    listed = " and ".join(f"{quote_label(label)} ({kind.__name__})" for kind, label in list(examples.items())[:3])
    raise TableError(
        f"The target {quote(target)} of {source} holds {listed}; labels are all text, all whole numbers of at most 64 "
        "bits, or all true and false. Write them as text, or choose another column."
    )


def check_classes(labels: pd.Series, source: str) -> None:
    """Check that labels can be learned: at least two classes with two rows each, and not one class per row.

    Args:
        labels: The labels.
        source: Name of the table, for messages.

    Raises:
        TableError: If they cannot be learned; the message says why.
    """
    classes = labels.nunique()
    if classes < 2:
        raise TableError(
            f"All {len(labels)} rows of {source} have the same target, {quote_label(labels.iloc[0])}: there is nothing "
            "to learn. Add rows of another class, or choose another column."
        )
    if classes > max(20, len(labels) // 5):
        kind = "numbers to predict, not classes" if pd.api.types.is_numeric_dtype(labels) else "names, not classes"
        raise TableError(
            f"The target has {classes} different values in {len(labels)} rows of {source}: these look like {kind}. "
            "Choose another column, or group the values into classes."
        )
    fractions = labels[labels % 1 != 0].tolist() if pd.api.types.is_float_dtype(labels) else []
    if fractions:
        raise TableError(
            f"The target of {source} holds {fractions[0]}, which is not a whole number: numbers are labels only if "
            "they are whole. Write the labels as text or as whole numbers, or choose another column."
        )
    counts = labels.value_counts()
    if int(counts.iloc[-1]) < 2:
        raise TableError(
            f"The class {quote_label(counts.index[-1])} has a single row in {source}; a class needs at least two, one "
            "to learn from and one to check on. Merge it with another, or remove it."
        )


def quote_label(value: object) -> str:
    """Write a label for a message: text in quotes, and shortened if it is long."""
    return quote(value) if isinstance(value, (str, int)) else shorten(value, QUOTED)


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
    if times is None:  # text files are read in batches letter by letter
        numbers = pd.to_numeric(column.astype(str), errors="coerce")
        if numbers.notna().all():
            return numbers
        wrong = next((entry for entry in column if read_dates(pd.Series([entry])) is None), column.iloc[0])
        raise InvalidValueError(
            f"the column {quote(column.name)} holds {quote_label(wrong)}, which is no number and no date of the form "
            "2024-12-31 or 2024-12-31 18:30; write all times in that form. Dates such as 31.12.2024 and 31/12/2024 are "
            "read if the column tells which number is the day"
        )
    return times
