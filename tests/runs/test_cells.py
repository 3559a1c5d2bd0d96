"""Cells: each once, whatever happens; the same numbers whoever runs them."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from metricfit.runs import Cell, CellError, Progress, run


def cells(n=6, **more):
    return [Cell(("table", f"method {index % 2}", str(index)), {"n": index} | more) for index in range(n)]


class Counted:
    """Squares, noting every call in a file, so that calls in other processes count too."""

    def __init__(self, notes, fails=()):
        self.notes, self.fails = str(notes), fails

    def __call__(self, cell):
        with open(self.notes, "a") as file:
            file.write(f"{cell.spec['n']}\n")
        if cell.spec["n"] in self.fails:
            raise ArithmeticError("cannot square this")
        return {"value": cell.spec["n"] ** 2}


def calls(notes):
    return sorted(int(line) for line in Path(notes).read_text().split())


def values(result):
    return {name: report["value"] for name, report in result.items()}


EXPECTED = {cell.name: cell.spec["n"] ** 2 for cell in cells()}


@pytest.mark.parametrize(("jobs", "backend"), [(1, "loky"), (2, "loky"), (2, "threading")])
def test_every_cell_is_run_once(tmp_path, jobs, backend):
    work = Counted(tmp_path / "notes")
    for _ in range(2):
        result = run(cells(), work, tmp_path / "runs", jobs=jobs, backend=backend)
        assert values(result) == EXPECTED
    assert calls(tmp_path / "notes") == list(range(6))
    assert all(report["seconds"] >= 0 for report in result.values())


def test_failed_cells_are_named_and_the_others_are_kept(tmp_path):
    with pytest.raises(CellError, match=r"table / method 0 / 4: ArithmeticError: cannot square this"):
        run(cells(), Counted(tmp_path / "notes", fails={4}), tmp_path / "runs")
    result = run(cells(), Counted(tmp_path / "notes"), tmp_path / "runs")
    assert values(result) == EXPECTED
    assert calls(tmp_path / "notes") == [0, 1, 2, 3, 4, 4, 5]


def test_progress_reports_the_remaining_cells(tmp_path):
    seen: list[Progress] = []
    run(cells(2), Counted(tmp_path / "notes"), tmp_path / "runs", watch=seen.append)
    run(cells(4), Counted(tmp_path / "notes"), tmp_path / "runs", watch=seen.append)
    assert [(item.done, item.total, item.reused) for item in seen] == [
        (1, 2, 0),
        (2, 2, 0),
        (2, 4, 2),
        (3, 4, 2),
        (4, 4, 2),
    ]
    assert seen[-1].seconds_left == 0
    assert seen[-1].last == "table / method 1 / 3"


class Clock:
    """Time that passes only where a test says so, in each thread for itself, however busy the machine is."""

    def __init__(self):
        self.of_thread = threading.local()

    def perf_counter(self):
        return getattr(self.of_thread, "now", 0.0)

    def sleep(self, seconds):
        self.of_thread.now = self.perf_counter() + seconds


@pytest.mark.parametrize(("jobs", "backend"), [(1, "loky"), (2, "threading")])
def test_preparation_does_not_count_as_the_time_of_a_cell(monkeypatch, tmp_path, jobs, backend):
    clock = Clock()
    monkeypatch.setattr("metricfit.runs.cells.time", clock)
    seen: list[Progress] = []
    result = run(
        cells(6),
        lambda cell: clock.sleep(0.25) or {},
        tmp_path,
        jobs=jobs,
        backend=backend,
        prepare=lambda: clock.sleep(8.0),
        watch=seen.append,
    )
    assert [report["seconds"] for report in result.values()] == [0.25] * 6
    assert [item.seconds_left for item in seen] == [0.25 * math.ceil(left / jobs) for left in (5, 4, 3, 2, 1, 0)]


def test_cells_with_other_settings_are_not_reused(tmp_path):
    run(cells(1, lr=0.1), Counted(tmp_path / "notes"), tmp_path / "runs")
    with pytest.raises(CellError, match=r"other settings \(.*lr.*choose another folder"):
        run(cells(1, lr=0.2), Counted(tmp_path / "notes"), tmp_path / "runs")


def test_a_damaged_report_is_refused_with_the_remedy(tmp_path):
    run(cells(1), Counted(tmp_path / "notes"), tmp_path / "runs")
    report = next((tmp_path / "runs").rglob("report.json"))
    for damaged in (report.read_text()[:-5], "[" * 200_000):
        report.write_text(damaged)
        with pytest.raises(CellError, match="remove that folder to run the cell again"):
            run(cells(1), Counted(tmp_path / "notes"), tmp_path / "runs")


def test_names_of_any_characters(tmp_path):
    names = ["a/b", "..", "c d", "<script>", "", "ü", "ü" * 120, "ü" * 121]
    several = [Cell(("t", name), {"n": index}) for index, name in enumerate(names)]
    result = run(several, Counted(tmp_path / "notes"), tmp_path / "runs")
    assert [result["t", name]["value"] for name in names] == [index**2 for index in range(8)]
    folders = [path.resolve().parent for path in (tmp_path / "runs").rglob("finished")]
    assert len(folders) == 8
    assert {path.parent for path in folders} == {tmp_path.resolve() / "runs" / "t"}


@pytest.mark.parametrize(
    ("several", "settings", "message"),
    [
        ([*cells(1), *cells(1)], {}, "two cells have the same name"),
        (cells(1), {"backend": "mpi"}, "backend must be one of loky"),
    ],
)
def test_mistakes_are_refused(tmp_path, several, settings, message):
    with pytest.raises(ValueError, match=message):
        run(several, Counted(tmp_path / "notes"), tmp_path / "runs", **settings)


STUCK = """
import sys, time
sys.path.insert(0, {here!r})
from test_cells import Counted, cells
from metricfit.runs import run

class Stuck(Counted):
    def __call__(self, cell):
        if cell.spec["n"] >= 3:
            time.sleep(600)  # until it is killed
        return super().__call__(cell)

run(cells(), Stuck({notes!r}), {runs!r})
"""


def test_a_killed_run_continues_where_it_stopped(tmp_path):
    script = STUCK.format(here=str(Path(__file__).parent), notes=str(tmp_path / "notes"), runs=str(tmp_path / "runs"))
    child = subprocess.Popen([sys.executable, "-c", script], env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 300
    while len(list((tmp_path / "runs").rglob("finished"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    finished = [
        json.loads((path.parent / "spec.json").read_text())["n"] for path in (tmp_path / "runs").rglob("finished")
    ]
    assert sorted(finished) == [0, 1, 2]
    (tmp_path / "notes").unlink()
    assert values(run(cells(), Counted(tmp_path / "notes"), tmp_path / "runs")) == EXPECTED
    assert calls(tmp_path / "notes") == sorted(set(range(6)) - set(finished))


def test_a_full_gpu_is_reported_with_a_remedy(tmp_path):
    def full(cell):
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 5.00 GiB. GPU 0 has a total capacity of 3 GiB"
        )

    with pytest.raises(
        CellError, match=r"the GPU's memory is full \(CUDA out of memory\); run fewer cells at the same time"
    ) as raised:
        run([Cell(("one",), {})], full, tmp_path)
    assert raised.value.details is None
