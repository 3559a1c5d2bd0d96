"""Output of the commands: results go to standard output as text or JSON, everything else to standard error."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from metricfit._files import to_json_value
from metricfit.cli.json_schemas import SCHEMA_VERSION
from metricfit.errors import printable

#: Width of tables where standard output is not a terminal.
FILE_WIDTH = 160
#: More columns of characters than any table has, to measure one that is wider than the terminal.
WIDEST = 100_000

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def command_line() -> str:
    """Return the running command as it would be typed, for the reports."""
    return shlex.join(["metricfit", *sys.argv[1:]])


def print_result(result: Mapping[str, Any], as_json: bool, lines: Sequence[str | Table]) -> None:
    """Print a command's result, either as one line of strict JSON or as lines of text and tables."""
    if as_json:
        versioned = {"schema_version": SCHEMA_VERSION} | to_json_value(result)
        sys.stdout.write(json.dumps(versioned, allow_nan=False) + "\n")
        return
    for line in lines:
        if isinstance(line, Table):
            line = _table_of(line.columns, line)
            console = out if out.is_terminal else Console(width=FILE_WIDTH, highlight=False)
            for part in split_table(line, console):
                console.print(part, soft_wrap=False)
        else:
            out.print(printable(line), markup=False)


def split_table(table: Table, console: Console) -> list[Table]:
    """Split a table that is wider than the terminal into tables that fit, each with the first column.

    Args:
        table: The table.
        console: Where it will be printed.

    Returns:
        The table itself if it fits; otherwise its columns in as few tables as possible. A table of the first column and
        one more may still be too wide; its cells are then wrapped.
    """
    parts = [list(table.columns[:2])]
    for column in table.columns[2:]:
        wider = [*parts[-1], column]
        if _width(_table_of(wider, table), console) <= console.width:
            parts[-1] = wider
        else:
            parts.append([table.columns[0], column])
    if len(parts) == 1:
        return [table]
    return [_table_of(columns, table) for columns in parts]


def _table_of(columns: Sequence[Column], table: Table) -> Table:
    part = Table(*(column.copy() for column in columns), title=table.title)
    for column in part.columns:
        column.header = _printable(column.header)
    for cells in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*map(_printable, cells))
    return part


def _printable(cell: Any) -> Any:
    return printable(cell) if isinstance(cell, str) else cell


def _width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(max_width=WIDEST)).maximum


def print_message(text: str) -> None:
    """Print one paragraph on standard error; markup characters in it are printed as they are."""
    err.print(printable(" ".join(text.split())), markup=False)


@contextmanager
def status(text: str, quiet: bool) -> Iterator[None]:
    """Show on a terminal that work is in progress, and print what the library logs meanwhile."""
    if quiet:
        with relay_messages(logging.WARNING):
            yield
    else:
        with err.status(text), relay_messages(logging.INFO):
            yield


@contextmanager
def relay_messages(level: int) -> Iterator[None]:
    """Print warnings and what this library logs, such as the effort that a time budget allows, as one line each."""
    log, handler = logging.getLogger("metricfit"), _MessageHandler()
    level_before = log.level
    log.addHandler(handler)
    log.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *rest, **options: print_message(f"Warning: {message}")
            yield
    finally:
        log.setLevel(level_before)
        log.removeHandler(handler)


class _MessageHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_message(record.getMessage())
