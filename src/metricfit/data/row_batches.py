"""Tables read in batches of rows, so that a table of any size takes a constant amount of memory."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
from pandas._libs.parsers import STR_NA_VALUES

from metricfit.data.file_formats import file_format
from metricfit.data.limits import open_unpacked
from metricfit.data.table_files import (
    SEPARATORS,
    check_file,
    check_frame,
    describe_no_rows,
    read_file,
    reading_columnar,
    to_frame,
)
from metricfit.data.table_sources import SPOKEN, STANDARD_INPUT, Source, find_files, standard_input
from metricfit.data.text_format import TableWarning, TextOptions
from metricfit.data.text_tables import csv_layout, csv_settings, explained_errors
from metricfit.errors import TableError

#: Rows of a batch: enough to keep the processors busy, and few enough that hundreds of columns fit into a gigabyte.
BATCH_ROWS = 100_000


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of a file.

    Attributes:
        frame: The rows.
        source: The name of their file, for messages.
        first: The number of the first row in its file; the first row of a file is 1.
    """

    frame: pd.DataFrame
    source: str
    first: int


@dataclass(frozen=True)
class ColumnTypes:
    """Columns of a text file whose type does not depend on what a batch happens to hold.

    Attributes:
        text: Columns that are read as text, also where they look like numbers.
        words: Columns that are read as text in which words such as NA are no missing values.
    """

    text: Collection[str] = ()
    words: Collection[str] = ()


