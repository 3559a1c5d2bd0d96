"""The benchmarks run, say what they measured and what they could not; how fast anything was is not asked."""

import contextlib
import io
import json
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.__main__ import main  # noqa: E402

from benchmarks import load, report, resident, rows, timing  # noqa: E402

ROW = {"name": "a", "work": "a v b", "bar": "at most 2x", "ratio": 1.5, "ours": 3.0, "baseline": 2.0, "holds": "yes"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["--quick", "--strict", "--json", str(file)]) == 0
    return printed.getvalue(), json.loads(file.read_text())


def test_quick_run_measures_every_cpu_row_without_verdicts(quick):
    _, results = quick
    names = {row["name"] for row in results["rows"]}
    cpu = [row for row in results["rows"] if row["device"] == "cpu"]
    assert {"binary-loss-cpu-eager", "multiclass-loss-cpu-eager", "best-threshold", "hinge-sums-cpu"} <= names
    assert all(row["ratio"] > 0 and row["holds"].startswith("unjudged") for row in cpu)


def test_quick_run_measures_every_cpu_peer(quick):
    _, results = quick
    for group in results["peers"]:
        if group["device"] == "cpu":
            assert group["peers"], group["reason"]
            assert group["peers"][0]["ratio"] == 1.0


@pytest.mark.skipif(not resident.STATUS.exists(), reason="the kernel does not tell a process's peak")
def test_resident_memory_is_that_of_the_work_and_not_of_this_process():
    held = bytearray(b"1") * 10**8
    extra = resident.extra_resident_bytes("megabytes", "works", 50)
    assert 49 <= extra / 2**20 <= 52
    assert len(held) == 10**8


def test_the_table_is_printed_and_the_machine_described_without_its_name(quick):
    printed, results = quick
    assert printed.splitlines()[0].split(" | ")[1].strip() == "bar"
    assert results["machine"].endswith("CPU cores")
    assert {"python", "torch", "metricfit"} <= results["versions"].keys()


def test_rows_keep_the_load_they_were_measured_under(quick):
    _, results = quick
    measured = [row for row in results["rows"] if row["ratio"] is not None]
    assert all(len(row["loads"]) == 2 and row["under_load"] in (True, False) for row in measured)


@pytest.mark.parametrize("under_load", [True, False])
def test_the_table_says_what_was_measured_under_load(under_load):
    row = ROW | {"unit": "s", "repeats": 50, "under_load": under_load}
    group = {"title": "c", "peers": [], "reason": "none", "under_load": under_load}
    printed = report.as_text({"rows": [row], "peers": [group]}, load_before=0.0)
    assert printed.count("measured under load") == 2 * under_load


def test_the_table_says_that_the_machine_was_busy_from_the_start():
    printed = report.as_text({"rows": [], "peers": []}, load_before=0.8 * load.cores())
    assert "measured under load" in printed


def test_other_processes_are_distinguished_from_our_work(monkeypatch):
    monkeypatch.setattr(load, "cores", lambda: 2)
    moments = iter([(0.0, 100.0, 50.0), (10.0, 120.0, 60.0), (10.0, 120.0, 60.0), (20.0, 130.0, 70.0)])
    monkeypatch.setattr(load, "_moment", lambda: next(moments))
    assert load.Watch().result() | {"loads": []} == {"loads": [], "others": 1.0, "under_load": True}
    assert load.Watch().result() | {"loads": []} == {"loads": [], "others": 0.0, "under_load": False}


def test_repeats_end_with_the_budget_and_are_counted():
    works = {"slow": lambda: time.sleep(0.02)}
    within = timing.interleaved_minima(works, "cpu", rows.Setting(repeats=3, budget=60.0), warmup=0)
    beyond = timing.interleaved_minima(works, "cpu", rows.Setting(repeats=1000, budget=0.0), warmup=0)
    assert within.repeats == 3
    assert beyond.repeats == timing.FEWEST_REPEATS
    assert within.seconds["slow"] >= 0.02


def test_the_page_matches_the_stored_results(tmp_path):
    page = tmp_path / "page.md"
    assert main(["--markdown", str(page)]) == 0
    assert page.read_text() == (ROOT / "benchmarks" / "RESULTS.md").read_text()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(SystemExit, match="best-threshold"):
        main(["--only", "nonsense"])


def test_peers_that_are_not_installed_are_named(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["--module", "segmentation_peers", "--module", "pair_peers", "--quick", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "no segmentation_models_pytorch: see `make bench-peers`" in printed
    assert "no LibAUC (No module named 'libauc'): see `make bench-peers`" in printed
