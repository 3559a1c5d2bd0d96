"""Encoders for one column of a table: numbers, categories, dates and free text.

skrub detects the type of a column and the format of its dates. Its encoders can be stored with
pickle only, so metricfit has encoders that are described by JSON values and arrays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit._schema import HasKinds
from metricfit.core.arrays import Floats
from metricfit.errors import InvalidValueError, MetricfitError, quote

#: Words that mean a missing value in a column of text, in lower case. skrub uses the same list.
MISSING = frozenset({"", "null", "none", "nan", "-nan", "na", "n/a", "<na>", "#na", "#n/a", "#n/a n/a", "?", "..."})
MISSING |= {"1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"}
YES_NO = {"true": 1.0, "false": 0.0}
TEXT_BUCKETS = 4096
TEXT_COMPONENTS = 30
#: A column of text holds categories, and not free text, if it has at most this many distinct values, and if a value
#: occurs at least this often on average.
MOST_KNOWN_TEXTS, FEWEST_REPEATS = 10_000, 2
#: Columns of text with fewer distinct values are categories, as in skrub; entries of free text have on average at least
#: this many words.
FEWEST_TEXTS, FEWEST_WORDS = 40, 3
#: Entries whose words are counted, and entries that are tried as dates.
WORDS_COUNTED, DATES_TRIED = 1000, 20


class Column(HasKinds, ABC):
    """The encoder of one column. It returns one or more columns of numbers, in which NaN is a missing value."""

    kind: ClassVar[str]
    #: Whether all encoded columns are scaled by the same number, which keeps their relative sizes.
    shares_scale: ClassVar[bool] = False

    def fit(self, column: Any) -> Column:
        """Learn the encoding from the entries of the training rows."""
        return self

    @abstractmethod
    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Encode each distinct entry once, which is fast for columns in which entries repeat.

        Args:
            column: The entries, one per row of the table.

        Returns:
            The positions and the numbers. Row i of the table is encoded as ``numbers[positions[i]]``. If the positions
            are None, it is encoded as ``numbers[i]``.
        """

    def transform(self, column: Any) -> Floats:
        """Return the encoded columns ``(n, k)``."""
        positions, numbers = self.encode_distinct(column)
        return numbers if positions is None else numbers[positions]


@dataclass
class Number(Column):
    """Numbers, booleans, durations in seconds, and text that can be read as a number or a boolean.

    Words such as "n/a" are missing values. Other text is refused: if it counted as missing, predictions would change
    without notice.
    """

    kind = "number"

    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Return one column of numbers with one row per entry."""
        column = plain_column(column)
        if pd.api.types.is_timedelta64_dtype(column):
            return None, np.asarray(column.dt.total_seconds(), dtype=np.float64)[:, None]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            return None, np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))[:, None]
        entries = column.astype(object)
        try:
            numbers = pd.to_numeric(entries, errors="coerce")
        except OverflowError:  # an integer is too large for a float
            raise NotANumber(quote(max((entry for entry in entries if isinstance(entry, int)), key=abs))) from None
        values: Floats = numbers.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        for row in np.flatnonzero(np.isnan(values) & column.notna().to_numpy()):
            values[row] = _read_number(entries.iloc[row])
        return None, values[:, None]


@dataclass
class Category(Column):
    """Categories, encoded as one 0/1 column per value of the training rows, or as one column if there are two values.

    A missing entry is a value of its own. Values that did not occur in training are encoded as zeros.
    """

    kind = "category"
    categories: list[str | None] = field(default_factory=list)

    def fit(self, column: Any) -> Category:
        """Learn the values. None stands for a missing entry."""
        texts = set(as_text(column))
        missing: list[str | None] = [None] if None in texts else []
        self.categories = [*sorted(text for text in texts if text is not None), *missing]
        return self

    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Return the 0/1 columns of each distinct value."""
        number = {category: index for index, category in enumerate(self.categories)}
        positions, texts = distinct_texts(column)
        codes = np.array([number.get(text, -1) for text in texts], dtype=np.int64)
        first = 1 if len(self.categories) == 2 else 0
        return positions, np.equal.outer(codes, np.arange(first, len(self.categories))).astype(np.float64)


