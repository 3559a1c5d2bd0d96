"""Runs that are killed by SIGKILL at any moment, and then resumed."""

import random

import pytest
from interrupted_runs import STEPS, Interrupted, assert_resumed
from runs_to_kill import EVERY, SAMPLES, one_model

from metricfit.train import Callback
from metricfit.train.checkpoint.folder import RunFolder


def unfinished(folder):
    return list(folder.path.glob(".step-*.unfinished")) if folder.path.exists() else []


def kill_at_random(forge, folder, rng, mid_write, run="one_model", steps=STEPS):
    at = rng.randrange(0, steps - EVERY)
    if mid_write:
        forge.kill(
            run,
            folder.path,
            lambda: folder.steps_made >= at and unfinished(folder),
            delay=rng.uniform(0, 0.02),
            hold_writes={"steps_made": at, "existing": ".step-*.unfinished"},
        )
        assert unfinished(folder), "the kill was to land before the checkpoint was in its place"
    else:
        forge.kill(
            run,
            folder.path,
            lambda: folder.steps_made >= at,
            delay=rng.uniform(0, 0.004),
            slow_steps=0.004,
            hold_at=at + EVERY - 1,
        )
    assert not folder.finished
    assert folder.steps_made < steps


def test_the_run_to_kill_has_the_properties_it_needs(uninterrupted):
    (result,) = uninterrupted["one_model"].result()["members"]
    assert uninterrupted["one_model"].steps_made == STEPS
    assert [row["stage"] for row in result["history"]] == ["bce"] * 3 + ["constrained"] * 4
    state = result["objective"]
    assert state["constraints.0.multiplier"].abs().sum() > 0
    assert state["constraints.1.multiplier"].shape == (SAMPLES,)
    assert state["constraints.1.multiplier"].abs().sum() > 0
    assert state["objective.step.a"] == 1
    assert state["objective.memory.total"].sum() > 0
    assert state["observed"] < 0, "the violation of the last epoch, which moves the penalty when it grows"


KILLS = [(number, number % 5 < 2) for number in range(20)]

IN_MAKE_TEST = 3


@pytest.mark.parametrize(
    ("number", "mid_write"),
    [pytest.param(*kill, marks=[] if kill[0] < IN_MAKE_TEST else pytest.mark.slow) for kill in KILLS],
)
def test_killed_once(forge, uninterrupted, tmp_path, number, mid_write):
    folder = RunFolder(tmp_path / "run")
    kill_at_random(forge, folder, random.Random(1000 + number), mid_write)
    forge.complete("one_model", folder.path)
    assert_resumed(folder, uninterrupted["one_model"])


@pytest.mark.slow
def test_killed_again_and_again(forge, uninterrupted, tmp_path):
    folder = RunFolder(tmp_path / "run")
    moments = (4, 11, 22, 33, 46)
    for step in moments:
        forge.kill("one_model", folder.path, lambda step=step: folder.steps_made >= step, hold_at=step + 1)
        assert not folder.finished
    forge.complete("one_model", folder.path)
    assert_resumed(folder, uninterrupted["one_model"], kills=len(moments))


def test_killed_while_it_begins(forge, uninterrupted, tmp_path):
    folder = RunFolder(tmp_path / "run")
    pattern = ".run.json.*.unfinished"

    def begins():
        return folder.path.exists() and any(folder.path.glob(pattern))

    forge.kill("one_model", folder.path, begins, hold_writes={"steps_made": 0, "existing": pattern})
    assert begins()
    assert not folder.started
    forge.complete("one_model", folder.path)
    assert_resumed(folder, uninterrupted["one_model"])


def test_killed_while_it_finishes(forge, uninterrupted, tmp_path):
    folder = RunFolder(tmp_path / "run")
    report = folder.path / "report.json"
    forge.kill("one_model", folder.path, report.exists, hold_writes={"steps_made": STEPS, "existing": report.name})
    assert not folder.finished
    forge.complete("one_model", folder.path)
    assert_resumed(folder, uninterrupted["one_model"])


def test_killed_population(forge, uninterrupted, tmp_path):
    """Where one member has stopped and others go on."""
    expected = uninterrupted["population"]
    ends = [[row["step"] for row in member["history"]] for member in expected.result()["members"]]
    stops = sorted(max(end) for end in ends)
    assert stops[0] < stops[-1] - 1, "the members were to stop at different times"
    folder = RunFolder(tmp_path / "run")
    forge.kill("population", folder.path, lambda: folder.steps_made > stops[0], hold_at=stops[0] + 1)
    assert not folder.finished
    assert stops[0] < folder.steps_made < stops[-1]
    forge.complete("population", folder.path)
    assert_resumed(folder, expected)


def test_a_second_run_in_the_same_folder_is_refused(forge, tmp_path):
    """In another process, and in this one."""
    folder = RunFolder(tmp_path / "run")

    def other_is_refused():
        if not folder.steps_made:
            return False
        with pytest.raises(BlockingIOError, match="another process is training in this folder now"):
            one_model(folder.path)
        return True

    forge.kill("one_model", folder.path, other_is_refused, hold_at=1)

    class Again(Callback):
        def stepped(self, step, losses):
            with pytest.raises(BlockingIOError, match="this process is training in this folder now"):
                one_model(folder.path)
            raise Interrupted

    with pytest.raises(Interrupted):
        one_model(folder.path, callbacks=[Again()])
    one_model(folder.path)
    assert folder.finished
