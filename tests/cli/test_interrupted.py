"""compare, interrupted and run again: no finished cell is repeated, and the result is the uninterrupted one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts in /proc")]

SMALL = ["--folds", "2", "--method", "metricfit", "--method", "boosted trees on the metric", "--quiet", "--json"]


def finished(folder):
    """The reports of finished cells: what would change if one was run again."""
    reports = [path.with_name("report.json") for path in Path(folder).rglob("finished")]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in reports}


def processes_of(session):
    """The processes of a session that live, as a command and its workers are, and nothing else."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, sid = path.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(sid) == session and state != "Z":
            found.append(path.parent.name)
    return found


def waited(condition, seconds=300):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def numbers(found):
    """What a comparison found, less the seconds and the verdict, which names and weighs seconds."""
    methods = [{key: value for key, value in each.items() if key != "seconds"} for each in found["methods"]]
    return methods


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(160, 3)), columns=list("abc"))
    frame["fraud"] = np.where(frame["b"] + 0.5 * rng.normal(size=160) > 0.8, "yes", "no")
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_comparison_goes_on_and_ends_as_if_it_had_not_been(data, tmp_path, how):
    arguments = ["compare", str(data), "--target", "fraud", "--out", str(tmp_path / "c"), *SMALL]
    child = subprocess.Popen(
        [sys.executable, "-c", "from metricfit.cli.app import main; main()", *arguments, "--jobs", "2"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert waited(lambda: len(finished(tmp_path / "c")) >= 4 or child.poll() is not None)
        if how == signal.SIGINT:
            os.killpg(child.pid, how)  # as a terminal does: the workers get it too
        else:
            child.send_signal(how)
        out, err = child.communicate(timeout=120)
        assert out == ""
        if how == signal.SIGINT:
            assert child.returncode == 130
            assert err == "Interrupted. Finished parts are kept; run the same command again to continue.\n"
        assert waited(lambda: not processes_of(child.pid), 20), "workers are left"
    finally:
        for each in processes_of(child.pid):
            os.kill(int(each), signal.SIGKILL)
    before = finished(tmp_path / "c")
    assert 4 <= len(before) < 14

    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 0, again.output
    after = finished(tmp_path / "c")
    assert len(after) == 14  # six families and the reference on two folds
    assert {path: after[path] for path in before} == before

    whole = CliRunner().invoke(app, [*arguments[:4], "--out", str(tmp_path / "d"), *SMALL])
    assert whole.exit_code == 0, whole.output
    assert numbers(json.loads(whole.stdout)) == numbers(json.loads(again.stdout))
