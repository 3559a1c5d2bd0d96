"""Copying the finished cells of another run folder, such as one from another machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from metricfit._files import write_file
from metricfit.runs.cells import CellError, read_cell_folder
from metricfit_papers.results.table_run import CELLS


@dataclass(frozen=True)
class CopyReport:
    """What happened to the cells of a folder.

    Attributes:
        source: The folder.
        copied: Number of cells that were copied.
        here: Number of cells that were finished here already.
        unfinished: Cells that were left out because they are not finished.
        damaged: Cells that were left out because they cannot be read.

    Example:
        >>> print(CopyReport("runs", copied=3, here=1, unfinished=[], damaged=[]))
        3 cells copied from runs, 1 were here already
    """

    source: str
    copied: int
    here: int
    unfinished: list[str]
    damaged: list[str]

    def __str__(self) -> str:
        parts = [f"{self.copied} cells copied from {self.source}", f"{self.here} were here already"]
        parts += [f"{len(self.unfinished)} not finished there and left out"] if self.unfinished else []
        parts += [f"damaged there and left out: {', '.join(self.damaged)}"] if self.damaged else []
        return ", ".join(parts)


def copy_finished(source: str | os.PathLike[str], folder: str | os.PathLike[str]) -> CopyReport:
    """Copy the finished cells of one run folder into another; a cell that is finished there is never replaced.

    The mark ``finished`` is written last, so a cell whose copying was interrupted counts as not finished.

    Args:
        source: The folder to copy from, of `run_table` or of ``metricfit reproduce --out``.
        folder: The folder to copy to.

    Returns:
        What was copied and what was left out.

    Raises:
        CellError: ``source`` holds no cells.

    Example:
        >>> import tempfile
        >>> from metricfit_papers import find_table, run_table
        >>> here, there = tempfile.mkdtemp(), tempfile.mkdtemp()
        >>> spec, small = find_table("btg-5"), {"trials": 1, "epochs": 1, "only": ["synthetic_05"], "device": "cpu"}
        >>> trained = run_table(spec, "paper", there, rows=["BCE, B = 4096"], **small)
        >>> copy_finished(there, here).copied, copy_finished(there, here).copied
        (1, 0)
        >>> run_table(spec, "paper", here, rows=["BCE, B = 4096"], train=False, **small).rows == trained.rows
        True
    """
    source_cells, target_cells = Path(source) / CELLS, Path(folder) / CELLS
    paths = sorted(path.parent for path in source_cells.rglob("spec.json"))
    if not paths:
        raise CellError(f"{source} holds no cells; give a folder that was the --out of metricfit reproduce")
    copied, here = 0, 0
    unfinished, damaged = list[str](), list[str]()
    for path in paths:
        target = target_cells / path.relative_to(source_cells)
        if not _is_finished(path):
            unfinished.append(str(path))
        elif _is_finished(target):
            here += 1
        elif not _is_whole(path):
            damaged.append(str(path))
        else:
            _copy(path, target)
            copied += 1
    return CopyReport(str(source), copied, here, unfinished, damaged)


def _is_finished(path: Path) -> bool:
    return (path / "spec.json").exists() and (path / "finished").exists()


def _is_whole(path: Path) -> bool:
    """Return whether a finished cell can be read; an interrupted copy by other means may lack the report."""
    try:
        read_cell_folder(path)
    except CellError:
        return False
    return True


def _copy(path: Path, target: Path) -> None:
    for name in ("spec.json", "report.json", "finished"):
        write_file(target / name, (path / name).read_bytes())
