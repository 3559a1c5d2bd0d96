"""Reading tables: CSV (also gzipped), Parquet, Arrow and JSON lines, with clear messages for bad files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricfit.data.column_names import MAX_COLUMNS, check_names, describe_too_wide
from metricfit.data.file_formats import file_format
from metricfit.data.json_lines import check_json_lines
from metricfit.data.limits import CELL, PEAK, check_memory, check_parquet, open_unpacked
from metricfit.data.table_sources import STANDARD_INPUT, Source, find_files, join_tables, standard_input
from metricfit.data.text_format import TextOptions
from metricfit.data.text_tables import read_csv, scan
from metricfit.errors import MetricfitError, TableError, first_line, quote

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
    for at, field in enumerate(table.schema):
        if field.type == pa.time64("ns"):
            times = table.column(at).cast(pa.time64("us"), safe=False)
            table = table.set_column(at, field.with_type(times.type), times)
    try:
        frame: pd.DataFrame = table.to_pandas()
        return frame
    except (ValueError, pa.ArrowException):
        dates = [str(field.name) for field in table.schema if pa.types.is_date(field.type)]
    try:
        frame = table.to_pandas(date_as_object=False)
    except (ValueError, pa.ArrowException) as error:
        raise TableError(_describe_unreadable(table, path, error)) from None
    return frame.astype(dict.fromkeys(dates, "datetime64[s]"))


def _describe_unreadable(table: Any, path: Path, error: Exception) -> str:
    """Name the first column that cannot be converted to pandas."""
    for field in table.schema:
        try:
            table.select([field.name]).to_pandas(date_as_object=False, ignore_metadata=True)
        except Exception as of_column:  # pyarrow's errors have no other base class in common
            return (
                f"{path}: the column {quote(field.name)} of type {field.type} cannot be read: {first_line(of_column)}. "
                "Write it as another type, or as text."
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
