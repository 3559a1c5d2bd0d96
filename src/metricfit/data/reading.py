"""Reading tables at once or in batches of rows: CSV (also gzipped), Parquet, Arrow and JSON lines."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
from pandas._libs.parsers import STR_NA_VALUES

from metricfit.data.columns import MAX_COLUMNS, check_names, describe_too_wide
from metricfit.data.files import (
    CELL,
    PEAK,
    SPOKEN,
    STANDARD_INPUT,
    Source,
    check_memory,
    check_parquet,
    file_format,
    find_files,
    join_tables,
    open_unpacked,
    standard_input,
)
from metricfit.data.text_format import (
    TableWarning,
    TextOptions,
    csv_layout,
    csv_settings,
    explained_errors,
    read_csv,
    scan,
)
from metricfit.errors import MetricfitError, TableError, first_line, quote, shorten

#: Bytes of memory that pandas takes per byte of JSON, per line and per value while it reads JSON lines, as measured.
PER_BYTE, PER_LINE, PER_VALUE = 8, 300, 120


def check_json_lines(path: Path, most_columns: int) -> None:
    """Refuse a file that is not JSON lines, or that would take too much memory.

    Every line with a new name adds a column to all lines, so that a small file can make a huge table.

    Args:
        path: A file of one JSON object per line; it may be packed.
        most_columns: Maximum number of columns.

    Raises:
        TableError: A line is not a JSON object, or holds a value that does not fit a cell.
        TableTooLargeError: Reading the table would take more memory than is allowed.
    """
    columns: set[str] = set()
    size = lines = values = 0
    with open_unpacked(path) as content:
        for number, line in enumerate(content, start=1):
            if not line.strip():
                continue
            row = _parse_row(path, number, line)
            columns.update(row)
            size, lines, values = size + len(line), lines + 1, values + len(row)
            if len(columns) > most_columns:
                raise TableError(
                    f"{path} has more than {most_columns} different names in its objects, the maximum number of "
                    "columns. Use the same names in every line."
                )
            if lines % 1000 == 0:
                _check_size(path, size, lines, values, len(columns))
    _check_size(path, size, lines, values, len(columns))


def _check_size(path: Path, size: int, lines: int, values: int, columns: int) -> None:
    reading = PER_BYTE * size + PER_LINE * lines + PER_VALUE * values
    check_memory(path, max(reading, 2 * CELL * lines * columns))


def _parse_row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else shorten(error)
        raise TableError(f"{path} is not JSON lines, one object per line: line {number}: {reason}.") from None
    if not isinstance(row, dict):
        raise TableError(
            f"{path} is not JSON lines, one object per line: line {number} is {quote(row)}. "
            'Write each row as an object, such as {"a": 1, "y": 0}, on a line of its own.'
        )
    for name, value in row.items():
        if isinstance(value, (list, dict)):
            raise TableError(
                f"{path}: the column {quote(name)} holds lists or objects (line {number}); a table needs one value per "
                "cell."
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise TableError(
                f"{path}: the column {quote(name)} holds {quote(value)} (line {number}), a whole number of more than "
                "64 bits. Write it as text, or as a decimal number."
            )
    return row


#: The usual separators of text files.
SEPARATORS = {"csv": ",", "tsv": "\t"}


def read_table(
    source: Source | Sequence[Source],
    target: str | None = None,
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    text: Sequence[str] = (),
) -> pd.DataFrame:
    r"""Read a table from files; the endings of their names say which format they have.

    Of text files (.csv, .tsv and .txt, also packed with gzip) the separator, the decimal mark and the encoding are
    guessed, and a TableWarning says so if they are unusual.

    Args:
        source: A file; a folder or a pattern such as ``"parts/*.parquet"``, whose files have the same columns and make
            one table; a list of these; or ``"-"`` for standard input.
        target: Name of the column with the labels. In other columns of a text file, words such as NA are missing
            values. In the target they are labels if the other labels are words too; a TableWarning says so.
        sep: The separator of text files: one character, or "tab".
        decimal: Their decimal mark, "." or ",".
        encoding: Their encoding, such as "utf-8", "cp1252" or "utf-16".
        text: Columns of text files that are read as they are written, such as zip codes: 01067 stays "01067".

    Returns:
        The table. Column names are text and all different; infinite numbers are missing values.

    Raises:
        InvalidValueError: ``sep``, ``decimal`` or ``encoding`` cannot be used.
        TableError: A file cannot be read as a table, or files differ in their columns; the message says why.
        TableTooLargeError: Reading the table would take more memory than is allowed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "rows.csv").write_text("height;y\n1,5;0\n2,5;1\n")
        ...     read_table(folder + "/rows.csv", sep=";", decimal=",")
           height  y
        0     1.5  0
        1     2.5  1
    """
    options = TextOptions(sep, decimal, encoding).checked()
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if [str(each) for each in sources] == [STANDARD_INPUT]:
        with standard_input() as path:
            return join_tables([path], lambda file: read_file(file, target, options, text))
    return join_tables(find_files(sources), lambda file: read_file(file, target, options, text))


def read_file(path: Path, target: str | None, options: TextOptions, text: Sequence[str] = ()) -> pd.DataFrame:
    """Read the table of one file; the arguments are those of ``read_table``, checked."""
    known = file_format(path)
    check_file(path)
    if known not in SEPARATORS and options != TextOptions():
        raise TableError(f"{path} is a {known} file; sep, decimal and encoding are for text files such as CSV.")
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        "parquet": lambda path: _read_columnar(path, _read_parquet, "Parquet"),
        "arrow": lambda path: _read_columnar(path, _read_arrow, "Arrow"),
        "json lines": _read_json_lines,
    }
    frame = readers[known](path) if known in readers else read_csv(path, SEPARATORS[known], target, options, text)
    frame.columns = [str(name) for name in frame.columns]
    check_frame(frame, path)
    if not len(frame):
        raise TableError(describe_no_rows(path))
    return frame.replace([np.inf, -np.inf], np.nan)


def check_file(path: Path) -> None:
    """Refuse a path that is no file, an empty file, and one that may not be read.

    Raises:
        TableError: It cannot be read.
    """
    try:
        if not path.exists():
            reason = f"{path} is a symbolic link to nothing." if path.is_symlink() else f"There is no file {path}."
            raise TableError(reason)
        if not path.is_file():
            raise TableError(f"{path} is not a regular file; write its content to one, or to standard input (-).")
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty.")
        with open(path, "rb"):
            pass
    except PermissionError:
        raise TableError(f"{path} cannot be read: permission denied.") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}.") from None


@contextmanager
def reading_columnar(path: Path, kind: str) -> Iterator[None]:
    """Say which file is damaged if pyarrow cannot read it.

    Raises:
        TableError: pyarrow has failed.
    """
    try:
        yield
    except MetricfitError:
        raise
    except Exception as error:  # pyarrow's errors have no other base class in common
        raise TableError(f"{path} is not a whole {kind} file: {first_line(error)}.") from None


def to_frame(rows: Any, path: Path) -> pd.DataFrame:
    """Convert a table or a batch of Arrow to pandas.

    pandas has no nanoseconds within a time of day, which are cut off, and no objects for days after the year 9999,
    which become times in seconds.

    Raises:
        TableError: pandas has nothing that can hold a column; the message names it.
    """
    import pyarrow as pa

    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    for at, column in enumerate(table.schema):
        if column.type == pa.time64("ns"):
            times = table.column(at).cast(pa.time64("us"), safe=False)
            table = table.set_column(at, column.with_type(times.type), times)
    try:
        frame: pd.DataFrame = table.to_pandas()
        return frame
    except (ValueError, pa.ArrowException):
        dates = [str(column.name) for column in table.schema if pa.types.is_date(column.type)]
    try:
        frame = table.to_pandas(date_as_object=False)
    except (ValueError, pa.ArrowException) as error:
        raise TableError(_describe_unreadable(table, path, error)) from None
    return frame.astype(dict.fromkeys(dates, "datetime64[s]"))


def _describe_unreadable(table: Any, path: Path, error: Exception) -> str:
    """Name the first column that cannot be converted to pandas."""
    for column in table.schema:
        try:
            table.select([column.name]).to_pandas(date_as_object=False, ignore_metadata=True)
        except Exception as of_column:  # pyarrow's errors have no other base class in common
            return (
                f"{path}: the column {quote(column.name)} of type {column.type} cannot be read: "
                f"{first_line(of_column)}. Write it as another type, or as text."
            )
    return f"{path} cannot be read: {first_line(error)}."


def _read_columnar(path: Path, reader: Callable[[Path], pd.DataFrame], kind: str) -> pd.DataFrame:
    with reading_columnar(path, kind):
        return reader(path)


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    check_parquet(path)
    return to_frame(pq.ParquetFile(path, page_checksum_verification=True).read(), path)


def _read_arrow(path: Path) -> pd.DataFrame:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        try:
            reader = pa.ipc.open_file(file)
            batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
            batches = iter(reader)
        checked, size = [], 0
        for batch in batches:  # one at a time, because batches may be packed
            size += max(batch.nbytes, CELL * batch.num_rows * batch.num_columns)
            check_memory(path, PEAK * size)
            checked.append(batch)
        return to_frame(pa.Table.from_batches(checked, schema=reader.schema), path)


def _read_json_lines(path: Path) -> pd.DataFrame:
    scan(path)
    check_json_lines(path, MAX_COLUMNS)
    try:
        with open_unpacked(path) as content:
            return pd.read_json(content, lines=True)
    except (ValueError, AssertionError) as error:
        raise TableError(f"{path} cannot be read as JSON lines: {first_line(error)}.") from None


def describe_no_rows(path: Path) -> str:
    """Say that a table has no rows."""
    return f"{path} has a header and no rows."


def check_frame(frame: pd.DataFrame, path: Path) -> None:
    """Refuse a table without columns, or with cells that hold several values."""
    if frame.shape[1] > MAX_COLUMNS:
        raise TableError(describe_too_wide(path, frame.shape[1]))
    check_names(list(frame.columns), path)
    if frame.shape[1] == 0:
        raise TableError(f"{path} has no columns.")
    for name in [name for name, dtype in frame.dtypes.items() if pd.api.types.is_object_dtype(dtype)]:
        types = {type(value) for value in frame[name]}
        if any(issubclass(value_type, (list, dict, tuple, set, np.ndarray)) for value_type in types):
            raise TableError(
                f"{path}: the column {quote(name)} holds lists or objects; a table needs one value per cell."
            )


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
