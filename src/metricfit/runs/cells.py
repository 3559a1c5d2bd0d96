"""Cells of a study: independent runs with one folder each, run in this process or in parallel.

A cell's folder holds ``spec.json`` (the settings), ``report.json`` (the result) and ``finished``, which is written last
and marks the others as complete. A cell that was interrupted starts again from its beginning; finished cells are read
instead of run again.
"""

from __future__ import annotations

import heapq
import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote as percent_encode

import joblib

from metricfit._files import hash_bytes, list_differences, parse_json, write_file
from metricfit._version import __version__
from metricfit.core.threads import set_threads
from metricfit.errors import EXPLAINED, InvalidValueError, MetricfitError, is_user_error, quote
from metricfit.runs.executor import check_backend, run_unordered, start_backend, threads_per_job, without_nested_jobs

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

    Subclasses add the values that the name stands for, such as the method and the fold. So nobody has to parse the
    name.

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
        stored = parse_json((path / "report.json").read_text(encoding="utf-8"))
        return spec, {**stored["result"], "seconds": stored["seconds"], "versions": stored["versions"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CellError(
            f"{path} cannot be read ({quote(error, EXPLAINED)}); remove that folder to run the cell again"
        ) from error


Work = Callable[[Cell], Mapping[str, Any]]
Prepare = Callable[[], None]
Watch = Callable[["Progress"], None]


@dataclass(frozen=True)
class Progress:
    """Progress of a study: finished cells, total cells, and cells reused from an earlier run.

    Args:
        done: Number of finished cells, including the reused ones.
        total: Number of cells.
        reused: Number of cells that an earlier run had finished.
        seconds_left: Estimated time for the remaining cells, from the finished cells of the same kind; None before
            the first cell has finished.
        last: Name of the cell that finished last.

    Example:
        >>> progress = Progress(done=3, total=10, reused=1, seconds_left=42.0, last="churn.csv / network / fold 0")
        >>> f"{progress.done} of {progress.total}"
        '3 of 10'
    """

    done: int
    total: int
    reused: int
    seconds_left: float | None
    last: str


def run(
    cells: Iterable[Cell],
    work: Work,
    folder: str | os.PathLike[str],
    *,
    jobs: int = 1,
    backend: str = "loky",
    prepare: Prepare | None = None,
    watch: Watch | None = None,
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Run every cell that is not finished, and return the reports of all cells.

    Args:
        cells: The cells; their names must differ.
        work: Runs one cell and returns its report: values that JSON can hold, with finite numbers. With several jobs it
            is called in another process.
        folder: The folder that keeps the cells. With several machines it must be on a shared file system.
        jobs: Number of cells that run at the same time; -1 for one per core.
        backend: joblib backend: "loky" for processes on this machine, "ray" or "dask" for several machines.
        prepare: Called before each cell in the cell's process, for slow work that should not count as the cell's own
            time, such as imports.
        watch: Called after every cell with the progress so far.

    Returns:
        The reports by the cells' names, each with the additional entries ``seconds`` and ``versions``.

    Raises:
        CellError: A cell failed, or its folder is damaged or holds a cell with other settings.
        ValueError: Two cells have the same name, or ``jobs`` or ``backend`` is not valid.

    Example:
        >>> import tempfile
        >>> cells = [Cell(("square", str(n)), {"n": n}) for n in range(3)]
        >>> reports = run(cells, lambda cell: {"value": cell.spec["n"] ** 2}, tempfile.mkdtemp())
        >>> reports["square", "2"]["value"]
        4
    """
    all_cells = list(cells)
    if len({cell.name for cell in all_cells}) < len(all_cells):
        raise InvalidValueError("two cells have the same name; give each cell a name of its own")
    check_backend(jobs, backend)
    root = Path(folder)
    reports = read_reports(all_cells, root)
    remaining = [cell for cell in all_cells if cell.name not in reports]
    reused, concurrent = len(reports), jobs if jobs > 0 else joblib.effective_n_jobs(jobs)

    def tell(last: str) -> None:
        if watch is not None:
            durations = {name: float(report["seconds"]) for name, report in reports.items()}
            names = [cell.name for cell in remaining if cell.name not in reports]
            seconds_left = estimate_cells_left(durations, names, concurrent)
            watch(Progress(len(reports), len(all_cells), reused, seconds_left, last))

    if reused:
        tell("")
    for name, report in _run_cells(remaining, work, root, jobs, backend, prepare):
        reports[name] = report
        tell(" / ".join(name))
    return {cell.name: reports[cell.name] for cell in all_cells}


def _run_cells(
    cells: Sequence[Cell], work: Work, root: Path, jobs: int, backend: str, prepare: Prepare | None
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Run cells and yield their names and reports as they finish."""
    if not cells:
        return
    if jobs == 1 and backend in ("loky", "sequential"):
        for cell in cells:
            yield _run_cell(cell, work, root, prepare)
        return
    threads = threads_per_job(jobs)
    tasks = (joblib.delayed(_run_cell)(cell, work, root, prepare, threads) for cell in cells)
    with start_backend(backend, jobs):
        yield from run_unordered(tasks, jobs)


def _run_cell(
    cell: Cell,
    work: Work,
    root: Path,
    prepare: Prepare | None = None,
    threads: int | None = None,
) -> tuple[tuple[str, ...], dict[str, Any]]:
    if threads is not None:
        set_threads(threads)
    folder = cell.folder(root)
    write_file(folder / "spec.json", json.dumps(dict(cell.spec), indent=1, sort_keys=True).encode())
    try:
        if prepare is not None:
            prepare()
        start = time.perf_counter()
        with nullcontext() if threads is None else without_nested_jobs():
            result = dict(work(cell))
        seconds = time.perf_counter() - start
        json.dumps(result, allow_nan=False)
    except Exception as error:
        details = None
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which is not imported for it
            cause = f"the GPU's memory is full ({str(error).split('. ')[0]}); run fewer cells at the same time, or "
            cause += "train on the CPU; finished cells are kept"
        elif is_user_error(error):
            cause = str(error)
        else:
            cause, details = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
        raise CellError(f"{cell}: {cause}", details) from error
    versions = {"metricfit": __version__, "python": platform.python_version()}
    with suppress(PackageNotFoundError):
        versions["torch"] = version("torch")
    stored = {"result": result, "seconds": seconds, "versions": versions}
    write_file(folder / "report.json", json.dumps(stored, indent=1).encode())
    write_file(folder / "finished", b"")
    return cell.name, {**result, "seconds": seconds, "versions": versions}


def _read_report(cell: Cell, root: Path) -> dict[str, Any] | None:
    """Read a cell's report, or None if it is not finished."""
    path = cell.folder(root)
    if not (path / "spec.json").exists():
        return None
    spec, report = read_cell_folder(path)
    differences = list(list_differences(spec, json.loads(json.dumps(dict(cell.spec)))))
    if differences:
        raise CellError(
            f"{path} holds a cell with other settings ({'; '.join(differences)}); choose another folder, or remove "
            "that one"
        )
    return report


def _make_file_name(part: str) -> str:
    encoded = percent_encode(part, safe=" =,()+-") or "_"
    if len(encoded) > MAX_NAME_LENGTH:
        encoded = f"{encoded[:MAX_NAME_LENGTH]}-{hash_bytes(encoded.encode())}"
    return encoded.replace(".", "%2E") if encoded.strip(".") == "" else encoded


def estimate_cells_left(
    finished: Mapping[tuple[str, ...], float], remaining: Iterable[tuple[str, ...]], concurrent: int = 1
) -> float | None:
    """Estimate the seconds that the remaining cells will take.

    A cell takes as long as the finished cells of its kind did on average: those whose names differ in the last part
    alone, such as the folds of one method. An unknown kind takes as long as the known kinds do on average.

    Args:
        finished: The seconds of the finished cells, by name.
        remaining: The names of the cells that are not finished.
        concurrent: Number of cells that run at the same time.

    Returns:
        The seconds; None if no cell is finished.

    Example:
        >>> finished = {("t", "trees", "fold 0"): 2.0, ("t", "network", "fold 0"): 60.0}
        >>> estimate_cells_left(finished, [("t", "trees", "fold 1"), ("t", "network", "fold 1")])
        62.0
    """
    if not finished:
        return None
    kinds: dict[tuple[str, ...], list[float]] = {}
    for name, seconds in finished.items():
        kinds.setdefault(name[:-1], []).append(seconds)
    means = {kind: fmean(durations) for kind, durations in kinds.items()}
    others = fmean(means.values())
    busy_until = [0.0] * concurrent
    for name in remaining:  # each begins where a job ends first
        heapq.heapreplace(busy_until, busy_until[0] + means.get(name[:-1], others))
    return max(busy_until)


def format_seconds(seconds: float) -> str:
    """Write a duration for people.

    >>> format_seconds(7.2), format_seconds(80), format_seconds(7260)
    ('7 s', '1:20 min', '2:01 h')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
