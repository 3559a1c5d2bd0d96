"""Reading tables from files: CSV (also gzipped), Parquet, Arrow and JSON lines, with clear messages for bad files."""

from __future__ import annotations

import csv
import io
import os
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from metricfit.data.json_lines import check_json_lines
from metricfit.data.limits import CELL, PEAK, check_memory, checked_chunks, open_unpacked, read_parquet
from metricfit.errors import MetricfitError, TableError, quote, shorten

MAX_COLUMNS = 20_000
#: The first bytes of files that are no text, what they are, and the ending of their names.
OTHER_FORMATS = {
    b"PAR1": ("Parquet", ".parquet"),
    b"ARROW1": ("Arrow", ".arrow"),
    b"\x1f\x8b": ("gzip", ".csv.gz"),
    b"PK\x03\x04": ("spreadsheet or zip", ".csv once saved as CSV"),
}

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
}


class TableWarning(UserWarning):
    """Something in a table may not mean what its author intended."""


def read_table(path: str | os.PathLike[str], target: str | None = None) -> pd.DataFrame:
    """Read a table from a file; the ending of the file's name says which format it has.

    Args:
        path: The file.
        target: Name of the column with the labels. In other columns of a text file, words such as NA are missing
            values. In the target they are labels if the other labels are words too; a TableWarning says so.

    Returns:
        The table. Column names are text and all different; infinite numbers are missing values.

    Raises:
        TableError: If the file cannot be read as a table; the message says why.
        TableTooLargeError: If reading the table would take more memory than is allowed.
    """
    path = Path(path)
    file_format = _file_format(path)
    _check_file(path)
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        "csv": lambda path: _read_csv(path, ",", target),
        "tsv": lambda path: _read_csv(path, "\t", target),
        "parquet": lambda path: _read_columnar(path, read_parquet, "Parquet"),
        "arrow": lambda path: _read_columnar(path, _read_arrow, "Arrow"),
        "json lines": _read_json_lines,
    }
    frame = readers[file_format](path)
    frame.columns = [str(name) for name in frame.columns]
    _check_frame(frame, path)
    return frame.replace([np.inf, -np.inf], np.nan)


def _file_format(path: Path) -> str:
    packed = path.suffix.lower() == ".gz"
    ending = Path(path.stem).suffix.lower() if packed else path.suffix.lower()
    file_format = FORMATS.get(ending)
    if file_format is None or (packed and file_format in ("parquet", "arrow")):
        known = ", ".join(sorted({*FORMATS, ".csv.gz", ".jsonl.gz"}))
        raise TableError(
            f"The format of {path.name!r} is not known from the ending of its name. Known endings: {known}."
        )
    return file_format


def _check_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise TableError(f"{path} is a folder; give a file.")
        if not path.exists():
            reason = f"{path} is a symbolic link to nothing." if path.is_symlink() else f"There is no file {path}."
            raise TableError(reason)
        if not path.is_file():
            raise TableError(f"{path} is not a regular file; write its content to one first.")
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty.")
        with open(path, "rb"):
            pass
    except PermissionError:
        raise TableError(f"{path} cannot be read: permission denied.") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}.") from None


def _scan(path: Path) -> tuple[bytes, bool]:
    """Read a text file once, in chunks, to check its size and, if it is packed, its integrity.

    Returns:
        The first chunk, and whether there are NUL bytes anywhere in the file.

    Raises:
        TableTooLargeError: Parsing the table would take more memory than is allowed.
        TableError: The file is packed and damaged.
    """
    start, holds_nul = b"", False
    try:
        for chunk in checked_chunks(path):
            start = start or chunk
            holds_nul = holds_nul or b"\x00" in chunk
    except (EOFError, OSError, zlib.error) as error:
        raise TableError(f"{path} is not a whole gzip file: {shorten(error)}.") from None
    return start, holds_nul


def _read_csv(path: Path, separator: str, target: str | None) -> pd.DataFrame:
    start, holds_nul = _scan(path)
    for magic, (kind, ending) in OTHER_FORMATS.items():
        if start.startswith(magic):
            raise TableError(f"{path} is a {kind} file by its first bytes, not CSV: name it {ending}.")
    if holds_nul:
        hint = " It looks like UTF-16: save it as UTF-8." if start[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise TableError(f"{path} holds NUL bytes, which a text file does not.{hint}")
    names = _header_names(start, separator)
    if len(names) > MAX_COLUMNS:
        raise TableError(_describe_too_wide(path, len(names)))
    _check_names([name for name in names if name], path)  # pandas names those without a name
    try:
        with warnings.catch_warnings(), open_unpacked(path) as content:
            # pandas warns about fields without a name, and would drop them.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(content, sep=separator, low_memory=False, index_col=False)
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is not UTF-8 text (byte {error.start}); convert it, for instance with "
            f"iconv -f latin1 -t utf-8 {path.name}."
        ) from None
    except pd.errors.EmptyDataError:
        raise TableError(f"{path} has no columns.") from None
    except pd.errors.ParserWarning:
        hint = separator_hint(names) or " Name every column, also that of row names (in R: write.csv)."
        raise TableError(
            f"{path} has {len(names)} names in its header and more fields in its rows, so names cannot be assigned "
            f"to fields.{hint}"
        ) from None
    except (pd.errors.ParserError, ValueError) as error:
        raise TableError(f"{path} is not a table: {_first_line(error)}.{separator_hint(names)}") from None
    if target is not None and target in frame.columns and frame[target].isna().any():
        frame[target] = _read_target_column(path, separator, frame, target)
    return frame


