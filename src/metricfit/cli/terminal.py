"""Output of the commands and how they end: results on standard output, everything else on standard error, exit codes.

0: success. 1: a mistake in metricfit. 2: an error that the user can correct. 3: the work was done and its results kept,
but a requirement cannot be met, or the model of ``fit --onnx`` cannot be exported. 130: interrupted with Ctrl-C, where
``fit`` keeps a model of the families that were complete.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from metricfit._extras import explain_missing
from metricfit._files import to_json_value
from metricfit.cli.schemas import SCHEMA_VERSION
from metricfit.errors import MetricfitError, is_user_error, printable, shorten

#: Width of tables where standard output is not a terminal.
FILE_WIDTH = 160
#: More columns of characters than any table has, to measure one that is wider than the terminal.
WIDEST = 100_000

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def command_line() -> str:
    """Return the running command as it would be typed, for the reports."""
    return shlex.join(["metricfit", *sys.argv[1:]])


def print_result(result: Mapping[str, object], as_json: bool, lines: Sequence[str | Table]) -> None:
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


def table_of_periods(periods: Sequence[Any], label: str, rows: str = "held-out rows") -> Table:
    """Make the table of the periods, the earliest first; ``rows`` says which rows these are."""
    table = Table("period", rows, label, "95 % interval")
    for period in periods:
        ends = "" if period.interval is None else f"{period.interval[0]:.3f} to {period.interval[1]:.3f}"
        table.add_row(escape(str(period)), f"{period.rows:,}", f"{period.value:.3f}", ends)
    return table


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
    level_before, outer = log.level, [each for each in log.handlers if isinstance(each, _MessageHandler)]
    for each in outer:  # of nested relays the innermost prints
        log.removeHandler(each)
    handler.setLevel(level)  # a logger below may have a level of its own
    log.addHandler(handler)
    log.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *rest, **options: print_message(f"Warning: {message}")
            yield
    finally:
        log.setLevel(level_before)
        log.removeHandler(handler)
        for each in outer:
            log.addHandler(each)


@contextmanager
def _without_other_handlers() -> Iterator[None]:
    """Keep what this library logs from handlers of the root logger, which other packages add and set to any level."""
    log = logging.getLogger("metricfit")
    level, handlers = log.level, log.handlers[:]
    propagates, log.propagate = log.propagate, False
    try:
        yield
    finally:
        # Batches that an error left unread still hold the handler of their progress.
        log.handlers[:] = handlers
        log.setLevel(level)
        log.propagate = propagates


class _MessageHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_message(record.getMessage())


#: Packages of the extra ``cli``.
PACKAGES = ("joblib", "numpy", "pandas", "scipy", "sklearn", "jinja2", "matplotlib")
DEBUG = "METRICFIT_DEBUG"
MAX_MESSAGE = 2000  # characters, whatever the message quotes
#: Exit code of a command that did its work and kept it, although a requirement cannot be met.
NOT_MET = 3
#: Exit code of a command that was interrupted with Ctrl-C.
INTERRUPTED = 130


class UserError(MetricfitError):
    """A file or an option that cannot be used; the message says why and what to do."""


def report_errors(command: Callable[..., None], *, resumes: bool = False) -> Callable[..., None]:
    """Make a command report its errors in one paragraph and end with the right exit code.

    Errors that metricfit raises on purpose, and errors of the file system, can be corrected by the user. Any other
    error is a mistake in metricfit; its traceback is written to a file, or shown with METRICFIT_DEBUG=1.

    Args:
        command: The function of the command.
        resumes: Whether the command continues an interrupted run when it is called again.

    Returns:
        The command with its errors reported.
    """

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with explain_missing("the command metricfit", PACKAGES, "metricfit[cli]"), _without_other_handlers():
                command(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            kept = "Finished parts are kept; run the same command again to continue."
            lost = "Nothing was kept; run the command again from the start."
            print_message(f"Interrupted. {kept if resumes else lost}")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if os.environ.get(DEBUG):
                traceback.print_exc()
            if _is_user_error(error):
                print_message(f"Error: {_describe(error)}")
                raise typer.Exit(2) from None
            print_message(_describe_mistake(error))
            raise typer.Exit(1) from None

    return run


def _is_user_error(error: Exception) -> bool:
    from metricfit.runs.cells import CellError  # loads what most commands do not need to start

    if isinstance(error, CellError):
        return error.details is None
    return is_user_error(error)


def _describe(error: Exception) -> str:
    """Return the error's message; for errors of the file system, the file, the reason and a remedy."""
    if not isinstance(error, OSError) or not error.strerror:
        return shorten(error, MAX_MESSAGE) or type(error).__name__
    file = None if error.filename is None else shorten(error.filename)
    problem = "A file cannot be read or written" if file is None else f"{file} cannot be used"
    disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return f"{problem}: {error.strerror}." + " Free some disk space, or give another --out." * disk_full


def _describe_mistake(error: Exception) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="metricfit-error-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.writelines(traceback.format_exception(error))
        file.write(getattr(error, "details", ""))
    return (
        f"Error: metricfit failed where it should not have: {type(error).__name__}: {shorten(error)}. This is a "
        f"mistake in metricfit, not in your table. Please report it with the traceback in {file.name}."
    )
