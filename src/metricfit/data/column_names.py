"""Names of a table's columns: how many there may be, that they differ, and which one was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from metricfit.errors import TableError, quote

MAX_COLUMNS = 20_000
#: Names of more characters, and tables of more columns, are not compared letter by letter.
LONGEST_COMPARED, MOST_COMPARED = 100, 2000


def check_names(names: list[str], path: Path) -> None:
    """Refuse a table with two columns of one name.

    Raises:
        TableError: Two columns have one name.
    """
    duplicates = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if duplicates:
        raise TableError(f"{path} has more than one column named {quote(duplicates[0])}; give them different names.")


def describe_too_wide(path: Path, columns: int) -> str:
    """Say that a table has too many columns."""
    return (
        f"{path} has {columns} columns; the maximum is {MAX_COLUMNS}. Choose the ones that matter, or transpose the "
        "table if its features are in rows."
    )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a sentence that suggests the column that was probably meant, or nothing.

    Example:
        >>> did_you_mean("fruad", ["amount", "fraud"])
        " Did you mean 'fraud'?"
    """
    candidates = [str(known) for known in names]
    plain = {known.strip().lower(): known for known in reversed(candidates)}
    similar = plain.get(name.strip().lower())
    if similar is None and len(name) <= LONGEST_COMPARED and len(candidates) <= MOST_COMPARED:
        close = difflib.get_close_matches(name.strip().lower(), [known[:LONGEST_COMPARED] for known in plain], n=1)
        similar = plain.get(close[0]) if close else None
    return "" if similar is None else f" Did you mean {quote(similar)}?"
