"""Checkpoints and results that are damaged or cannot be written are reported with a remedy."""

import json
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest
from damages import damage
from exactly import assert_same
from interrupted_runs import STEPS, Interrupted, StopAt, assert_resumed, interrupt
from runs_to_kill import EVERY, data, network, one_model
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit.train import CheckpointWarning, Hardware, fit
from metricfit.train.checkpoint.folder import RunFolder


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty", "garbage with its hash", "other state with its hash"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(uninterrupted, tmp_path, how):
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, 38)
    newest, before = folder.checkpoints()
    newest = damage(newest, how)
    with pytest.warns(CheckpointWarning, match=rf"{newest.name} \(.*\); the run continues from {before.name}"):
        one_model(tmp_path)
    assert_resumed(folder, uninterrupted["one_model"], kills=2)


def test_swapped_checkpoints_are_noticed(uninterrupted, tmp_path):
    """The content of one under the name of the other, and one under the number of another step."""
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, 38)
    newest, before = folder.checkpoints()
    contents = newest.read_bytes(), before.read_bytes()
    newest.write_bytes(contents[1])
    with pytest.warns(CheckpointWarning, match=rf"{newest.name} \(its \d+ bytes do not have the hash in its name\)"):
        interrupt(one_model, tmp_path, 31)
    before.write_bytes(contents[0])
    with pytest.raises(ValueError, match=r"no checkpoint in .* is intact"):
        one_model(tmp_path)
    newest.write_bytes(contents[0])
    before.write_bytes(contents[1])
    renamed = before.rename(before.with_name(before.name.replace("30", "90")))
    with pytest.warns(
        CheckpointWarning, match=rf"{renamed.name} \(it belongs to step 30, not to the step in its name\)"
    ):
        one_model(tmp_path)
    assert_same(folder.result(), uninterrupted["one_model"].result())


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    def run(folder, width=16, **options):
        settings = {
            "epochs": 3,
            "hardware": Hardware(accelerator="cpu"),
            "checkpoint_dir": folder,
            "resume": True,
            "progress": False,
        }
        return fit(network(width=width), data(), WeightedBCELoss(), **settings, **options)

    interrupt(partial(run, width=8), tmp_path / "theirs", 2)
    interrupt(run, tmp_path / "mine", 2)
    for path in RunFolder(tmp_path / "mine").checkpoints():
        path.unlink()
    theirs = RunFolder(tmp_path / "theirs").checkpoints()[0]
    (tmp_path / "mine" / theirs.name).write_bytes(theirs.read_bytes())
    with pytest.raises(ValueError, match=r"no checkpoint in .* is intact: .*\(it belongs to another run\)"):
        run(tmp_path / "mine")


def test_a_damaged_checkpoint_is_dropped_by_the_next(tmp_path):
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, 38)
    newest, before = folder.checkpoints()
    newest.rename(tmp_path / newest.name.replace("35", "36"))  # a step at which no other will be written
    (damaged, _) = folder.checkpoints()
    damage(damaged, "flipped")
    with pytest.warns(CheckpointWarning), pytest.raises(Interrupted):
        one_model(tmp_path, callbacks=[StopAt(35)])
    assert damaged in folder.checkpoints()
    with pytest.warns(CheckpointWarning), pytest.raises(Interrupted):
        one_model(tmp_path, callbacks=[StopAt(42)])
    assert [path.name[:15] for path in folder.checkpoints()] == ["step-0000000040", "step-0000000035"]
    assert before.name.startswith("step-0000000030")


