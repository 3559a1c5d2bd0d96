"""Where a table comes from: one file, several, a folder, a glob or standard input; all of them make one table."""

from __future__ import annotations

import glob
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from metricfit.data.file_formats import FORMATS, ending_of, has_known_format
from metricfit.data.limits import CHUNK, PEAK, check_memory
from metricfit.errors import MetricfitError, TableError, quote

#: Maximum number of columns that a message names.
NAMED = 5
#: The name of standard input, as a source and in messages.
STANDARD_INPUT, SPOKEN = "-", "standard input"

Source = str | os.PathLike[str]


def find_files(sources: Sequence[Source]) -> list[Path]:
    """Return the files that make a table, in the order given; those of a folder or a glob in the order of their names.

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
    files = [path for path in inside if path.is_file() and has_known_format(path)]
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
