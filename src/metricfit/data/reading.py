"""Tables read at once, in batches of rows, or when rows are needed: CSV (also packed), Parquet, Arrow, JSON lines."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.columnar import arrow_batches, parquet_batches, read_columnar, reading_columnar, to_frame
from metricfit.data.columns import MAX_COLUMNS, check_names, describe_too_wide
from metricfit.data.files import (
    CELL,
    OTHERS,
    SPOKEN,
    STANDARD_INPUT,
    Source,
    check_file,
    check_memory,
    file_format,
    file_of,
    find_files,
    join_tables,
    open_unpacked,
    standard_input,
)
from metricfit.data.other_sources import read_other
from metricfit.data.text_format import (
    GUESSED,
    MISSING_WORDS,
    SEPARATORS,
    TableWarning,
    TextOptions,
    csv_settings,
    explained_errors,
    find_layout,
    read_csv,
    scan,
)
from metricfit.errors import TableError, quote, shorten

#: Rows of a batch: enough to keep the processors busy, and few enough that hundreds of columns fit into a gigabyte.
BATCH_ROWS = 100_000
#: Row groups that a sample of a Parquet table is taken from.
PARTS = 8
#: Bytes of memory that pandas takes per byte of JSON, per line and per value while it reads JSON lines, as measured.
PER_BYTE, PER_LINE, PER_VALUE = 8, 300, 120


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
    guessed. A TableWarning says so if they are unusual.

    Args:
        source: A file, also a spreadsheet (.xlsx), a JSON array, or a table of SQLite or DuckDB, such as
            ``"loans.db::applications"``; a folder or a pattern such as ``"parts/*.parquet"``, whose files have the same
            columns and make one table; a list of these; or ``"-"`` for standard input.
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
    with _files_of([source] if isinstance(source, (str, os.PathLike)) else list(source)) as files:
        return join_tables(files, lambda file: read_file(file, target, options, text))


def read_file(
    path: Path, target: str | None = None, options: TextOptions = GUESSED, text: Sequence[str] = ()
) -> pd.DataFrame:
    """Read the table of one file; the arguments are the checked ones of ``read_table``."""
    known = _checked_format(path, options)
    if known in SEPARATORS:
        frame = read_csv(path, SEPARATORS[known], target, options, text)
    else:
        other = partial(read_other, known=known) if known in OTHERS else partial(read_columnar, known=known)
        frame = _read_json_lines(path) if known == "json lines" else other(path)
    frame.columns = [str(name) for name in frame.columns]
    _check_frame(frame, path)
    if not len(frame):
        raise TableError(_describe_no_rows(path))
    return frame.replace([np.inf, -np.inf], np.nan)


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file.

    Attributes:
        frame: The rows.
        source: The name of their file, for messages.
        first: The number of the first row in its file; the first row of a file is 1.
        share_read: The share of the bytes of all files that has been read.
    """

    frame: pd.DataFrame
    source: str
    first: int
    share_read: float