@dataclass
class Date(Column):
    """Dates and times, encoded as days since 1970, month, day of the month, day of the week and hour.

    Args:
        format: The format of dates in text, as in ``strptime``. None is for dates of pandas and for ISO 8601.
    """

    kind = "date"
    format: str | None = None

    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Return five columns with one row per entry."""
        time = self._read_times(column)
        days = _seconds_since_1970(time) / 86400
        parts = [days, time.dt.month, time.dt.day, time.dt.day_of_week, time.dt.hour]
        return None, np.stack([part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts], axis=1)

    def seconds(self, column: Any) -> Floats:
        """Return the seconds since 1970 in UTC, ``(n,)``. Exported models compute the five columns from them."""
        times = _seconds_since_1970(self._read_times(column))
        return np.asarray(times.to_numpy(dtype=np.float64, na_value=np.nan))

    def _read_times(self, column: Any) -> Any:
        column = plain_column(column)
        times = column if pd.api.types.is_datetime64_any_dtype(column) else column.astype(object)
        return pd.Series(pd.to_datetime(times, format=self.format, errors="coerce", utc=True))


@dataclass
class Text(Column):
    """Free text: TF-IDF weights of 3-grams and 4-grams of characters, reduced to 30 columns by a truncated SVD.

    skrub's StringEncoder computes the same from a vocabulary. Here the n-grams are hashed, so that only two arrays are
    stored. If the column holds categories, such as names of countries, their list is stored too: exported models encode
    text by looking it up in this list.
    """

    kind = "text"
    shares_scale = True
    categories: list[str] = field(default_factory=list)
    rarity: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    directions: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))

    def fit(self, column: Any) -> Text:
        """Learn the weight of each n-gram and the directions of the SVD."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.preprocessing import normalize

        texts = as_text(column)
        known = sorted({text for text in texts if text})
        self.categories = known if are_categories(len(texts), len(known)) else []
        counts = _count_ngrams(texts)
        rows = len(texts)
        self.rarity = (np.log((1 + rows) / (1 + counts.getnnz(axis=0))) + 1).astype(np.float32)
        svd = TruncatedSVD(min(TEXT_COMPONENTS, rows - 1), random_state=0)
        self.directions = svd.fit(normalize(counts.multiply(self.rarity).tocsr())).components_.astype(np.float32)
        return self

    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Return one column per direction for each distinct text. A missing text is encoded as zeros."""
        from sklearn.preprocessing import normalize

        positions, texts = distinct_texts(column)
        weighted = normalize(_count_ngrams(texts).multiply(self.rarity).tocsr())
        return positions, np.asarray(weighted @ self.directions.T, dtype=np.float64)


Column.kinds = {kind.kind: kind for kind in (Number, Category, Date, Text)}


def _count_ngrams(texts: list[str | None]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(
        analyzer="char_wb", ngram_range=(3, 4), n_features=TEXT_BUCKETS, alternate_sign=False, norm=None
    )
    return hashing.transform([text or "" for text in texts])


def are_categories(rows: int, values: int) -> bool:
    """Return whether a column of text holds categories, and not free text.

    Args:
        rows: Number of rows.
        values: Number of distinct values.

    >>> are_categories(24_000, 2_000), are_categories(4_000, 3_990)
    (True, False)
    """
    return values <= MOST_KNOWN_TEXTS and rows >= FEWEST_REPEATS * values


def free_text_columns(table: Any) -> list[int]:
    """Return the positions of the columns that hold sentences: text of several words that hardly repeats.

    Args:
        table: A DataFrame; other tables have no text.

    >>> free_text_columns(pd.DataFrame({"a": range(50), "b": [f"it took {each} days" for each in range(50)]}))
    [1]
    """
    if not isinstance(table, pd.DataFrame):
        return []
    return [at for at in range(table.shape[1]) if _is_free_text(table.iloc[:, at])]


def _is_free_text(column: pd.Series) -> bool:
    if not (pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)):
        return False
    present = column.dropna()
    head = present.iloc[:WORDS_COUNTED]
    if not len(head) or not all(isinstance(entry, str) for entry in head):
        return False
    if sum(len(entry.split()) for entry in head) < FEWEST_WORDS * len(head):
        return False
    if pd.to_datetime(head.iloc[:DATES_TRIED].astype(object), errors="coerce", format="mixed", utc=True).notna().all():
        return False
    values = present.astype(str).nunique()
    return values >= FEWEST_TEXTS and not are_categories(len(column), values)


class NotANumber(MetricfitError, ValueError):
    """An entry in a column of numbers cannot be read as a number."""


def _read_number(entry: Any) -> float:
    """Read an entry that pandas does not read as a number. Words that mean a missing value become NaN.

    >>> _read_number("True"), _read_number("1_000"), _read_number("n/a")
    (1.0, 1000.0, nan)
    """
    word = str(entry).strip().lower()
    if word in MISSING:
        return math.nan
    if word in YES_NO:
        return YES_NO[word]
    try:
        return float(entry)
    except (TypeError, ValueError, OverflowError):
        raise NotANumber(quote(entry)) from None


def plain_column(column: Any) -> Any:
    """Convert a column to a type that skrub and the encoders support.

    Periods become the times at which they begin. Dates and durations of Arrow become pandas'.

    Raises:
        InvalidValueError: The column holds complex numbers, or cells with several values.

    >>> plain_column(pd.Series(pd.period_range("2024-01", periods=2, freq="M"))).astype(str).tolist()
    ['2024-01-01', '2024-02-01']
    """
    if pd.api.types.is_complex_dtype(column):
        raise InvalidValueError(
            f"The column {quote(str(column.name))} holds complex numbers; use their parts as columns"
        )
    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp()
    if isinstance(column.dtype, pd.ArrowDtype):
        column = _without_arrow(column)
    inferred = pd.api.types.infer_dtype(column, skipna=True) if pd.api.types.is_object_dtype(column) else None
    if inferred == "mixed":
        _check_single_values(column)
    if inferred in ("timedelta", "timedelta64"):  # a column of type object that holds durations
        return pd.to_timedelta(column)
    if inferred != "period":
        return column
    starts = [None if missing else period.start_time for period, missing in zip(column, column.isna(), strict=True)]
    return pd.Series(pd.to_datetime(starts), index=column.index)


def _without_arrow(column: Any) -> Any:
    """Convert dates, durations and nested values of Arrow to the types that pandas handles best."""
    import pyarrow as pa

    arrow = column.dtype.pyarrow_dtype
    if pa.types.is_date(arrow):
        return column.astype("datetime64[s]")
    if pa.types.is_duration(arrow):
        return column.astype(f"timedelta64[{arrow.unit}]")
    return column.astype(object) if pa.types.is_nested(arrow) else column


def _check_single_values(column: Any) -> None:
    nested = next((entry for entry in column if isinstance(entry, (list, tuple, dict, set, np.ndarray))), None)
    if nested is not None:
        raise InvalidValueError(
            f"The column {quote(str(column.name))} holds a {type(nested).__name__} in a cell, but a cell holds one "
            "value; make a column of each part, or write it as text"
        )


def _seconds_since_1970(time: Any) -> Any:
    epoch = pd.Timestamp("1970-01-01", tz="UTC").as_unit(time.dt.unit)  # years beyond 294,000 have no microseconds
    return (time - epoch).dt.total_seconds()


def distinct_texts(column: Any) -> tuple[NDArray[np.int64], list[str | None]]:
    """Return the position of each entry in the list of distinct texts, and this list; None is a missing entry.

    >>> distinct_texts(pd.Series(["b", None, "b", "a"]))
    (array([0, 2, 0, 1]), ['b', 'a', None])
    """
    if len(column) and pd.api.types.infer_dtype(column, skipna=True) == "string":
        codes, values = pd.factorize(column)
        return np.where(codes < 0, len(values), codes).astype(np.int64), [*map(str, values), None]
    number: dict[str | None, int] = {}
    positions = np.array([number.setdefault(text, len(number)) for text in as_text(column)], dtype=np.int64)
    return positions, list(number)


def as_text(column: Any) -> list[str | None]:
    """Return the entries as text, and None for missing ones.

    1.0 becomes "1": a column of integers turns into one of floats as soon as it has a missing entry.
    """
    return [
        None
        if missing
        else str(int(entry))
        if isinstance(entry, (float, np.floating)) and float(entry).is_integer()
        else str(entry)
        for entry, missing in zip(column.astype(object), column.isna(), strict=True)
    ]
