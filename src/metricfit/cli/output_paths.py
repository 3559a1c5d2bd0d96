"""Checks of the files and folders that commands write, before the work begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from metricfit._files import check_writable
from metricfit.cli.terminal import UserError


def check_file(path: Path, option: str, overwrite: bool = False) -> None:
    """Refuse a file that exists already, or whose folder does not exist.

    Args:
        path: The file to write.
        option: The option that named it, for messages.
        overwrite: Whether a file that exists is replaced.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file to {option}.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}; create it first.")
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists already; give another file to {option}, or replace it with --overwrite.")


def check_folder(path: Path | None) -> None:
    """Check that a folder can be written, before the work begins.

    Args:
        path: The folder of ``--out``; None if there is no such option.

    Raises:
        UserError: The path is a file, or is inside a file.
        OSError: It cannot be written.
    """
    if path is None:
        return
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not existing.is_dir():
        raise UserError(f"{existing} is a file; give a new folder to --out.")
    check_writable(path)


#: Where comparisons are kept that have no ``--out``.
RUNS = Path("metricfit-runs")
LONGEST_NAME = 60  # characters of a table's or a metric's name in the name of a folder


def run_folder(data: Sequence[Path], metric: str, day: date) -> Path:
    """Return the folder of a run: named after its table, its metric and the day.

    >>> run_folder([Path("data/loans.csv.gz")], "fbeta(beta=2)", date(2026, 11, 16)).as_posix()
    'metricfit-runs/loans-fbeta-beta=2-2026-11-16'
    """
    table = "standard-input" if str(data[0]) == "-" else data[0].name or "table"
    for ending in (".gz", data[0].with_name(table.removesuffix(".gz")).suffix):
        table = table.removesuffix(ending)
    names = [table, *([f"and {len(data) - 1} more"] if len(data) > 1 else []), metric, day.isoformat()]
    return RUNS / "-".join(re.sub(r"[^\w.=+]+", "-", name).strip("-")[:LONGEST_NAME] for name in names)


def next_free(path: Path) -> Path:
    """Return a folder beside this one that does not exist: its name with the first free number from 2 on."""
    number = 2
    while (free := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return free
