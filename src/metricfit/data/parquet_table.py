"""A table in Parquet files that is read when rows are needed, in batches or one column at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.files import CELL, STANDARD_INPUT, Source, check_file, check_memory, file_format, find_files
from metricfit.data.reading import BATCH_ROWS, read_batches, reading_columnar, to_frame, without_infinities
from metricfit.errors import TableError, quote

#: Row groups that a sample is taken from.
PARTS = 8


class ParquetTable:
    """Columns of one or more Parquet files with the same columns.

    It has what estimators ask of a DataFrame: ``columns``, ``shape``, ``len`` and one column by its name.

    Args:
        files: The files.
        columns: The names of the columns; None for all.

    Raises:
        TableError: A file is damaged, or lacks a column.
        TableTooLargeError: The table would take more memory than is allowed even in a compact form.
    """

    def __init__(self, files: Sequence[Path], columns: Sequence[str] | None = None) -> None:
        import pyarrow.parquet as pq

        self.files, rows, names = list(files), 0, None
        for path in self.files:
            check_file(path)
            with reading_columnar(path, "Parquet"):
                rows += pq.read_metadata(path).num_rows
                there = [str(name) for name in pq.read_schema(path).names if not name.startswith("__index_level_")]
            if names is None:
                names = there
            elif set(names) != set(there):
                differing = sorted(set(names) ^ set(there))
                raise TableError(
                    f"{path} has other columns than {self.files[0]}, such as {quote(differing[0])}. Files that make "
                    "one table need the same columns."
                )
        self.columns: list[str] = list(names or [] if columns is None else columns)
        self.shape = (rows, len(self.columns))
        check_memory(self.files[0], CELL * rows * len(self.columns))

    def without(self, names: Sequence[str]) -> ParquetTable:
        """Return the table without some columns."""
        return ParquetTable(self.files, [name for name in self.columns if name not in names])

    def batches(self, rows: int) -> Iterator[pd.DataFrame]:
        """Read the rows in batches of at most this many."""
        for batch in read_batches(self.files, columns=self.columns, rows=rows):
            yield batch.frame[self.columns]

    def head(self) -> pd.DataFrame:
        """Return the first rows."""
        return next(self.batches(1000))

    def sample(self, rows: int) -> pd.DataFrame:
        """Return about this many rows, from the beginnings of row groups that are spread over the files."""
        import pyarrow.parquet as pq

        groups = [(path, group) for path in self.files for group in range(pq.read_metadata(path).num_row_groups)]
        chosen = [groups[place * len(groups) // PARTS] for place in range(PARTS)] if len(groups) > PARTS else groups
        frames = []
        for path, group in chosen:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                batches = file.iter_batches(max(1, rows // len(chosen)), row_groups=[group], columns=self.columns)
                frames += [to_frame(batch, path) for batch in [next(batches, None)] if batch is not None]
        return without_infinities(pd.concat(frames, ignore_index=True))

    def rows(self, numbers: NDArray[np.int64]) -> ParquetRows:
        """Return rows by their numbers; nothing is read yet."""
        return ParquetRows(self, numbers)

    def __getitem__(self, name: str) -> pd.Series:
        if name not in self.columns:
            raise TableError(f"{self.files[0]} has no column {quote(name)}.")
        return pd.concat([batch.frame[name] for batch in read_batches(self.files, columns=[name])], ignore_index=True)

    def __len__(self) -> int:
        return self.shape[0]


@dataclass(frozen=True)
class ParquetRows:
    """Some rows of Parquet files, which are read when they are taken.

    Attributes:
        table: The files.
        numbers: The number of each row, counted from 0 over all files.
    """

    table: ParquetTable
    numbers: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.numbers), self.table.shape[1]

    def take(self, places: NDArray[np.int64]) -> pd.DataFrame:
        """Read the rows at these places, in one pass over the files; the index has their numbers in the table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        numbers = self.numbers[places]
        wanted = np.unique(numbers)
        frames, first = [], 0
        for path in self.table.files:
            with reading_columnar(path, "Parquet"), pq.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=self.table.columns):
                    low, high = np.searchsorted(wanted, [first, first + batch.num_rows])
                    if high > low:
                        frames.append(to_frame(batch.take(pa.array(wanted[low:high] - first)), path))
                    first += batch.num_rows
        frame = without_infinities(pd.concat(frames, ignore_index=True))[self.table.columns]
        return frame.iloc[np.searchsorted(wanted, numbers)].set_index(numbers)


def large_parquet_table(sources: Sequence[Source], rows: int) -> ParquetTable | None:
    """Return the table of Parquet files that together have more than this many rows; None for all others.

    Args:
        sources: Files, folders or patterns.
        rows: The number of rows from which a table is large.
    """
    import pyarrow.parquet as pq

    if STANDARD_INPUT in map(str, sources):
        return None
    files = find_files(sources)
    if any(not path.is_file() or file_format(path) != "parquet" for path in files):
        return None
    try:
        total = sum(pq.read_metadata(path).num_rows for path in files)
    except Exception:  # a damaged file is reported by the reader of whole tables
        return None
    return ParquetTable(files) if total > rows else None
