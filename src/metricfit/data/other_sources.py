"""Tables that are read as a whole from spreadsheets, JSON arrays and databases: ``loans.db::applications``."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from metricfit._extras import explain_missing
from metricfit.data.files import BETWEEN, CELL, PEAK, check_memory, file_of
from metricfit.errors import MetricfitError, TableError, first_line, quote

#: Bytes of memory that a JSON array takes per byte while it is read, and a spreadsheet per unpacked byte.
PER_BYTE = 10


def read_other(path: Path, known: str) -> pd.DataFrame:
    """Read a spreadsheet's first sheet, a JSON array of objects, or a table of SQLite or DuckDB.

    Args:
        path: The file; of a database with ``::`` and the name of a table, unless it has one table.
        known: "spreadsheet", "json", "sqlite" or "duckdb".

    Raises:
        TableError: It cannot be read, or a database has no such table.
        ModuleNotFoundError: A package is missing; the message says which.
    """
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        "spreadsheet": _read_spreadsheet,
        "json": _read_json,
        "sqlite": _read_sqlite,
        "duckdb": _read_duckdb,
    }
    try:
        return readers[known](path)
    except (MetricfitError, ImportError):
        raise
    except Exception as error:  # each library has errors of its own
        raise TableError(f"{path} cannot be read as {known}: {first_line(error)}.") from None


def _read_spreadsheet(path: Path) -> pd.DataFrame:
    with zipfile.ZipFile(path) as parts:
        check_memory(path, PER_BYTE * sum(part.file_size for part in parts.infolist()))
    with explain_missing("Reading a spreadsheet", ("openpyxl",), "openpyxl"):
        import_module("openpyxl")
    return pd.read_excel(path, engine="openpyxl")


def _read_json(path: Path) -> pd.DataFrame:
    check_memory(path, PER_BYTE * path.stat().st_size)
    rows = json.loads(path.read_bytes())
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TableError(f'{path} is no JSON array of objects, one per row, such as [{{"a": 1, "y": 0}}].')
    return pd.DataFrame(rows)


def _read_sqlite(path: Path) -> pd.DataFrame:
    with closing(sqlite3.connect(f"{file_of(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
        return _read_table(path, [name for (name,) in names], lambda query: pd.read_sql_query(query, connection))


def _read_duckdb(path: Path) -> pd.DataFrame:
    with explain_missing("Reading a DuckDB database", ("duckdb",), "duckdb"):
        duckdb = import_module("duckdb")
    with closing(duckdb.connect(str(file_of(path)), read_only=True)) as connection:
        names = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY table_name").fetchall()
        return _read_table(path, [name for (name,) in names], lambda query: connection.execute(query).df())


def _read_table(path: Path, names: list[str], run: Callable[[str], Any]) -> pd.DataFrame:
    """Read one table of a database, after a look at its size."""
    name = str(path).partition(BETWEEN)[2] or (names[0] if len(names) == 1 else "")
    if name not in names:
        listed = ", ".join(map(quote, names[:10])) or "none"
        raise TableError(
            f"{file_of(path)} has no table {quote(name)}; it has {listed}. Name one as {file_of(path)}{BETWEEN}TABLE."
            if name
            else f"{file_of(path)} has the tables {listed}. Name one as {file_of(path)}{BETWEEN}TABLE."
        )
    table = '"' + name.replace('"', '""') + '"'
    rows = int(run(f"SELECT count(*) AS n FROM {table}")["n"].iloc[0])
    check_memory(path, PEAK * CELL * rows * len(run(f"SELECT * FROM {table} LIMIT 0").columns))
    return pd.DataFrame(run(f"SELECT * FROM {table}"))
