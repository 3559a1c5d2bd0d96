"""Files with tables: their formats, where they come from, limits on the memory for reading them, and new files."""

from __future__ import annotations

import glob
import gzip
import lzma
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd

from metricfit._files import new_file
from metricfit.errors import InvalidValueError, MetricfitError, TableError, TableTooLargeError, first_line, quote

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
    ".txt": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".json": "json",
    ".xlsx": "spreadsheet",
    ".xlsm": "spreadsheet",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".duckdb": "duckdb",
}
#: Stands between the file of a database and the name of a table in it.
BETWEEN = "::"
#: Formats that are read as a whole by ``other_sources``; folders are not searched for them.
OTHERS = ("json", "spreadsheet", "sqlite", "duckdb")
DATABASES = ("sqlite", "duckdb")
SPREADSHEETS = (".xls", ".ods", ".numbers")


def file_format(path: Path) -> str:
    """Return the format of a file by the ending of its name, such as "csv", "parquet" or "sqlite".

    Raises:
        TableError: The ending is not known.

    Example:
        >>> file_format(Path("rows.csv.gz"))
        'csv'
    """
    known = _format_of(path)
    if known is None:
        endings = ", ".join(sorted({*FORMATS, ".csv.gz", ".jsonl.gz"}))
        sheet = " Save the sheet as CSV UTF-8 first." if path.suffix.lower() in SPREADSHEETS else ""
        raise TableError(
            f"The format of {path.name!r} is not known from the ending of its name. Known endings: {endings}.{sheet}"
        )
    return known


