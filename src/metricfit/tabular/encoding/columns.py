"""Kinds of columns, and how each becomes numbers.

skrub finds the kind of a column and the format of its dates. Its fitted encoders are not kept, because they can only be
stored with pickle. What a column has learned here is plain data, which JSON and safetensors hold.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError, MetricfitError, quote

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

#: Words that stand for a missing entry in text, in lower case; those of skrub.
MISSING = frozenset({"", "null", "none", "nan", "-nan", "na", "n/a", "<na>", "#na", "#n/a", "#n/a n/a", "?", "..."})
MISSING |= {"1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"}
YES_NO = {"true": 1.0, "false": 0.0}
TEXT_BUCKETS = 4096
TEXT_COMPONENTS = 30
#: Text is a category of many values, and not free text, if it has at most this many values, and each of them occurs at
#: least this often on average.
MOST_KNOWN_TEXTS, FEWEST_REPEATS = 10_000, 2


class Column(ABC):
    """A column of a table that is encoded as one or more columns of numbers; NaN is a missing value."""

    kind: ClassVar[str]
    #: Whether the encoded columns keep their relative sizes when they are scaled.
    shares_scale: ClassVar[bool] = False
    #: The attributes that ``fit`` sets: those that JSON holds, and arrays.
    state_names: ClassVar[tuple[str, ...]] = ()
    array_names: ClassVar[tuple[str, ...]] = ()

    def fit(self, column: Any) -> Column:
        """Learn from the training rows.

        Args:
            column: The entries of the training rows.

        Returns:
            This object.
        """
        return self

    @abstractmethod
    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Encode the distinct entries of a column.

        Args:
            column: The entries.

        Returns:
            For each row the position of its entry among the distinct ones, and the numbers of these, ``(d, k)``. The
            positions are None if there is one row of numbers per entry.
        """

    def transform(self, column: Any) -> Floats:
        """Encode a column as numbers ``(n, k)``."""
        positions, numbers = self.encode_distinct(column)
        return numbers if positions is None else numbers[positions]

    def state(self) -> dict[str, Any]:
        """Return what was learned, in values that JSON can hold."""
        return {name: getattr(self, name) for name in self.state_names}

    def arrays(self) -> Arrays:
        """Return the arrays that were learned."""
        return {name: getattr(self, name) for name in self.array_names}

    def restore(self, state: dict[str, Any], arrays: Arrays) -> Column:
        """Set what ``state`` and ``arrays`` returned."""
        for name in self.state_names:
            setattr(self, name, state[name])
        for name in self.array_names:
            setattr(self, name, arrays[name])
        return self


class Number(Column):
    """A number, true or false, a duration in seconds, or text that can be read as a number or as true or false.

    Words such as "n/a" are missing values. Other text is refused, because treating it as missing would silently change
    the predictions.
    """

    kind = "number"

    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Encode the column as one column of numbers, one row per entry."""
        column = plain_column(column)
        if pd.api.types.is_timedelta64_dtype(column):
            return None, np.asarray(column.dt.total_seconds(), dtype=np.float64)[:, None]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            return None, np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))[:, None]
        entries = column.astype(object)
        try:
            numbers = pd.to_numeric(entries, errors="coerce")
        except OverflowError:  # an integer that no float can hold
            raise NotANumber(quote(max((entry for entry in entries if isinstance(entry, int)), key=abs))) from None
        values: Floats = numbers.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        for row in np.flatnonzero(np.isnan(values) & column.notna().to_numpy()):
            values[row] = _read_number(entries.iloc[row])
        return None, values[:, None]


class Category(Column):
    """A category: one 0/1 column per value seen in training, or one column for two values.

    A missing entry is a value too. Unknown values are encoded as zeros.
    """

    kind = "category"
    state_names = ("categories",)

    def __init__(self) -> None:
        self.categories: list[str | None] = []

    def fit(self, column: Any) -> Category:
        """Learn the values; None is a missing entry."""
        texts = set(as_text(column))
        missing: list[str | None] = [None] if None in texts else []
        self.categories = [*sorted(text for text in texts if text is not None), *missing]
        return self

    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Encode the distinct texts as 0/1 columns."""
        number = {category: index for index, category in enumerate(self.categories)}
        positions, texts = distinct_texts(column)
        codes = np.array([number.get(text, -1) for text in texts], dtype=np.int64)
        first = 1 if len(self.categories) == 2 else 0
        return positions, np.equal.outer(codes, np.arange(first, len(self.categories))).astype(np.float64)


