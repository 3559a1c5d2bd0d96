"""Worker processes end with the command that started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")

SCRIPT = """
import sys, time
from metricfit.runs import Cell, run

run([Cell((str(n),), {}) for n in range(100)], lambda cell: time.sleep(1) or {}, sys.argv[1], jobs=2)
"""


def processes_of(session):
    """The command lines of the processes of a session that are alive, by process id."""
    results = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, sid = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            command = (path / "cmdline").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(sid) == session and state != "Z":
            results[int(path.name)] = command
    return results


def workers_of(session):
    return [pid for pid, command in processes_of(session).items() if "popen_loky" in command]


def wait_for(condition, seconds):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("when", [pytest.param("as the workers start", marks=pytest.mark.slow), "as the workers work"])
def test_workers_end_when_their_parent_is_killed(tmp_path, when):
    """The first case is that of workers which were not yet watching their parent when it was killed."""
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert wait_for(lambda: len(workers_of(parent.pid)) == 2, 120)
        if when == "as the workers work":
            assert wait_for(lambda: list(tmp_path.rglob("finished")), 120)
        parent.kill()
        parent.wait()
        assert wait_for(lambda: not processes_of(parent.pid), 90), processes_of(parent.pid)
    finally:
        for pid in processes_of(parent.pid):
            os.kill(pid, signal.SIGKILL)
