"""What the commands print: results on standard output, in words or as JSON; all else on standard error."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from metricfit._files import to_json_value

if TYPE_CHECKING:
    from metricfit.runs import Progress as CellProgress

WIDTH_OF_FILES = 160  # where no terminal says how wide it is

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def command_line() -> str:
    """The running command as it would be typed, for the reports."""
    return shlex.join(["metricfit", *sys.argv[1:]])


def show(found: Mapping[str, Any], as_json: bool, lines: Sequence[str | Table]) -> None:
    """A command's result: one line of strict JSON, or words and tables."""
    if as_json:
        sys.stdout.write(json.dumps(to_json_value(found), allow_nan=False) + "\n")
        return
    for line in lines:
        if isinstance(line, Table):
            (out if out.is_terminal else Console(width=WIDTH_OF_FILES, highlight=False)).print(line, soft_wrap=False)
        else:
            out.print(line, markup=False)


def say(text: str) -> None:
    """One paragraph on standard error, whatever characters are in it."""
    err.print(" ".join(text.split()), markup=False)


@contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """A sign on a terminal that something goes on, and what is decided meanwhile."""
    if quiet:
        with _heard(logging.WARNING):
            yield
    else:
        with err.status(what), _heard(logging.INFO):
            yield


@contextmanager
def bar(what: str, quiet: bool) -> Iterator[Callable[[CellProgress], None] | None]:
    """A bar over cells, with the time left; lines where there is no terminal."""
    if quiet:
        with _heard(logging.WARNING):
            yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as progress, _heard(logging.WARNING):
        task = progress.add_task(what, total=None)

        def moved(to: CellProgress) -> None:
            progress.update(task, total=to.total, completed=to.done, description=to.last or what)
            if not err.is_terminal:
                left = "" if to.seconds_left is None else f", about {to.seconds_left:.0f} s left"
                say(f"{to.done} of {to.total}: {to.last or 'found finished'}{left}")

        yield moved


@contextmanager
def _heard(level: int) -> Iterator[None]:
    """What this library logs, such as the effort that a time budget allows, and warnings, a line each."""
    log, handler = logging.getLogger("metricfit"), _Said()
    before = log.level
    log.addHandler(handler)
    log.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *more, **others: say(f"Warning: {message}")
            yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())