@dataclass
class RowBatches:
    r"""The rows of one or more files, in batches.

    Parquet, Arrow and text files are read in batches. Files of JSON lines are read at once, because any line may add a
    column.

    Args:
        sources: A file, several, a folder, a pattern, or ``"-"`` for standard input.
        options: How text files are written; what is not given is guessed.
        columns: The columns that are needed; others may be left out. None for all.
        types: Columns of text files whose type is known.
        rows: Number of rows of a batch.
        may_be_empty: Whether a file may have a header and no rows; its one batch is then empty.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> _ = Path(folder.name, "rows.csv").write_text("size,kind\n1,a\n2,b\n3,c\n")
        >>> with RowBatches([folder.name + "/rows.csv"], rows=2) as batches:
        ...     [(batch.first, batch.frame["size"].tolist()) for batch in batches]
        [(1, [1, 2]), (3, [3])]
        >>> folder.cleanup()
    """

    sources: Sequence[Source]
    options: TextOptions = field(default_factory=TextOptions)
    columns: Collection[str] | None = None
    types: ColumnTypes = field(default_factory=ColumnTypes)
    rows: int = BATCH_ROWS
    may_be_empty: bool = False
    #: The share of the bytes that has been read.
    share_read: float = field(default=0.0, init=False)
    _files: list[Path] = field(default_factory=list, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> RowBatches:
        """Find the files, and check that they can be read."""
        self.options = self.options.checked()
        with ExitStack() as stack:  # what fails here is reported as what fails later
            if [str(source) for source in self.sources] == [STANDARD_INPUT]:
                self._files = [stack.enter_context(standard_input(in_batches=True))]
            else:
                self._files = find_files(self.sources)
            for path in self._files:
                known = file_format(path)
                check_file(path)
                if known not in SEPARATORS and self.options != TextOptions():
                    raise TableError(
                        f"{path} is a {known} file; sep, decimal and encoding are for text files such as CSV."
                    )
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Remove what standard input was written to."""
        return self._open.__exit__(kind, error, traceback)

    def __iter__(self) -> Iterator[Batch]:
        """Read the rows from the beginning.

        Raises:
            TableError: A file cannot be read as a table, or has no rows.
        """
        sizes = [path.stat().st_size for path in self._files]
        for number, path in enumerate(self._files):
            source = SPOKEN if str(path.name).startswith(SPOKEN) else str(path)
            before, first = sum(sizes[:number]), 1
            for frame, share in self._frames_of(path):
                frame.columns = [str(name) for name in frame.columns]
                check_frame(frame, path)
                if frame.empty and not self.may_be_empty:
                    continue
                self.share_read = (before + share * sizes[number]) / sum(sizes)
                yield Batch(without_infinities(frame), source, first)
                first += len(frame)
            if first == 1 and not self.may_be_empty:
                raise TableError(describe_no_rows(path))
        self.share_read = 1.0

    def _frames_of(self, path: Path) -> Iterator[tuple[pd.DataFrame, float]]:
        """Read a file; with each batch comes the share of the file that has been read."""
        known = file_format(path)
        if known == "parquet":
            yield from _parquet_frames(path, self.columns, self.rows)
        elif known == "arrow":
            yield from _arrow_frames(path, self.rows)
        elif known in SEPARATORS:
            yield from self._text_frames(path, SEPARATORS[known])
        else:
            frame = read_file(path, None, self.options)
            for first in range(0, len(frame), self.rows):
                yield frame.iloc[first : first + self.rows].reset_index(drop=True), first / len(frame)

    def _text_frames(self, path: Path, usual: str) -> Iterator[tuple[pd.DataFrame, float]]:
        written, names = csv_layout(path, usual, self.options, in_batches=True)
        if written.guessed is not None:
            warnings.warn(f"{path.name} {written.guessed}.", TableWarning, stacklevel=4)
        size = max(1, path.stat().st_size)
        with open_unpacked(path) as content:
            packed = getattr(content, "fileobj", None) or content
            with explained_errors(path, written, names):
                reader = pd.read_csv(content, **csv_settings(written), **self._types_of(names), chunksize=self.rows)
            while True:
                with explained_errors(path, written, names):
                    frame = next(reader, None)
                if frame is None:
                    return
                yield frame.reset_index(drop=True), min(1.0, packed.tell() / size)

    def _types_of(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of ``read_csv`` that say which columns are text."""
        settings: dict[str, Any] = {"dtype": dict.fromkeys([*self.types.text, *self.types.words], str)}
        if any(name in self.types.words for name in names):
            named = [name or f"Unnamed: {number}" for number, name in enumerate(names)]  # as pandas names them
            missing = {name: [""] if name in self.types.words else list(STR_NA_VALUES) for name in named}
            settings |= {"keep_default_na": False, "na_values": missing}
        return settings


def without_infinities(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with missing values in place of infinite numbers."""
    floats = [name for name in frame.columns if pd.api.types.is_float_dtype(frame[name])]
    if not any(np.isinf(frame[name].to_numpy(dtype=np.float64, na_value=np.nan)).any() for name in floats):
        return frame
    return frame.replace([np.inf, -np.inf], np.nan)


def _parquet_frames(path: Path, columns: Collection[str] | None, rows: int) -> Iterator[tuple[pd.DataFrame, float]]:
    import pyarrow.parquet as pq

    with reading_columnar(path, "Parquet"):
        file = pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
    with file:
        there = set(file.schema_arrow.names)
        # Where a column is missing, all others are read, so that a message can name the one that was meant.
        read = None if columns is None or not there.issuperset(columns) else list(columns)
        batches = file.iter_batches(rows, columns=read)
        total, done = file.metadata.num_rows, 0
        if not total:
            yield to_frame(file.schema_arrow.empty_table(), path), 1.0
        while True:
            with reading_columnar(path, "Parquet"):
                batch = next(batches, None)
                frame = None if batch is None else to_frame(batch, path)
            if frame is None:
                return
            done += len(frame)
            yield frame.reset_index(drop=True), done / total


def _arrow_frames(path: Path, rows: int) -> Iterator[tuple[pd.DataFrame, float]]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        with reading_columnar(path, "Arrow"):
            try:
                reader = pa.ipc.open_file(file)
                batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
            except pa.ArrowInvalid:
                file.seek(0)
                reader = pa.ipc.open_stream(file)
                batches = iter(reader)
        is_empty = True
        while True:
            with reading_columnar(path, "Arrow"):
                batch = next(batches, None)
            if batch is None:
                break
            share = min(1.0, file.tell() / max(1, file.size()))
            for first in range(0, batch.num_rows, rows):
                with reading_columnar(path, "Arrow"):
                    frame = to_frame(batch.slice(first, rows), path)
                is_empty = False
                yield frame.reset_index(drop=True), share
        if is_empty:
            yield to_frame(reader.schema.empty_table(), path), 1.0
