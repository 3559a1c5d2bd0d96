"""Cells of a study: independent runs with one folder each.

A cell's folder holds ``spec.json`` (the settings), ``report.json`` (the result) and ``finished``, which is written last
and marks the others as complete. A cell that was interrupted starts again from its beginning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote as percent_encode

from metricfit._files import hash_bytes, parse_json, write_file
from metricfit.errors import EXPLAINED, MetricfitError, quote
from metricfit.train.checkpoint.run_spec import find_differences

MAX_NAME_LENGTH = 200  # file systems allow 255 bytes


class CellError(MetricfitError, RuntimeError):
    """A cell failed; the message says which one and why.

    Args:
        message: The cell and the cause.
        details: The traceback of an unexpected error as text, because the process in which it happened may have ended;
            None if the message was written for the user.

    Example:
        >>> str(CellError("table / f1 / fold 0: the table has no rows"))
        'table / f1 / fold 0: the table has no rows'
    """

    def __init__(self, message: str, details: str | None = None) -> None:
        super().__init__(message, details)
        self.details = details

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Args:
        name: Unique name in parts, such as table, method and fold. The parts become folders, and may hold any
            characters.
        spec: The settings that the result depends on, as values that JSON can hold. A finished cell is reused only if
            its spec is the same.

    Subclasses add the values that the name stands for, such as the method and the fold, so that they are not parsed
    out of the name.

    Example:
        >>> str(Cell(("churn.csv", "network", "fold 0"), {"metric": "f1"}))
        'churn.csv / network / fold 0'
    """

    name: tuple[str, ...]
    spec: Mapping[str, Any]

    def folder(self, root: Path) -> Path:
        """Return the cell's folder.

        Args:
            root: The folder of all cells.

        Returns:
            A folder below ``root``, with one level per part of the name.
        """
        return root.joinpath(*(_make_file_name(part) for part in self.name))

    def __str__(self) -> str:
        return " / ".join(self.name)


def read_reports(cells: Iterable[Cell], folder: str | os.PathLike[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Read the reports of the finished cells, by name; nothing is run.

    Args:
        cells: The cells to look for.
        folder: The folder that keeps the cells.

    Returns:
        One report per finished cell.

    Raises:
        CellError: A cell's folder is damaged or holds a cell with other settings.

    Example:
        >>> import tempfile
        >>> from metricfit.runs import run
        >>> folder, cells = tempfile.mkdtemp(), [Cell(("square", str(n)), {"n": n}) for n in range(3)]
        >>> _ = run(cells[:2], lambda cell: {"value": cell.spec["n"] ** 2}, folder)
        >>> list(read_reports(cells, folder))
        [('square', '0'), ('square', '1')]
    """
    reports = {cell.name: _read_report(cell, Path(folder)) for cell in cells}
    return {name: report for name, report in reports.items() if report is not None}


def read_cell_folder(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Read a cell's folder.

    Args:
        path: The folder of one cell.

    Returns:
        The cell's spec, and its report if the cell is finished.

    Raises:
        CellError: The folder is damaged.
    """
    try:
        spec: dict[str, Any] = parse_json((path / "spec.json").read_text(encoding="utf-8"))
        if not (path / "finished").exists():
            return spec, None
        return spec, _flatten_report(parse_json((path / "report.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CellError(
            f"{path} cannot be read ({quote(error, EXPLAINED)}); remove that folder to run the cell again"
        ) from error


def write_spec(cell: Cell, root: Path) -> None:
    """Write the settings of a cell that starts to run."""
    content = json.dumps(_to_plain_spec(cell), indent=1, sort_keys=True).encode()
    write_file(cell.folder(root) / "spec.json", content)


def write_report(
    cell: Cell, root: Path, result: Mapping[str, Any], seconds: float, versions: Mapping[str, str]
) -> dict[str, Any]:
    """Write the report of a cell that has run, mark the cell as finished, and return what `read_reports` returns."""
    stored = {"result": result, "seconds": seconds, "versions": versions}
    path = cell.folder(root)
    write_file(path / "report.json", json.dumps(stored, indent=1).encode())
    write_file(path / "finished", b"")
    return _flatten_report(stored)


def _read_report(cell: Cell, root: Path) -> dict[str, Any] | None:
    """Read a cell's report, or None if it is not finished."""
    path = cell.folder(root)
    if not (path / "spec.json").exists():
        return None
    spec, report = read_cell_folder(path)
    differences = find_differences(spec, _to_plain_spec(cell))
    if differences:
        raise CellError(
            f"{path} holds a cell with other settings ({'; '.join(differences)}); choose another folder, or remove "
            "that one"
        )
    return report


def _flatten_report(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Combine a cell's result with its duration and the versions it was run with."""
    report: dict[str, Any] = dict(stored["result"]) | {key: stored[key] for key in ("seconds", "versions")}
    return report


def _make_file_name(part: str) -> str:
    encoded = percent_encode(part, safe=" =,()+-") or "_"
    if len(encoded) > MAX_NAME_LENGTH:
        encoded = f"{encoded[:MAX_NAME_LENGTH]}-{hash_bytes(encoded.encode())}"
    return encoded.replace(".", "%2E") if encoded.strip(".") == "" else encoded


def _to_plain_spec(cell: Cell) -> dict[str, Any]:
    """Convert a cell's spec to the values that reading its JSON gives, such as lists instead of tuples."""
    spec: dict[str, Any] = json.loads(json.dumps(dict(cell.spec)))
    return spec
