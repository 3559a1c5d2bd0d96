"""Limits on the memory for a table, checked before it is read: a small file can unpack to many gigabytes."""

from __future__ import annotations

import gzip
import lzma
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from metricfit.errors import InvalidValueError, TableTooLargeError, quote

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


def check_parquet(path: Path) -> None:
    """Refuse a Parquet file that is too large according to its metadata.

    Raises:
        TableTooLargeError: Reading the table would take more memory than is allowed.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    cells = metadata.num_rows * metadata.num_columns
    check_memory(path, PEAK * max(unpacked, CELL * cells))


def read_parquet(path: Path) -> Any:
    """Read a Parquet file as a pandas DataFrame; its size is checked first, and its checksums if it has any.

    Raises:
        TableTooLargeError: Reading the table would take more memory than is allowed.
        OSError: A page does not match its checksum.
    """
    import pandas as pd

    check_parquet(path)
    return pd.read_parquet(path, engine="pyarrow", page_checksum_verification=True)
