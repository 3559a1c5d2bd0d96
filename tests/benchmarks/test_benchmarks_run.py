"""The benchmarks run, say what they measured and what they could not; how fast anything was is not asked."""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import load, report, resident, tables, timing  # noqa: E402
from benchmarks.__main__ import main, registered  # noqa: E402
from benchmarks.bars import BARS  # noqa: E402
from benchmarks.tried import TRIED  # noqa: E402
from benchmarks.verdicts import MILLISECONDS, Bar, judge  # noqa: E402

BAR = Bar("a", "a v b", "table", "a", 2.0, "b")
MODULES = ("small_batches", "binary_loss", "multiclass_loss", "pair_losses", "pointwise", "training")


def measured(ours=3.0, other=2.0, **more):
    lines = [
        {"name": n, "seconds": s, "bytes": None, "note": "", "repeats": 50} for n, s in (("b", other), ("a", ours))
    ]
    return {"name": "table", "title": "c", "lines": lines, "reason": "", **more}


def verdict(bar=BAR, **settings):
    return judge([bar], [{"machine": "here", "tables": [measured(**settings)]}])[0]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    printed = io.StringIO()
    chosen = [argument for name in MODULES for argument in ("--module", name)]
    with contextlib.redirect_stdout(printed):
        assert main(["--tiny", "--strict", "--device", "cpu", "--json", str(file), *chosen]) == 0
    return printed.getvalue(), json.loads(file.read_text())


def test_a_tiny_run_has_the_lines_of_every_bar_it_can_measure(tiny):
    _, results = tiny
    names = {table["name"] for table in results["tables"]}
    verdicts = [each for each in judge(BARS, [results]) if each.bar.table in names]
    assert len(verdicts) >= 30
    assert all(each.value is not None and each.value > 0 for each in verdicts)
    assert all(report.bar_cells(each)[-1].startswith("unjudged") for each in verdicts)


def test_every_bar_has_a_table_and_a_name_of_its_own():
    assert {bar.table for bar in BARS} <= {table.name for table in registered()}
    assert len({bar.name for bar in BARS}) == len({bar.work for bar in BARS}) == len(BARS)
    assert TRIED.keys() <= {bar.name for bar in BARS}


def test_few_repeats_have_a_reason():
    for machine in report.load_results():
        for table in machine["tables"]:
            if any((line["repeats"] or 50) < 50 for line in table["lines"]):
                assert table["why_fewer"], table["name"]


JUDGED = [(3.0, False, True, 0.75), (8.0, False, False, 2.0), (1.0, True, True, 1.0), (4.0, True, False, 4.0)]


@pytest.mark.parametrize(("ours", "at_least", "holds", "excess"), JUDGED)
def test_a_ratio_is_judged_in_the_sense_of_its_bar(ours, at_least, holds, excess):
    found = verdict(Bar("a", "a v b", "table", "a", 2.0, "b", at_least=at_least), ours=ours)
    assert (found.holds, found.excess) == (holds, excess)


def test_a_fixed_limit_is_in_its_unit():
    found = verdict(Bar("a", "a", "table", "a", 4.0, unit=MILLISECONDS), ours=0.005)
    assert (found.value, found.holds) == (pytest.approx(5.0), False)
    assert report.bar_cells(found)[1:4] == ["at most 4 ms", "", "5 ms"]


def test_a_bar_without_a_measurement_says_why():
    failed = {"name": "table", "title": "c", "lines": [], "reason": "failed with OSError"}
    found = judge([BAR], [{"machine": "here", "tables": [failed]}])[0]
    assert (found.value, found.holds) == (None, None)
    assert report.bar_cells(found)[-1] == "failed with OSError"


@pytest.mark.skipif(not resident.STATUS.exists(), reason="the kernel does not tell a process's peak")
def test_resident_memory_is_that_of_the_work_and_not_of_this_process():
    held = bytearray(b"1") * 10**8
    extra = resident.extra_resident_bytes("megabytes", "works", 50)
    assert 49 <= extra / 2**20 <= 52
    assert len(held) == 10**8


