"""Progress on a terminal of 80 columns and in a log."""

import io
import re

import pytest
from rich.console import Console

from metricfit.cli import progress_display, terminal
from metricfit.cli.progress_display import fit_display, progress_bar
from metricfit.runs import Progress
from metricfit.tabular.out_of_fold import FitProgress


@pytest.fixture
def shown(monkeypatch):
    """Make a console of 80 columns, and return a function that gives its lines."""

    def use(*, is_terminal):
        console = Console(file=io.StringIO(), width=80, force_terminal=is_terminal, soft_wrap=True, highlight=False)
        monkeypatch.setattr(progress_display, "err", console)
        monkeypatch.setattr(terminal, "err", console)
        return lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).replace("\r", "\n").splitlines()

    return use


def last_frame(bar, lines):
    bar.refresh()
    return [line.rstrip() for line in lines() if line.strip()][-1]


def test_fit_shows_family_folds_best_value_and_time(shown):
    lines = shown(is_terminal=True)
    with fit_display(quiet=False) as display:
        display.report(FitProgress("linear", 1, 5, 8, 8, ended=True, value=0.6, best=0.6, seconds_left=100))
        display.report(FitProgress("boosting_metric", 2, 5, 4, 8, best=0.6, seconds_left=95.2))
        frame = last_frame(display._bar, lines)
        assert re.fullmatch(r"boosting_metric \(2 of 5\) \S+ 4/8 folds best 0\.600 about 1:35 min left", frame)
        display.report(FitProgress("a model with a long name " * 4, 3, 5, 4, 8, best=0.6, seconds_left=7000))
        frame = last_frame(display._bar, lines)
        assert re.fullmatch(r"a model with a lo… \(3 of 5\) \S+ 4/8 folds best 0\.600 about 1:56 h left", frame)
        display.report(FitProgress("extra_trees", 5, 5, 8, 8, ended=True, best=0.6, seconds_left=0))
        assert last_frame(display._bar, lines).startswith("choosing the decision")
    assert max(map(len, lines())) <= 80


def test_the_time_left_is_counted_down_between_cells(shown, monkeypatch):
    lines = shown(is_terminal=True)
    now = [1000.0]
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: now[0])
    with progress_bar("comparing", quiet=False) as update:
        bar = next(cell.cell_contents for cell in update.__closure__ if hasattr(cell.cell_contents, "refresh"))
        assert "left" not in last_frame(bar, lines)
        update(Progress(1, 10, 0, 90.0, "loans.csv / network / fold 0"))
        frames = []
        for seconds in (0, 31, 45, 10):  # rich would have nothing to show after 30 seconds without a step
            now[0] += seconds
            frames.append(last_frame(bar, lines))
        update(Progress(9, 10, 0, 90.0, f"{'loans' * 30}.csv / boosting_metric balanced / fold 4"))
        long = last_frame(bar, lines)
    assert re.fullmatch(r"…\S+ / boosting_metric balanced / fold 4 \S+ +9/10 about 1:30 min left", long)
    assert [frame.partition("1/10 ")[2] for frame in frames] == [
        "about 1:30 min left",
        "about 59 s left",
        "about 14 s left",
        "about 4 s left",
    ]


def test_a_log_has_a_line_per_cell_and_nothing_else(shown):
    lines = shown(is_terminal=False)
    with progress_bar("comparing", quiet=False) as update:
        update(Progress(4, 10, 4, 30.0, ""))
        update(Progress(5, 10, 4, 90.0, "loans.csv / network / fold 0"))
    assert lines() == [
        "4 of 10: finished in an earlier run, about 30 s left",
        "5 of 10: loans.csv / network / fold 0, about 1:30 min left",
    ]
