"""The rows of a large table, in memory or in Parquet files, as batches and samples of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from metricfit.data.parquet_table import ParquetTable
from metricfit.tabular.families.family import Integers

#: Tables of more rows are large: they are kept in a compact form, and have one held-out part.
LARGE_ROWS = 500_000
#: Rows of a batch.
BATCH_ROWS = 100_000


class RowSource(Protocol):
    """Where the rows of a large table come from."""

    @property
    def has_names(self) -> bool:
        """Whether columns have names, as those of a DataFrame; an array has none."""
        ...

    def __len__(self) -> int: ...

    def batches(self) -> Iterator[pd.DataFrame]:
        """Return all rows, some at a time."""
        ...

    def sample(self, rows: int, few_words: int) -> pd.DataFrame:
        """Return random rows, and a row of each entry of text columns that have few different ones."""
        ...


class FrameRows:
    """The rows of a DataFrame or an array."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.has_names = isinstance(table, pd.DataFrame)

    def __len__(self) -> int:
        return len(self.table)

    def batches(self) -> Iterator[pd.DataFrame]:
        """Return all rows, some at a time."""
        for first in range(0, len(self), BATCH_ROWS):
            yield self._frame(slice(first, first + BATCH_ROWS))

    def sample(self, rows: int, few_words: int) -> pd.DataFrame:
        """Return random rows, and a row of each entry of text columns that have few different ones."""
        index = random_rows(len(self), rows)
        if self.has_names:
            for at in range(self.table.shape[1]):
                column = self.table.iloc[:, at]
                if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)):
                    index = np.union1d(index, first_occurrences(column, few_words))
        return self._frame(index)

    def _frame(self, rows: Any) -> pd.DataFrame:
        if self.has_names:
            return self.table.iloc[rows].reset_index(drop=True)
        return pd.DataFrame(self.table[rows])


class FileRows:
    """The rows of Parquet files."""

    has_names = True

    def __init__(self, table: ParquetTable) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def batches(self) -> Iterator[pd.DataFrame]:
        """Return all rows, some at a time."""
        return self.table.batches(BATCH_ROWS)

    def sample(self, rows: int, few_words: int) -> pd.DataFrame:
        """Return random rows, and a row of each entry of text columns that have few different ones."""
        index = random_rows(len(self), rows)
        parts: list[pd.DataFrame] = []
        seen: dict[str, set[Any]] = {}
        first = 0
        for frame in self.batches():
            low, high = np.searchsorted(index, [first, first + len(frame)])
            chosen = index[low:high] - first
            for name in frame.columns:
                column = frame[name]
                if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
                    continue
                known = seen.setdefault(name, set())
                if len(known) <= few_words:
                    chosen = np.union1d(chosen, _new_words(column, known))
            parts.append(frame.iloc[chosen])
            first += len(frame)
        return pd.concat(parts, ignore_index=True)


def is_large(table: Any) -> bool:
    """Return whether a table is kept in a compact form: a DataFrame, an array or Parquet files of many rows."""
    return isinstance(table, ParquetTable) or (not issparse(table) and len(table) > LARGE_ROWS)


def source_of(table: Any) -> RowSource:
    """Return the rows of a DataFrame, an array or Parquet files."""
    return FileRows(table) if isinstance(table, ParquetTable) else FrameRows(table)


def random_rows(rows: int, number: int) -> Integers:
    """Return at most this many different row numbers, in order; the same for every call.

    >>> len(random_rows(10, 3))
    3
    """
    if rows <= number:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, number, replace=False, shuffle=False)).astype(np.int64)


def first_occurrences(column: pd.Series, most: int) -> Integers:
    """Return the rows where each entry of a column occurs first; none if there are more than ``most`` entries."""
    places, words = pd.factorize(column)
    if len(words) > most:
        return np.zeros(0, dtype=np.int64)
    return np.unique(places, return_index=True)[1].astype(np.int64)


def _new_words(column: pd.Series, known: set[Any]) -> Integers:
    """Return the rows where entries occur first that are not known, and add these."""
    places, words = pd.factorize(column)
    rows = np.unique(places, return_index=True)[1]
    entries = [None if places[row] < 0 else words[places[row]] for row in rows]
    new = [entry not in known for entry in entries]
    known.update(entries)
    return np.asarray(rows[np.array(new, dtype=bool)], dtype=np.int64)
