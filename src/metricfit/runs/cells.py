"""Cells: many runs, each a folder, on one machine or several; what is finished is never run again.

A cell's folder holds ``spec.json``, what went in; ``report.json``, what came out; and last ``finished``, the mark that
both are whole. A run that was killed is run again from its start, the others are read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import platform
import statistics
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote as percent_encoded

import joblib
import torch

from metricfit._version import __version__
from metricfit.errors import EXPLAINED, InvalidValueError, MetricfitError, is_user_error, quote
from metricfit.runs.backends import BACKENDS as BACKENDS
from metricfit.runs.backends import check, deaf_children, joined, threads_each
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.run_spec import differences

LONGEST_NAME = 200
BATCH = 4  # cells a job before Ray tells of them
Work = Callable[["Cell"], Mapping[str, Any]]
Prepare = Callable[[], None]
Watch = Callable[["Progress"], None]


class CellError(MetricfitError, RuntimeError):
    """A cell failed; the message says which and why.

    Attributes:
        details: the traceback of what nobody foresaw, as text, for the process it happened in may be gone; None where
            the message was written for the reader.
    """

    def __init__(self, message: str, details: str | None = None) -> None:
        super().__init__(message, details)
        self.details = details

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Cell:
    """One run: its name in parts, such as table, method and fold, and its settings, plain values alone."""

    name: tuple[str, ...]
    spec: Mapping[str, Any]

    def folder(self, root: Path) -> Path:
        """Where it is kept; a name may hold any characters."""
        return root.joinpath(*(_file_name(part) for part in self.name))

    def __str__(self) -> str:
        return " / ".join(self.name)


@dataclass(frozen=True)
class Progress:
    """How far a run has come: cells done, of how many, how many of those were there before, and seconds left."""

    done: int
    total: int
    found: int
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
    """Run every cell that is not finished, and return all reports by name.

    Args:
        cells: what to run, their names all different.
        work: makes a cell's report, plain values and finite numbers alone; called in another process if there are
            several jobs.
        folder: where the cells are kept; with several machines, on a file system they share.
        jobs: how many at a time; -1 for as many as there are cores.
        backend: joblib's: "loky" for processes on this machine, "ray" or "dask" for several machines.
        prepare: called before each cell, in its process: what is slow the first time, such as imports, and no cell's.
        watch: called after every cell; the seconds left are those of the finished cells for each of the others.

    >>> import tempfile
    >>> several = [Cell(("square", str(n)), {"n": n}) for n in range(3)]
    >>> found = run(several, lambda cell: {"value": cell.spec["n"] ** 2}, tempfile.mkdtemp())
    >>> found["square", "2"]["value"]
    4
    """
    every = list(cells)
    if len({cell.name for cell in every}) < len(every):
        raise InvalidValueError("two cells have one name; name them apart")
    check(jobs, backend)
    root = Path(folder)
    found = reports(every, root)
    left = [cell for cell in every if cell.name not in found]
    before, took = len(every) - len(left), list[float]()
    at_a_time = jobs if jobs > 0 else joblib.effective_n_jobs(jobs)
    if watch is not None and before:
        watch(Progress(before, len(every), before, None, ""))
    for done, (name, report) in enumerate(_finished(left, work, root, jobs, backend, prepare), start=1):
        found[name] = report
        took.append(report["seconds"])
        if watch is not None:
            seconds = statistics.fmean(took) * math.ceil((len(left) - done) / at_a_time)
            watch(Progress(before + done, len(every), before, seconds, " / ".join(name)))
    return {cell.name: found[cell.name] for cell in every}


def reports(cells: Iterable[Cell], folder: str | os.PathLike[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    """The reports of those cells that are finished, by name; nothing is run.

    >>> import tempfile
    >>> folder, several = tempfile.mkdtemp(), [Cell(("square", str(n)), {"n": n}) for n in range(3)]
    >>> found = run(several[:2], lambda cell: {"value": cell.spec["n"] ** 2}, folder)
    >>> list(reports(several, folder))
    [('square', '0'), ('square', '1')]
    """
    found = {cell.name: read(cell, Path(folder)) for cell in cells}
    return {name: report for name, report in found.items() if report is not None}


def read(cell: Cell, root: Path) -> dict[str, Any] | None:
    """A finished cell's report; None if it is not finished; an error if another cell is there."""
    path = cell.folder(root)
    if not (path / "spec.json").exists():
        return None
    spec, told = contents(path)
    differing = differences(spec, _plain(cell.spec))
    if differing:
        raise CellError(
            f"{path} holds a cell with other settings ({'; '.join(differing)}); give another folder, or remove that one"
        )
    return told


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What is in a cell's folder: its spec, and its report if it is finished; an error if it is damaged."""
    try:
        spec: dict[str, Any] = json.loads((path / "spec.json").read_text(encoding="utf-8"))
        if not (path / "finished").exists():
            return spec, None
        return spec, _told(json.loads((path / "report.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CellError(
            f"{path} cannot be read ({quote(error, EXPLAINED)}); remove that folder to run the cell again"
        ) from error


def _told(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell found, how long it took, and with which versions."""
    told: dict[str, Any] = report["result"] | {key: report[key] for key in ("seconds", "versions")}
    return told


def _file_name(part: str) -> str:
    quoted = percent_encoded(part, safe=" =,()+-") or "_"
    if len(quoted) > LONGEST_NAME:  # file systems take 255 bytes
        quoted = f"{quoted[:LONGEST_NAME]}-{hashlib.sha256(quoted.encode()).hexdigest()[:16]}"
    return quoted.replace(".", "%2E") if quoted.strip(".") == "" else quoted


def _finished(
    left: Sequence[Cell], work: Work, root: Path, jobs: int, backend: str, prepare: Prepare | None
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if not left:
        return
    if jobs == 1 and backend in ("loky", "sequential"):
        for cell in left:
            yield _work_on(cell, work, root, prepare)
        return
    threads = threads_each(jobs)
    tasks = (joblib.delayed(_work_on)(cell, work, root, prepare, threads) for cell in left)
    with joined(backend, jobs):
        if backend == "ray":  # it gives no result before the last: a few at a time, for the sake of progress
            with joblib.Parallel(n_jobs=jobs) as several:
                while some := list(itertools.islice(tasks, BATCH * joblib.effective_n_jobs(jobs))):
                    yield from several(some)
            return
        with deaf_children():  # the workers are started here
            results = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")(tasks)
        yield from results


def _work_on(
    cell: Cell,
    work: Work,
    root: Path,
    prepare: Prepare | None = None,
    threads: int | None = None,
) -> tuple[tuple[str, ...], dict[str, Any]]:
    if threads is not None:
        torch.set_num_threads(threads)
    path = cell.folder(root)
    path.mkdir(parents=True, exist_ok=True)
    files = RunFolder(path)
    files.write("spec.json", json.dumps(_plain(cell.spec), indent=1, sort_keys=True).encode())
    try:
        if prepare is not None:
            prepare()
        began = time.perf_counter()
        result = dict(work(cell))
        seconds = time.perf_counter() - began
        json.dumps(result, allow_nan=False)
    except torch.OutOfMemoryError as error:
        raise CellError(
            f"{cell}: the GPU's memory is full ({str(error).split('. ')[0]}); run fewer cells at a time, or train on "
            "the CPU; what is finished is kept"
        ) from error
    except Exception as error:
        if is_user_error(error):
            raise CellError(f"{cell}: {error}") from error
        details = "".join(traceback.format_exception(error))
        raise CellError(f"{cell}: {type(error).__name__}: {error}", details) from error
    versions = {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()}
    report = {"result": result, "seconds": seconds, "versions": versions}
    files.write("report.json", json.dumps(report, indent=1).encode())
    files.write("finished", b"")
    return cell.name, _told(report)


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dict(spec)))
    return plain
