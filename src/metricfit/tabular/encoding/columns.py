"""Columns of one kind each, as numbers: what was learned of a column is plain data, for JSON and safetensors.

skrub decides what a column is and reads dates and numbers out of text; its fitted encoders are not kept, because they
can be stored by pickle alone, and nothing here is unpickled.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from metricfit.errors import InvalidValueError, MetricfitError, quote

Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

#: What stands for a missing entry in text; skrub's, in any case.
MISSING = frozenset({"", "null", "none", "nan", "-nan", "na", "n/a", "<na>", "#na", "#n/a", "#n/a n/a", "?", "..."})
MISSING |= {"1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"}
YES_NO = {"true": 1.0, "false": 0.0}
TEXT_BUCKETS = 4096
TEXT_COMPONENTS = 30
#: Text is a category of many values, and not free text, if it has at most this many values, each of which occurs so
#: often on average.
MOST_KNOWN_TEXTS, FEWEST_REPEATS = 10_000, 2


class Column(ABC):
    """A column of a table as one or more columns of numbers, NaN where nothing is known."""

    kind: str
    one_block = False  # whether its columns are of one scale

    @abstractmethod
    def fit(self, column: Any) -> Column:
        """Learn from the training rows."""

    @abstractmethod
    def transform(self, column: Any) -> Floats:
        """The numbers of these rows, ``(n, k)``."""

    def distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """The numbers of the distinct entries, and the place of each row's entry among them; None for one per row."""
        return None, self.transform(column)

    def state(self) -> dict[str, Any]:
        """What was learned, as JSON can hold it."""
        return {}

    def arrays(self) -> Arrays:
        """What was learned, the large part, as safetensors can hold it."""
        return {}

    def restore(self, state: dict[str, Any], arrays: Arrays) -> Column:
        """The inverse of ``state`` and ``arrays``."""
        return self


class Number(Column):
    """A number, a yes or no, a duration in seconds, or text that reads as one of the first two.

    Words for a missing entry, such as "n/a", are missing. Other text is refused: taken for missing it would change
    predictions without a word.
    """

    kind = "number"

    def fit(self, column: Any) -> Number:
        """Nothing is learned."""
        return self

    def transform(self, column: Any) -> Floats:
        """One column."""
        column = plain_column(column)
        if pd.api.types.is_timedelta64_dtype(column):
            return np.asarray(column.dt.total_seconds(), dtype=np.float64)[:, None]
        numeric = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)
        if numeric:
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))[:, None]
        entries = column.astype(object)
        try:
            numbers = pd.to_numeric(entries, errors="coerce")
        except OverflowError:  # an integer beyond every float
            raise NotANumber(quote(max(filter(_is_integer, entries), key=abs))) from None
        found: Floats = numbers.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        for at in np.flatnonzero(np.isnan(found) & column.notna().to_numpy()):
            found[at] = _read(entries.iloc[at])
        return found[:, None]


class Category(Column):
    """A 0/1 column for each category seen in training, one for two of them; an unknown one is all zeros."""

    kind = "category"

    def __init__(self) -> None:
        self.categories: list[str | None] = []

    def fit(self, column: Any) -> Category:
        """Learn the categories; a missing entry is one, written null."""
        found = set(as_text(column))
        missing: list[str | None] = [None] if None in found else []
        self.categories = [*sorted(each for each in found if each is not None), *missing]
        return self

    def transform(self, column: Any) -> Floats:
        """As many columns as there are categories, one for two."""
        number = {category: at for at, category in enumerate(self.categories)}
        place, texts = distinct_texts(column)
        codes = np.array([number.get(text, -1) for text in texts], dtype=np.int64)[place]
        first = 1 if len(self.categories) == 2 else 0
        told: Floats = (codes[:, None] == np.arange(first, len(self.categories))).astype(np.float64)
        return told

    def distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """The numbers of the distinct texts, and the place of each row's text among them."""
        place, texts = distinct_texts(column)
        return place, self.transform(pd.Series(texts, dtype=object))

    def state(self) -> dict[str, Any]:
        """The categories."""
        return {"categories": self.categories}

    def restore(self, state: dict[str, Any], arrays: Arrays) -> Column:
        """The categories."""
        self.categories = list(state["categories"])
        return self


class Date(Column):
    """A point in time: days since 1970, the month, the day of the month and of the week, the hour."""

    kind = "date"

    def __init__(self, format: str | None = None) -> None:
        self.format = format

    def fit(self, column: Any) -> Date:
        """Nothing is learned but the format, which skrub found."""
        return self

    def transform(self, column: Any) -> Floats:
        """Five columns."""
        time = self._time(column)
        days = _seconds_since_1970(time) / 86400
        parts = [days, time.dt.month, time.dt.day, time.dt.day_of_week, time.dt.hour]
        return np.stack([part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts], axis=1)

    def seconds(self, column: Any) -> Floats:
        """The seconds since 1970 in UTC, ``(n,)``, from which ``transform`` follows."""
        return np.asarray(_seconds_since_1970(self._time(column)).to_numpy(dtype=np.float64, na_value=np.nan))

    def _time(self, column: Any) -> Any:
        column = plain_column(column)
        times = column if pd.api.types.is_datetime64_any_dtype(column) else column.astype(object)
        return pd.Series(pd.to_datetime(times, format=self.format, errors="coerce", utc=True))

    def state(self) -> dict[str, Any]:
        """The format."""
        return {"format": self.format}

    def restore(self, state: dict[str, Any], arrays: Arrays) -> Column:
        """The format."""
        self.format = state["format"]
        return self


