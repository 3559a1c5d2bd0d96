"""The benchmarks run, say what they measured and what they could not; how fast anything was is not asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    done = run("--quick", "--strict", "--json", str(file))
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


def test_quick_run_measures_every_cpu_row_and_judges_none(quick):
    _, results = quick
    rows = {row["name"]: row for row in results["rows"]}
    cpu = [row for row in rows.values() if row["device"] == "cpu"]
    assert {"binary-loss-cpu-eager", "binary-loss-cpu-compiled", "best-threshold"} <= rows.keys()
    assert all(row["ratio"] > 0 and row["holds"].startswith("unjudged") for row in cpu)


def test_quick_run_measures_every_cpu_peer(quick):
    _, results = quick
    for group in results["peers"]:
        if group["device"] == "cpu":
            assert group["peers"], group["reason"]
            assert group["peers"][0]["ratio"] == 1.0


def test_the_table_is_printed_and_the_machine_described_without_its_name(quick):
    printed, results = quick
    assert printed.splitlines()[0].split(" | ")[1].strip() == "bar"
    assert results["machine"].endswith("CPU cores")
    assert {"python", "torch", "metricfit"} <= results["versions"].keys()


def test_the_page_is_what_the_stored_results_give(tmp_path):
    page = tmp_path / "page.md"
    assert run("--markdown", str(page)).returncode == 0
    assert page.read_text() == (ROOT / "benchmarks" / "RESULTS.md").read_text()


def test_an_unknown_name_is_answered_with_the_known_ones():
    done = run("--only", "nonsense")
    assert done.returncode != 0
    assert "best-threshold" in done.stderr