def _read_target_column(path: Path, separator: str, frame: pd.DataFrame, target: str) -> pd.Series:
    """Read the target again: empty cells are missing, and words such as NA are labels if the others are words."""
    if pd.api.types.infer_dtype(frame[target], skipna=True) not in ("string", "empty"):
        return frame[target]
    index = frame.columns.get_loc(target)
    with open_unpacked(path) as content:
        labels = pd.read_csv(
            content, sep=separator, index_col=False, usecols=[index], dtype=str, keep_default_na=False, na_values=[""]
        ).iloc[:, 0]
    words = labels[frame[target].isna() & labels.notna()]
    for word, rows in words.value_counts().items():
        warnings.warn(
            f"{quote(word)} occurs in {rows} rows of the target {target!r}; it is read as a label, not as a "
            "missing value.",
            TableWarning,
            stacklevel=4,
        )
    return labels


def _header_names(start: bytes, separator: str) -> list[str]:
    """Return the names in the first line that has any; pandas would rename those that occur twice."""
    lines = csv.reader(io.StringIO(start.decode("utf-8-sig", errors="replace"), newline=""), delimiter=separator)
    try:
        return next((names for names in lines if names), [])
    except csv.Error:  # a quote that never ends, which pandas explains better
        return []


def _read_columnar(path: Path, reader: Callable[[Path], pd.DataFrame], kind: str) -> pd.DataFrame:
    try:
        return reader(path)
    except MetricfitError:
        raise
    except Exception as error:  # pyarrow's errors have no other base class in common
        raise TableError(f"{path} is not a whole {kind} file: {_first_line(error)}.") from None


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
        frame: pd.DataFrame = pa.Table.from_batches(checked, schema=reader.schema).to_pandas()
        return frame


def _read_json_lines(path: Path) -> pd.DataFrame:
    _scan(path)
    check_json_lines(path, MAX_COLUMNS)
    try:
        with open_unpacked(path) as content:
            return pd.read_json(content, lines=True)
    except (ValueError, AssertionError) as error:
        raise TableError(f"{path} cannot be read as JSON lines: {_first_line(error)}.") from None


def _check_frame(frame: pd.DataFrame, path: Path) -> None:
    """Refuse a table without columns or rows, or with cells that hold several values."""
    if frame.shape[1] > MAX_COLUMNS:
        raise TableError(_describe_too_wide(path, frame.shape[1]))
    _check_names(list(frame.columns), path)
    if frame.shape[1] == 0:
        raise TableError(f"{path} has no columns.")
    if len(frame) == 0:
        raise TableError(f"{path} has a header and no rows.")
    for name in [name for name, dtype in frame.dtypes.items() if pd.api.types.is_object_dtype(dtype)]:
        types = {type(value) for value in frame[name]}
        if any(issubclass(value_type, (list, dict, tuple, set, np.ndarray)) for value_type in types):
            raise TableError(
                f"{path}: the column {quote(name)} holds lists or objects; a table needs one value per cell."
            )


def _check_names(names: list[str], path: Path) -> None:
    duplicates = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if duplicates:
        raise TableError(f"{path} has more than one column named {quote(duplicates[0])}; give them different names.")


def _describe_too_wide(path: Path, columns: int) -> str:
    return (
        f"{path} has {columns} columns; the maximum is {MAX_COLUMNS}. Choose the ones that matter, or transpose the "
        "table if its features are in rows."
    )


def separator_hint(names: list[str]) -> str:
    """Explain a table with one column whose name holds another separator than the expected one."""
    if len(names) != 1:
        return ""
    for separator, description, remedy in (
        (";", "semicolons", "save it with commas"),
        ("\t", "tabs", "name it .tsv"),
        ("|", "bars", "save it with commas"),
    ):
        if separator in names[0]:
            return f" Its columns seem to be separated by {description}: {remedy}."
    return ""


def _first_line(error: Exception) -> str:
    return shorten(str(error).strip().splitlines()[0].rstrip(".")) if str(error).strip() else type(error).__name__