def test_the_table_is_printed_and_the_machine_described_without_its_name(tiny):
    printed, results = tiny
    assert 'MetricLoss("f1") v BCEWithLogitsLoss, a batch of 32, CPU' in printed
    assert results["machine"].endswith("CPU cores")
    assert {"python", "torch", "metricfit"} <= results["versions"].keys()


def test_tables_keep_the_load_they_were_measured_under(tiny):
    _, results = tiny
    assert all(len(table["loads"]) == 2 and table["under_load"] in (True, False) for table in results["tables"])


def test_a_second_run_keeps_the_other_tables(tmp_path, capsys):
    file = tmp_path / "bench.json"
    for name in ("batch-32", "pointwise-256"):
        assert main(["--tiny", "--only", name, "--device", "cpu", "--json", str(file)]) == 0
    assert [table["name"] for table in json.loads(file.read_text())["tables"]] == ["batch-32", "pointwise-256"]


@pytest.mark.parametrize("under_load", [True, False])
def test_the_table_says_what_was_measured_under_load(under_load):
    table = measured(under_load=under_load)
    printed = report.as_text([verdict(under_load=under_load)], [table], load_before=0.0, is_everything=True)
    assert printed.count("measured under load") == 2 * under_load


def test_the_table_says_that_the_machine_was_busy_from_the_start():
    printed = report.as_text([], [], load_before=0.8 * load.cores(), is_everything=True)
    assert "measured under load" in printed


def test_other_processes_are_distinguished_from_our_work(monkeypatch):
    monkeypatch.setattr(load, "cores", lambda: 2)
    moments = iter([(0.0, 100.0, 50.0), (10.0, 120.0, 60.0), (10.0, 120.0, 60.0), (20.0, 130.0, 70.0)])
    monkeypatch.setattr(load, "_moment", lambda: next(moments))
    assert load.Watch().result() | {"loads": []} == {"loads": [], "others": 1.0, "under_load": True}
    assert load.Watch().result() | {"loads": []} == {"loads": [], "others": 0.0, "under_load": False}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_worker_that_still_lives_is_our_work(monkeypatch):
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", busy], start_new_session=True, **pipes) as worker:
        worker.stdout.readline()
        monkeypatch.setattr(os, "getpgrp", lambda: worker.pid)  # a group of the worker alone
        used = load._group_ticks() / os.sysconf("SC_CLK_TCK")
        worker.communicate(b"\n")
    assert used >= 0.2


def test_repeats_end_with_the_budget_but_not_before_the_fewest():
    works = {"slow": lambda: time.sleep(0.01)}
    within = timing.interleaved_minima(works, "cpu", tables.Setting(repeats=3, budget=60.0), warmup=0)
    beyond = timing.interleaved_minima(works, "cpu", tables.Setting(repeats=99, fewest=4, budget=0.0), warmup=0)
    few = timing.interleaved_minima(works, "cpu", tables.Setting(repeats=99, budget=0.0), warmup=0, fewest=2)
    assert (within.repeats, beyond.repeats, few.repeats) == (3, 4, 2)
    assert within.seconds["slow"] >= 0.01


def test_the_page_matches_the_stored_results_and_has_every_bar(tmp_path):
    page = tmp_path / "page.md"
    assert main(["--markdown", str(page)]) == 0
    text = page.read_text()
    assert text == (ROOT / "benchmarks" / "RESULTS.md").read_text()
    assert all(f"| {bar.work} | {bar.bound} |" in text for bar in BARS)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(SystemExit, match="threshold-cpu"):
        main(["--only", "nonsense"])


def test_peers_that_are_not_installed_are_named(monkeypatch, capsys):
    monkeypatch.setattr("sys.path", [path for path in sys.path if "peers" not in path])
    monkeypatch.setitem(sys.modules, "monai.losses", None)
    assert main(["--module", "segmentation_loss", "--tiny", "--device", "cpu"]) == 0
    assert "no MONAI: see `make bench`" in capsys.readouterr().out
