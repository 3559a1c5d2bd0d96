"""Checks of JSON lines before pandas reads them: the number of columns, the memory, and values that fit a cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metricfit.data.limits import CELL, check_memory, open_unpacked
from metricfit.errors import TableError, quote, shorten

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