class Date(Column):
    """A point in time: the days since 1970, the month, the day of the month and of the week, and the hour.

    Args:
        format: The format of text, as ``strptime`` takes it; None for columns of dates and for ISO 8601.
    """

    kind = "date"
    state_names = ("format",)

    def __init__(self, format: str | None = None) -> None:
        self.format = format

    def encode_distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """Encode the column as five columns, one row per entry."""
        time = self._read_times(column)
        days = _seconds_since_1970(time) / 86400
        parts = [days, time.dt.month, time.dt.day, time.dt.day_of_week, time.dt.hour]
        return None, np.stack([part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts], axis=1)

    def seconds(self, column: Any) -> Floats:
        """Return the seconds since 1970 in UTC, ``(n,)``, from which the encoded columns follow."""
        times = _seconds_since_1970(self._read_times(column))
        return np.asarray(times.to_numpy(dtype=np.float64, na_value=np.nan))

    def _read_times(self, column: Any) -> Any:
        column = plain_column(column)
        times = column if pd.api.types.is_datetime64_any_dtype(column) else column.astype(object)
        return pd.Series(pd.to_datetime(times, format=self.format, errors="coerce", utc=True))


class Text(Column):
    """Free text: its 3-grams and 4-grams of characters, weighted by rarity and projected on their main directions.

    skrub's StringEncoder does the same with a vocabulary. Here the n-grams are hashed, so that only two arrays have to
    be kept. The values of a category of many values, such as names of countries or tail numbers of aircraft, are kept
    too, because exported models look them up (``metricfit.export``).
    """

    kind = "text"
    shares_scale = True
    state_names = ("categories",)
    array_names = ("rarity", "directions")

    def __init__(self) -> None:
        self.rarity = np.zeros(0, dtype=np.float32)
        self.directions = np.zeros((0, 0), dtype=np.float32)
        self.categories: list[str] = []

    def fit(self, column: Any) -> Text:
        """Learn how rare each n-gram is, and the directions."""
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
        """Encode the distinct texts as one column per direction; a missing text is 0."""
        from sklearn.preprocessing import normalize

        positions, texts = distinct_texts(column)
        weighted = normalize(_count_ngrams(texts).multiply(self.rarity).tocsr())
        return positions, np.asarray(weighted @ self.directions.T, dtype=np.float64)


KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Number, Category, Date, Text)}


def _count_ngrams(texts: list[str | None]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(
        analyzer="char_wb", ngram_range=(3, 4), n_features=TEXT_BUCKETS, alternate_sign=False, norm=None
    )
    return hashing.transform([text or "" for text in texts])


def are_categories(rows: int, values: int) -> bool:
    """Return whether a column of text with this many different values is a category of many values, not free text.

    >>> are_categories(24_000, 2_000), are_categories(4_000, 3_990)
    (True, False)
    """
    return values <= MOST_KNOWN_TEXTS and rows >= FEWEST_REPEATS * values


class NotANumber(MetricfitError, ValueError):
    """An entry of a column of numbers that cannot be read as a number."""


def _read_number(entry: Any) -> float:
    """Read an entry that pandas cannot read as a number; NaN for a word that stands for a missing entry.

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
    """Convert a column to a type that skrub and the kinds of columns know.

    Periods become the times at which they begin. Dates and durations of Arrow become those of pandas.

    Raises:
        InvalidValueError: The column holds complex numbers, or several values per cell.

    >>> plain_column(pd.Series(pd.period_range("2024-01", periods=2, freq="M"))).astype(str).tolist()
    ['2024-01-01', '2024-02-01']
    """
    if pd.api.types.is_complex_dtype(column):
        raise InvalidValueError(
            f"The column {quote(str(column.name))} holds complex numbers; use their real and imaginary parts as columns"
        )
    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp()
    if isinstance(column.dtype, pd.ArrowDtype):
        column = _without_arrow(column)
    inferred = pd.api.types.infer_dtype(column, skipna=True) if pd.api.types.is_object_dtype(column) else None
    if inferred == "mixed":
        _check_single_values(column)
    if inferred in ("timedelta", "timedelta64"):  # durations and periods that are stored as objects
        return pd.to_timedelta(column)
    if inferred != "period":
        return column
    starts = [None if missing else period.start_time for period, missing in zip(column, column.isna(), strict=True)]
    return pd.Series(pd.to_datetime(starts), index=column.index)


def _without_arrow(column: Any) -> Any:
    """Convert a column of Arrow whose type pandas handles less well than its usual types."""
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
    return (time - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds()


def distinct_texts(column: Any) -> tuple[NDArray[np.int64], list[str | None]]:
    """Return the position of each entry among the distinct texts, and these texts; None is a missing entry.

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
    """Return the entries as text, None where they are missing.

    1.0 becomes "1", because the same column without missing entries would hold the integer 1.
    """
    return [
        None
        if missing
        else str(int(entry))
        if isinstance(entry, (float, np.floating)) and float(entry).is_integer()
        else str(entry)
        for entry, missing in zip(column.astype(object), column.isna(), strict=True)
    ]
