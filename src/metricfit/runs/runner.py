"""Run the cells of a study, in this process or in parallel; finished cells are read instead of run again."""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import torch

from metricfit._version import __version__
from metricfit.errors import InvalidValueError, is_user_error
from metricfit.runs.backends import check_backend, run_unordered, start_backend, threads_per_job, without_nested_jobs
from metricfit.runs.cells import Cell, CellError, read_reports, write_report, write_spec
from metricfit.runs.time_left import estimate_cells_left

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
        seconds_left: Estimated time for the remaining cells, from that of finished cells of the same kind; None before
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
        torch.set_num_threads(threads)
    write_spec(cell, root)
    try:
        if prepare is not None:
            prepare()
        start = time.perf_counter()
        with nullcontext() if threads is None else without_nested_jobs():
            result = dict(work(cell))
        seconds = time.perf_counter() - start
        json.dumps(result, allow_nan=False)
    except torch.OutOfMemoryError as error:
        raise CellError(
            f"{cell}: the GPU's memory is full ({str(error).split('. ')[0]}); run fewer cells at the same time, or "
            "train on the CPU; finished cells are kept"
        ) from error
    except Exception as error:
        if is_user_error(error):
            raise CellError(f"{cell}: {error}") from error
        details = "".join(traceback.format_exception(error))
        raise CellError(f"{cell}: {type(error).__name__}: {error}", details) from error
    versions = {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return cell.name, write_report(cell, root, result, seconds, versions)