@dataclass(frozen=True)
class ColumnTypes:
    """Columns of a text file whose type does not depend on the rows of a batch.

    Attributes:
        text: Columns that are read as text, also where they look like numbers.
        words: Columns that are read as text in which words such as NA are no missing values.
    """

    text: Collection[str] = ()
    words: Collection[str] = ()

    def settings(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of ``read_csv`` for a file with these columns."""
        settings: dict[str, Any] = {"dtype": dict.fromkeys([*self.text, *self.words], str)}
        if any(name in self.words for name in names):
            named = [name or f"Unnamed: {number}" for number, name in enumerate(names)]  # as pandas names them
            missing = {name: [""] if name in self.words else list(MISSING_WORDS) for name in named}
            settings |= {"keep_default_na": False, "na_values": missing}
        return settings


ANY_TYPES = ColumnTypes()


def read_batches(
    sources: Sequence[Source],
    options: TextOptions = GUESSED,
    *,
    columns: Collection[str] | None = None,
    types: ColumnTypes = ANY_TYPES,
    rows: int | None = None,
    may_be_empty: bool = False,
) -> Iterator[Batch]:
    r"""Read the rows of one or more files in batches, so that a table of any size takes a constant amount of memory.

    Files of JSON lines are read at once, because any line may add a column; so are spreadsheets and databases.

    Args:
        sources: A file, several, a folder, a pattern, or ``"-"`` for standard input.
        options: How text files are written; what is None is guessed.
        columns: The columns that are needed; others may be left out. None for all.
        types: Columns of text files whose type is known.
        rows: Maximum number of rows of a batch; by default 100,000.
        may_be_empty: Whether a file may have a header and no rows; its one batch is then empty.

    Yields:
        The batches, in the order of the files and of their rows.

    Raises:
        TableError: A file cannot be read as a table, or has no rows.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> _ = Path(folder.name, "rows.csv").write_text("size,kind\n1,a\n2,b\n3,c\n")
        >>> [(each.first, each.frame["size"].tolist()) for each in read_batches([folder.name + "/rows.csv"], rows=2)]
        [(1, [1, 2]), (3, [3])]
        >>> folder.cleanup()
    """
    options, rows = options.checked(), rows or BATCH_ROWS
    with _files_of(sources, in_batches=True) as files:
        known = [_checked_format(path, options) for path in files]
        sizes = [file_of(path).stat().st_size for path in files]
        for number, path in enumerate(files):
            source = SPOKEN if path.name.startswith(SPOKEN) else str(path)
            first = 1
            for frame, share in _frames_of(path, known[number], options, columns, types, rows):
                frame.columns = [str(name) for name in frame.columns]
                _check_frame(frame, path)
                if frame.empty and not may_be_empty:
                    continue
                read = (sum(sizes[:number]) + share * sizes[number]) / sum(sizes)
                yield Batch(without_infinities(frame).reset_index(drop=True), source, first, read)
                first += len(frame)
            if first == 1 and not may_be_empty:
                raise TableError(_describe_no_rows(path))


def without_infinities(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with missing values in place of infinite numbers."""
    floats = [name for name in frame.columns if pd.api.types.is_float_dtype(frame[name])]
    if not any(np.isinf(frame[name].to_numpy(dtype=np.float64, na_value=np.nan)).any() for name in floats):
        return frame
    return frame.replace([np.inf, -np.inf], np.nan)


@contextmanager
def _files_of(sources: Sequence[Source], *, in_batches: bool = False) -> Iterator[list[Path]]:
    """Find the files of a table; standard input is one of them for as long as the context lasts."""
    with ExitStack() as stack:
        if [str(source) for source in sources] == [STANDARD_INPUT]:
            yield [stack.enter_context(standard_input(in_batches=in_batches))]
        else:
            yield find_files(sources)


def _checked_format(path: Path, options: TextOptions) -> str:
    known = file_format(path)
    check_file(path)
    if known not in SEPARATORS and options != GUESSED:
        raise TableError(f"{path} is a {known} file; sep, decimal and encoding are for text files such as CSV.")
    return known


def _frames_of(
    path: Path, known: str, options: TextOptions, columns: Collection[str] | None, types: ColumnTypes, rows: int
) -> Iterator[tuple[pd.DataFrame, float]]:
    """Read a file in batches; with each batch comes the share of the file that has been read."""
    if known in SEPARATORS:
        yield from _text_frames(path, known, options, types, rows)
    elif known in ("json lines", *OTHERS):
        frame = read_file(path)
        for first in range(0, len(frame), rows):
            yield frame.iloc[first : first + rows], min(1.0, (first + rows) / len(frame))
    else:
        batches = parquet_batches(path, columns, rows) if known == "parquet" else arrow_batches(path)
        with reading_columnar(path, known):
            for batch, share in batches:
                for first in range(0, batch.num_rows or 1, rows):
                    yield to_frame(batch.slice(first, rows), path), share


def _text_frames(
    path: Path, known: str, options: TextOptions, types: ColumnTypes, rows: int
) -> Iterator[tuple[pd.DataFrame, float]]:
    written, names = find_layout(path, SEPARATORS[known], options, in_batches=True)
    if written.guessed is not None:
        warnings.warn(f"{path.name} {written.guessed}.", TableWarning, stacklevel=4)
    size = path.stat().st_size
    with open_unpacked(path) as content:
        packed = getattr(content, "fileobj", None) or content
        with explained_errors(path, written, names):
            reader = pd.read_csv(content, **csv_settings(written), **types.settings(names), chunksize=rows)
        while True:  # a context around the loop would change the filters of warnings for whoever takes the batches
            with explained_errors(path, written, names):
                frame = next(reader, None)
            if frame is None:
                return
            yield frame, min(1.0, packed.tell() / size)


def _read_json_lines(path: Path) -> pd.DataFrame:
    """Read JSON lines, and refuse a file that would take too much memory.

    Every line with a new name adds a column to all lines, so that a small file can make a huge table.

    Raises:
        TableError: A line is not a JSON object, or holds a value that does not fit a cell.
        TableTooLargeError: Reading the table would take more memory than is allowed.
    """
    scan(path)
    columns: set[str] = set()
    needed, rows = 0, []
    with open_unpacked(path) as content:
        for number, line in enumerate(content, start=1):
            if not line.strip():
                continue
            rows.append(_parse_row(path, number, line))
            columns.update(rows[-1])
            needed += PER_BYTE * len(line) + PER_LINE + PER_VALUE * len(rows[-1])
            if len(columns) > MAX_COLUMNS:
                raise TableError(
                    f"{path} has more than {MAX_COLUMNS} different names in its objects, the maximum number of "
                    "columns. Use the same names in every line."
                )
            if len(rows) % 1000 == 0:
                check_memory(path, max(needed, 2 * CELL * len(rows) * len(columns)))
    check_memory(path, max(needed, 2 * CELL * len(rows) * len(columns)))
    return pd.DataFrame(rows)


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
            raise TableError(_describe_nested(path, name, f" (line {number})"))
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise TableError(
                f"{path}: the column {quote(name)} holds {quote(value)} (line {number}), a whole number of more than "
                "64 bits. Write it as text, or as a decimal number."
            )
    return row


def _describe_no_rows(path: Path) -> str:
    return f"{path} has a header and no rows."


def _describe_nested(path: Path, name: str, where: str = "") -> str:
    return f"{path}: the column {quote(name)} holds lists or objects{where}; a table needs one value per cell."


def _check_frame(frame: pd.DataFrame, path: Path) -> None:
    """Refuse a table without columns, or with cells that hold several values."""
    if frame.shape[1] > MAX_COLUMNS:
        raise TableError(describe_too_wide(path, frame.shape[1]))
    check_names(list(frame.columns), path)
    if frame.shape[1] == 0:
        raise TableError(f"{path} has no columns.")
    for name in [name for name, dtype in frame.dtypes.items() if pd.api.types.is_object_dtype(dtype)]:
        types = {type(value) for value in frame[name]}
        if any(issubclass(value_type, (list, dict, tuple, set, np.ndarray)) for value_type in types):
            raise TableError(_describe_nested(path, str(name)))


class ParquetTable:
    """Columns of one or more Parquet files with the same columns, read in batches or when rows are taken.

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

        self.files, rows, names = list(files), 0, list[str]()
        for path in self.files:
            check_file(path)
            with reading_columnar(path, "Parquet"):
                rows += pq.read_metadata(path).num_rows
                there = [str(name) for name in pq.read_schema(path).names if not name.startswith("__index_level_")]
            names = names or there
            if set(names) != set(there):
                differing = sorted(set(names) ^ set(there))
                raise TableError(
                    f"{path} has other columns than {self.files[0]}, such as {quote(differing[0])}. Files that make "
                    "one table need the same columns."
                )
        self.columns = names if columns is None else list(columns)
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
        groups = [group for fragment in self._dataset().get_fragments() for group in fragment.split_by_row_group()]
        chosen = [groups[place * len(groups) // PARTS] for place in range(PARTS)] if len(groups) > PARTS else groups
        heads = [group.head(max(1, rows // len(chosen)), columns=self.columns) for group in chosen]
        return without_infinities(pd.concat([to_frame(head, self.files[0]) for head in heads], ignore_index=True))

    def take(self, numbers: NDArray[np.int64]) -> pd.DataFrame:
        """Read rows by their numbers, counted from 0 over all files, in one pass; the index has these numbers."""
        with reading_columnar(self.files[0], "Parquet"):
            frame = to_frame(self._dataset().take(numbers, columns=self.columns), self.files[0])
        return without_infinities(frame)[self.columns].set_index(numbers)

    def rows(self, numbers: NDArray[np.int64]) -> ParquetRows:
        """Return rows by their numbers; nothing is read yet."""
        return ParquetRows(self, numbers)

    def _dataset(self) -> Any:
        import pyarrow.dataset

        options = pyarrow.dataset.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=False)
        parquet = pyarrow.dataset.ParquetFileFormat(default_fragment_scan_options=options)
        return pyarrow.dataset.dataset([str(path) for path in self.files], format=parquet)

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
        """Read the rows at these places; the index has their numbers in the table."""
        return self.table.take(self.numbers[places])


def large_parquet_table(sources: Sequence[Source], rows: int) -> ParquetTable | None:
    """Return the table of Parquet files that together have more than this many rows; None for all others.

    Args:
        sources: Files, folders or patterns.
        rows: The number of rows from which a table is large.
    """
    if STANDARD_INPUT in map(str, sources):
        return None
    files = find_files(sources)
    if any(not path.is_file() or file_format(path) != "parquet" for path in files):
        return None
    import pyarrow.parquet as pq

    try:
        total = sum(pq.read_metadata(path).num_rows for path in files)
    except Exception:  # a damaged file is reported by the reader of whole tables
        return None
    return ParquetTable(files) if total > rows else None