def ending_of(content: bytes) -> str:
    """Guess the ending that a file of this content should have, from its first bytes."""
    for magic, ending in {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\xff\xff\xff\xff": ".arrow"}.items():
        if content.startswith(magic):
            return ending
    if content.startswith(b"\x1f\x8b"):
        return ".csv.gz"
    return {b"{": ".jsonl", b"[": ".json"}.get(content.lstrip()[:1], ".csv")


def _format_of(path: Path) -> str | None:
    path = file_of(path)
    packed = path.suffix.lower() in (".gz", ".xz")
    known = FORMATS.get(Path(path.stem).suffix.lower() if packed else path.suffix.lower())
    return None if packed and known in ("parquet", "arrow", *OTHERS) else known


def file_of(path: Path) -> Path:
    """Return the file of a source: ``loans.db`` of ``loans.db::applications``, other paths as they are."""
    file = Path(str(path).partition(BETWEEN)[0])
    return file if FORMATS.get(file.suffix.lower()) in DATABASES else path


#: The environment variable that sets the limit, in GiB, and its default.
VARIABLE, DEFAULT_GB = "METRICFIT_MAX_TABLE_GB", 4.0
CHUNK = 2**22
#: Bytes of the longest line of text that is read: one cell of a gigabyte would take several gigabytes.
LONGEST_LINE = 2**26
CELL = 8  # bytes of a number
#: pandas needs up to two times the memory of a table while it reads CSV or converts Parquet and Arrow.
PEAK = 2
TEXT_REMEDY = "Convert it to Parquet, which metricfit fit reads in batches, or use fewer rows or columns"


def max_table_bytes() -> int:
    """Return how many bytes of memory reading a table may take.

    Raises:
        InvalidValueError: The environment variable is not a number above 0.
    """
    text = os.environ.get(VARIABLE, "").strip()
    try:
        limit = float(text) if text else DEFAULT_GB
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise InvalidValueError(f"{VARIABLE} is a number of GiB above 0, such as 16; got {quote(text)}")
    return int(min(limit * 2**30, 2**62))


def check_memory(path: Path, needed: float, remedy: str = "Use fewer rows or columns") -> None:
    """Refuse a table that needs more memory than is allowed.

    Args:
        path: The table's file, for the message.
        needed: Estimated bytes of memory to read it.
        remedy: What to do about it, in words.

    Raises:
        TableTooLargeError: The table needs more; the message names the limit and how to raise it.
    """
    limit = max_table_bytes()
    if needed > limit:
        raise TableTooLargeError(
            f"Reading {path} needs at least {needed / 2**30:.3g} GiB of memory, more than the limit of "
            f"{limit / 2**30:.3g} GiB. {remedy}, or, if there is enough memory, set the "
            f"environment variable {VARIABLE} to a larger number of GiB"
        )


def open_unpacked(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked if its name ends in .gz or .xz."""
    ending = path.suffix.lower()
    file = gzip.open(path) if ending == ".gz" else lzma.open(path) if ending == ".xz" else open(path, "rb")  # noqa: SIM115
    return cast(BinaryIO, file)


def checked_chunks(path: Path, *, in_batches: bool = False) -> Iterator[bytes]:
    """Read a text table in chunks, unpacked, and stop as soon as it is known to be too large.

    A CSV table takes its own size for text, and eight bytes for each number. It has at least one cell per separator
    or line, and one per line and column where lines are shorter than the header.

    Args:
        path: The file.
        in_batches: Whether the table is parsed in batches of rows; then only lines can be too large.

    Raises:
        TableTooLargeError: Parsing the table would take more memory than is allowed, or a line is too long.
    """
    size = lines = columns = in_line = 0
    separators = dict.fromkeys((b",", b"\t", b";", b"|"), 0)
    with open_unpacked(path) as file:
        while chunk := file.read(CHUNK):
            in_line = 0 if b"\n" in chunk or b"\r" in chunk else in_line + len(chunk)
            if in_line > LONGEST_LINE:
                raise TableTooLargeError(
                    f"{path} has a line of more than {LONGEST_LINE // 2**20} MiB, which no table has. Is it another "
                    "kind of file?"
                )
            if not in_batches:
                size += len(chunk)
                if not columns:
                    header = chunk.lstrip(b"\r\n").split(b"\n", 1)[0]
                    columns = 1 + max(header.count(separator) for separator in (b",", b"\t"))
                lines += chunk.count(b"\n")
                for separator in separators:
                    separators[separator] += chunk.count(separator)
                cells = max(lines + max(separators.values()), lines * columns)
                check_memory(path, PEAK * (size + CELL * cells), TEXT_REMEDY)
            yield chunk


def check_file(path: Path) -> None:
    """Refuse a path that is no file, an empty file, and one that may not be read.

    Raises:
        TableError: It cannot be read.
    """
    path = file_of(path)
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


#: Maximum number of columns that a message names.
NAMED = 5
#: The name of standard input, as a source and in messages.
STANDARD_INPUT, SPOKEN = "-", "standard input"

Source = str | os.PathLike[str]


def find_files(sources: Sequence[Source]) -> list[Path]:
    """Return the files that make a table, in the given order; a folder or a pattern is sorted by name.

    Args:
        sources: Files, folders, and patterns such as ``data/*.parquet``.

    Raises:
        TableError: A folder has no file with a table, or a pattern matches none.
    """
    if not sources:
        raise TableError("There is no file to read; give at least one.")
    if STANDARD_INPUT in map(str, sources):
        raise TableError("- stands for standard input and is given alone, without further files.")
    files = [file for source in sources for file in _files_of(Path(source))]
    twice = next((file for number, file in enumerate(files) if file in files[:number]), None)
    if twice is not None:
        raise TableError(f"{twice} is given twice; its rows would count twice.")
    return files


def join_tables(files: Sequence[Path], read: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
    """Read several files as one table, with the columns in the order of the first.

    Raises:
        TableError: The files differ in their columns, or in whether a column holds numbers; the message says how.
        TableTooLargeError: Together they would take more memory than is allowed.
    """
    frames: list[pd.DataFrame] = []
    size = 0
    for file in files:
        frame = read(file)
        if frames:
            _check_alike(frames[0], frame, files[0], file)
            frame = frame[list(frames[0].columns)]
        size += int(frame.memory_usage(index=False).sum())
        if len(files) > 1:
            check_memory(file.parent, PEAK * size)
        frames.append(frame)
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


@contextmanager
def standard_input(*, in_batches: bool = False) -> Iterator[Path]:
    """Write standard input to a temporary file, whose ending fits its first bytes; messages say "standard input".

    Args:
        in_batches: Whether it will be read in batches of rows, so that any size is allowed.

    Raises:
        TableTooLargeError: It would take more memory than is allowed.
    """
    stream: BinaryIO = sys.stdin.buffer
    with tempfile.TemporaryDirectory(prefix="metricfit-") as folder:
        start = stream.read(CHUNK)
        path = Path(folder) / f"{SPOKEN}{ending_of(start)}"
        try:
            with open(path, "wb") as file:
                size, chunk = 0, start
                while chunk:
                    size += 0 if in_batches else len(chunk)
                    check_memory(path, size)
                    file.write(chunk)
                    chunk = stream.read(CHUNK)
            yield path
        except MetricfitError as error:
            message = str(error).replace(str(path), SPOKEN)
            raise type(error)(message[:1].upper() + message[1:]) from None


def _files_of(source: Path) -> list[Path]:
    if source.is_dir():
        return _files_in(source)
    if not glob.has_magic(str(source)) or os.path.lexists(source):
        return [source]
    matched = sorted(Path(name) for name in glob.glob(str(source), recursive=True))
    files = [path for path in matched if not path.is_dir()]
    if not files:
        raise TableError(f"No file matches {str(source)!r}. Check the folder and the ending.")
    return files


def _files_in(folder: Path) -> list[Path]:
    inside = sorted(path for path in folder.iterdir() if path.name[0] not in "._")  # Spark writes _SUCCESS and .crc
    files = [path for path in inside if path.is_file() and _format_of(path) not in (None, *OTHERS)]
    if files:  # a note beside tables may end in .txt too
        return [path for path in files if path.suffix.lower() != ".txt"] or files
    folders = [path for path in inside if path.is_dir()]
    remedy = f"give a pattern such as '{folder}/*/*.parquet'" if folders else "give a file, or another folder"
    raise TableError(f"The folder {folder} holds no file with a table (endings {', '.join(FORMATS)}); {remedy}.")


def _check_alike(first: pd.DataFrame, other: pd.DataFrame, first_file: Path, file: Path) -> None:
    lacking = [name for name in first.columns if name not in set(other.columns)]
    added = [name for name in other.columns if name not in set(first.columns)]
    parts = [f"it lacks {_listed(lacking)}"] * bool(lacking) + [f"it has {_listed(added)} besides"] * bool(added)
    if parts:
        raise TableError(
            f"{file} has other columns than {first_file}: {' and '.join(parts)}. Files that make one table need the "
            "same columns; rename or remove those that differ, or give the files one at a time."
        )
    for name in first.columns:
        kinds = _kind(first[name]), _kind(other[name])
        if None not in kinds and kinds[0] != kinds[1]:
            raise TableError(
                f"The column {quote(name)} holds {kinds[0]} in {first_file} and {kinds[1]} in {file}. Write it alike "
                "in all files."
            )


def _kind(column: pd.Series) -> str | None:
    """Return what a column holds, where that matters for joining; None for anything else, and for empty columns."""
    if column.isna().all():
        return None
    if pd.api.types.is_numeric_dtype(column):
        return "numbers"
    return "text" if pd.api.types.infer_dtype(column, skipna=True) == "string" else None


def _listed(names: list[str]) -> str:
    return ", ".join(quote(name, 40) for name in names[:NAMED]) + (
        f" and {len(names) - NAMED} more" * (len(names) > NAMED)
    )


#: The endings of files that can be written.
WRITABLE = (".csv", ".parquet")
#: Appends rows to a file; all batches have the columns of the first.
Write = Callable[[pd.DataFrame], None]


@contextmanager
def new_table(path: Path) -> Iterator[Write]:
    r"""Write a table in batches, under a temporary name that is changed at the end.

    After any failure the temporary file is removed. A process that is killed leaves no file of the final name.

    Args:
        path: The file, whose name ends in .csv or .parquet.

    Yields:
        A function that takes any number of batches of rows.

    Raises:
        InvalidValueError: The name has another ending.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "rows.csv")
        >>> with new_table(path) as write:
        ...     write(pd.DataFrame({"a": [1]}))
        ...     write(pd.DataFrame({"a": [2]}))
        >>> path.read_text()
        'a\n1\n2\n'
    """
    ending = path.suffix.lower()
    if ending not in WRITABLE:
        raise InvalidValueError(f"tables are written as {' or '.join(WRITABLE)}; {path.name!r} ends in neither")
    with new_file(path) as unfinished, ExitStack() as stack:
        yield (_write_csv if ending == ".csv" else _write_parquet)(unfinished, stack)


def _write_csv(path: Path, stack: ExitStack) -> Write:
    file = stack.enter_context(open(path, "w", encoding="utf-8", newline=""))  # noqa: SIM115

    def write(frame: pd.DataFrame) -> None:
        frame.to_csv(file, index=False, header=not file.tell())

    return write


def _write_parquet(path: Path, stack: ExitStack) -> Write:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None

    def write(frame: pd.DataFrame) -> None:
        nonlocal writer
        if writer is None:
            schema = pa.Schema.from_pandas(frame, preserve_index=False)
            # A column without entries in the first batch may have text in later ones.
            fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema]
            writer = stack.enter_context(pq.ParquetWriter(path, pa.schema(fields), write_page_checksum=True))
        try:
            table = pa.Table.from_pandas(frame, schema=writer.schema, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(
                f"a column has another type in later rows than in the first: {first_line(error)}. Write .csv instead"
            ) from None
        writer.write_table(table)

    return write