@pytest.mark.parametrize("how", ["flipped", "zeros", "garbage with its hash"])
def test_where_all_are_damaged_nothing_is_changed_until_the_user_deletes_them(uninterrupted, tmp_path, how):
    folder = RunFolder(tmp_path)
    interrupt(one_model, tmp_path, 38)
    damaged = [damage(path, how) for path in folder.checkpoints()]
    names = ".*".join(path.name for path in damaged)
    with pytest.raises(ValueError, match=rf"no checkpoint in .* is intact: {names}.*delete them and run again"):
        one_model(tmp_path)
    assert folder.checkpoints() == damaged
    assert folder.steps_made == 38
    for path in damaged:
        path.unlink()
    one_model(tmp_path)
    assert_same(folder.result(), uninterrupted["one_model"].result())
    assert folder.steps_made == 38 + STEPS


@pytest.mark.parametrize("name", ["run.json", "result.safetensors", "report.json", "finished"])
@pytest.mark.parametrize("how", ["truncated", "flipped", "empty"])
def test_damaged_files_of_a_finished_run_are_reported_with_a_remedy(uninterrupted, tmp_path, name, how):
    one_model(tmp_path)
    whole = (tmp_path / name).read_bytes()
    damage(tmp_path / name, how)
    if name == "run.json":
        with pytest.raises(ValueError, match=r"run.json is damaged .* copy its run.json|holds another run"):
            one_model(tmp_path)
        (tmp_path / name).write_bytes(whole)
        one_model(tmp_path)
        return
    named = r"\S+" if name == "finished" else name  # whose flipped bit makes another file look damaged
    with pytest.raises(ValueError, match=f"{named} in .* Delete the file 'finished' there"):
        one_model(tmp_path)
    (tmp_path / "finished").unlink()
    one_model(tmp_path)  # the remedy, as it is told
    assert_resumed(RunFolder(tmp_path), uninterrupted["one_model"])


def test_a_missing_result_is_reported(tmp_path):
    one_model(tmp_path)
    (tmp_path / "result.safetensors").unlink()
    with pytest.raises(ValueError, match=r"result\.safetensors in .* damaged or missing"):
        one_model(tmp_path)


def test_state_that_cannot_be_saved_is_reported_before_the_first_step(tmp_path):
    class Odd(nn.Module):
        def forward(self, logits, target):
            return nn.functional.binary_cross_entropy_with_logits(logits, target)

        def get_extra_state(self):
            return {"names": {"a set"}}

        def set_extra_state(self, state):
            pass

    with pytest.raises(
        TypeError, match=r"state\['learner'\]\['members'\]\[0\]\['objective'\]\['_extra_state'\]\['names'\] is set"
    ):
        fit(network(), data(), Odd(), checkpoint_dir=tmp_path, hardware=Hardware(accelerator="cpu"))
    assert RunFolder(tmp_path).steps_made == 0


FULL_DISK = Path(__file__).with_name("full_disk.py")


def why_not_mounted():
    probe = "mount -t tmpfs -o size=64k tmpfs /mnt"
    try:
        done = subprocess.run(["unshare", "-rm", "sh", "-c", probe], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() if done.returncode else ""


def test_a_full_disk_is_reported_and_the_run_can_be_resumed(tmp_path):
    problem = why_not_mounted()
    if problem:
        pytest.skip(f"no small tmpfs can be mounted here: {problem}")
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path} && exec {sys.executable} {FULL_DISK} {tmp_path}"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    kept = report["kept"]
    assert (
        f"the last good checkpoint, {kept}, is unchanged. Free some space and run again with resume=True"
        in report["error"]
    )
    assert "No space left" not in report["error"]
    assert "no space left for step-" in report["error"]
    assert report["error_number"] == 28
    assert report["kept_is_whole"]
    assert report["unfinished"] == []
    assert report["steps_when_full"] > 0
    assert report["same"]
    assert report["steps_made"] <= STEPS + EVERY
    assert report["no_step_counted"].startswith(
        "[Errno 28] no space left for the count of steps; there was no checkpoint"
    )
    assert report["not_begun"].startswith("[Errno 28] no space left for run.json")


def test_nothing_warns_when_nothing_is_damaged(tmp_path):
    interrupt(one_model, tmp_path, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="recall >= 0.9 does not hold")  # after so few epochs
        one_model(tmp_path)
