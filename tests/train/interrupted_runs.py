"""Interrupt runs, in this process and in others, and compare resumed runs with uninterrupted ones."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from exactly import assert_same
from runs_to_kill import EVERY

from metricfit.train import Callback

STEPS = 49


class Interrupted(Exception):
    pass


class StopAt(Callback):
    def __init__(self, step):
        self.step = step

    def stepped(self, step, losses):
        if step == self.step:
            raise Interrupted


class Forge:
    """Makes runs in processes of their own, and ends them."""

    def __init__(self):
        script = Path(__file__).with_name("runs_to_kill.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},  # or the runs would round differently
        )
        assert self._answer() == "ready"

    def _answer(self):
        return json.loads(self.process.stdout.readline())

    def _order(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def complete(self, run, folder):
        self._order(run=run, folder=str(folder))
        assert self._answer() == 0, "the run failed; see its traceback on standard error"

    def kill(self, run, folder, when, delay=0.0, **order):
        """Kills a run by SIGKILL as soon as ``when`` holds, plus a delay; the order makes the run wait for it."""
        child = self._order(run=run, folder=str(folder), **order)
        deadline = time.monotonic() + 300
        while not when():
            assert time.monotonic() < deadline, "the moment for the kill never came"
            time.sleep(0.0002)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        assert self._answer() == -signal.SIGKILL, "the run was over before it was killed"

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def assert_resumed(folder, expected, kills=1, every=EVERY):
    assert folder.finished
    assert_same(folder.result(), expected.result())
    assert expected.steps_made <= folder.steps_made <= expected.steps_made + kills * every
    assert not list(folder.path.glob(".*.unfinished"))


def interrupt(run, folder, step):
    with pytest.raises(Interrupted):
        run(folder, callbacks=[StopAt(step)])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}