class Text(Column):
    """Free text: its character 3- and 4-grams, weighted by rarity, projected on their main directions.

    skrub's StringEncoder does the same with a vocabulary; here the n-grams are hashed, so that what was learned is two
    arrays. The values of a category of many values, such as names of countries or tail numbers of aircraft, are kept:
    encodings outside of Python look them up (``metricfit.export``).
    """

    kind = "text"
    one_block = True

    def __init__(self) -> None:
        self.rarity = np.zeros(0, dtype=np.float32)
        self.directions = np.zeros((0, 0), dtype=np.float32)
        self.categories: list[str] = []

    def fit(self, column: Any) -> Text:
        """Learn how rare each n-gram is, and the directions."""
        texts = as_text(column)
        known = sorted({text for text in texts if text})
        self.categories = known if are_categories(len(texts), len(known)) else []
        counts = self._counts(texts)
        rows, _ = counts.shape
        self.rarity = (np.log((1 + rows) / (1 + counts.getnnz(axis=0))) + 1).astype(np.float32)
        size = min(TEXT_COMPONENTS, rows - 1)
        found = TruncatedSVD(size, random_state=0).fit(normalize(counts.multiply(self.rarity).tocsr()))
        self.directions = found.components_.astype(np.float32)
        return self

    def transform(self, column: Any) -> Floats:
        """A column for each direction; missing text is at zero."""
        place, texts = distinct_texts(column)
        weighted = normalize(self._counts(texts).multiply(self.rarity).tocsr())
        return np.asarray(weighted @ self.directions.T, dtype=np.float64)[place]

    def distinct(self, column: Any) -> tuple[NDArray[np.int64] | None, Floats]:
        """The numbers of the distinct texts, and the place of each row's text among them."""
        place, texts = distinct_texts(column)
        return place, self.transform(pd.Series(texts, dtype=object))

    def arrays(self) -> Arrays:
        """Rarities and directions."""
        return {"rarity": self.rarity, "directions": self.directions}

    def state(self) -> dict[str, Any]:
        """The values, if they are few."""
        return {"categories": self.categories}

    def restore(self, state: dict[str, Any], arrays: Arrays) -> Column:
        """Rarities and directions, and the values if they are few."""
        self.categories = list(state.get("categories", []))
        self.rarity, self.directions = arrays["rarity"], arrays["directions"]
        return self

    def _counts(self, texts: list[str | None]) -> Any:
        hashing = HashingVectorizer(
            analyzer="char_wb", ngram_range=(3, 4), n_features=TEXT_BUCKETS, alternate_sign=False, norm=None
        )
        return hashing.transform([text or "" for text in texts])


def are_categories(rows: int, values: int) -> bool:
    """Return whether text of so many different values is a category of many values, and not free text.

    >>> are_categories(24_000, 2_000), are_categories(4_000, 3_990)
    (True, False)
    """
    return values <= MOST_KNOWN_TEXTS and rows >= FEWEST_REPEATS * values


class NotANumber(MetricfitError, ValueError):
    """An entry of a column of numbers that reads as none."""


def _read(entry: Any) -> float:
    """A number of an entry that pandas reads as none, NaN for a word that says it is missing.

    >>> _read("True"), _read("1_000"), _read("n/a")
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
    """Return a column in a type that skrub and the kinds of columns know.

    Periods become the times at which they begin, and dates of Arrow become those of pandas.

    Raises:
        InvalidValueError: The column holds complex numbers.

    >>> plain_column(pd.Series(pd.period_range("2024-01", periods=2, freq="M"))).astype(str).tolist()
    ['2024-01-01', '2024-02-01']
    """
    if pd.api.types.is_complex_dtype(column):
        raise InvalidValueError(
            f"The column {quote(str(column.name))} holds complex numbers; use their real and imaginary parts as columns"
        )
    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp()
    if str(column.dtype) in ("date32[day][pyarrow]", "date64[ms][pyarrow]"):
        return column.astype("datetime64[s]")
    if pd.api.types.is_object_dtype(column):
        return _unboxed(column)
    return column


def _unboxed(column: Any) -> Any:
    """Return periods and durations that are stored as objects in the type that pandas has for them."""
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred in ("timedelta", "timedelta64"):
        return pd.to_timedelta(column)
    if inferred != "period":
        return column
    starts = [None if missing else period.start_time for period, missing in zip(column, column.isna(), strict=True)]
    return pd.Series(pd.to_datetime(starts), index=column.index)


def _seconds_since_1970(time: Any) -> Any:
    return (time - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds()


def _is_integer(entry: Any) -> bool:
    return isinstance(entry, int)


KINDS: dict[str, type[Column]] = {each.kind: each for each in (Number, Category, Date, Text)}


def distinct_texts(column: Any) -> tuple[NDArray[np.int64], list[str | None]]:
    """Return the distinct entries as text, None for missing ones, and for each entry its place among them.

    >>> distinct_texts(pd.Series(["b", None, "b", "a"]))
    (array([0, 2, 0, 1]), ['b', 'a', None])
    """
    if len(column) and pd.api.types.infer_dtype(column, skipna=True) == "string":
        place, values = pd.factorize(column)
        return np.where(place < 0, len(values), place).astype(np.int64), [*map(str, values), None]
    number: dict[str | None, int] = {}
    place = np.array([number.setdefault(text, len(number)) for text in as_text(column)], dtype=np.int64)
    return place, list(number)


def as_text(column: Any) -> list[str | None]:
    """Entries as text, None where missing; 1.0 reads as 1, as which a column without missing entries holds it."""
    return [
        None
        if missing
        else str(int(entry))
        if isinstance(entry, (float, np.floating)) and float(entry).is_integer()
        else str(entry)
        for entry, missing in zip(column.astype(object), column.isna(), strict=True)
    ]
