"""fit in two processes, by the real launcher and gloo, learns what it does in one; and a killed rank is made up for."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import fit_script
import pytest
import torch

SCRIPT = Path(fit_script.__file__)
STEPS, EVERY = 12, 2  # of the run with dropout


def launch(what, folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "2"]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error:::metricfit"}
    done = subprocess.run(
        [*command, str(SCRIPT), what, str(folder)], env=settings, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder):
    return launch("everything", folder)


def same(found, expected, close):
    """Equal rows and weights; all that is no number equal to the letter."""
    assert len(found["rows"]) == len(expected["rows"])
    for row, wanted in zip(found["rows"], expected["rows"], strict=True):
        assert row == {
            key: pytest.approx(value, rel=close, abs=close, nan_ok=True) if isinstance(value, float) else value
            for key, value in wanted.items()
        }
    for part in ("weights", "learned"):
        for name, value in expected.get(part, {}).items():
            torch.testing.assert_close(found[part][name], value, rtol=close, atol=close, equal_nan=True)


@pytest.mark.parametrize("name", fit_script.CASES)
def test_two_processes_learn_what_one_does(ranks, name):
    alone = fit_script.run(name)
    for of_rank in ranks:
        same(of_rank[name], alone, 1e-10)
        assert of_rank[name]["best"] == pytest.approx(alone["best"], abs=1e-10, nan_ok=True)


def test_the_cases_have_the_properties_that_their_names_say(ranks):
    """So that none of them passes for nothing: it stops early, clips, moves multipliers and has uneven shares."""
    found = ranks[0]
    assert 2 < len(found["stopped"]["rows"]) < 30
    assert not torch.equal(found["clip"]["weights"]["0.weight"], found["bce"]["weights"]["0.weight"])
    learned = found["constrained"]["learned"]
    assert learned["constraints.0.multiplier"].item() > 0
    assert (learned["constraints.1.multiplier"] > 0).sum() > 5
    held_out = found["held-out multipliers"]["learned"]
    assert all(held_out[f"constraints.{number}.multiplier"].item() for number in range(3))
    assert found["constraint by a function"]["learned"]["constraints.0.multiplier"].item() > 0
    assert fit_script.N % 2
    assert [row["train_loss"] for row in found["bce"]["rows"]] != [row["train_loss"] for row in found["mix"]["rows"]]


def test_each_rank_reads_its_share_alone(ranks):
    read = [Counter(of_rank["dataset"]["read"]) for of_rank in ranks]
    # fit looks at a sample, and at all labels of so few, before it starts, on each rank
    probes = Counter([0, *range(fit_script.N)] * 2)
    assert read[0] + read[1] == Counter(dict.fromkeys(range(fit_script.N), 4)) + probes
    assert abs(read[0].total() - read[1].total()) <= 4 * 5  # by one a batch


def test_random_numbers_of_every_rank_continue_after_an_interruption(ranks):
    for of_rank in ranks:
        for found in of_rank["broken off"].values():
            same(found, of_rank["whole"], 0.0)
    same(ranks[1]["whole"], ranks[0]["whole"], 0.0)


def test_dropout_differs_from_rank_to_rank(ranks):
    """The same units dropped on both ranks would be the single run's with half its random numbers."""
    with pytest.raises(AssertionError):
        same(ranks[0]["whole"], fit_script.told_of(fit_script.with_dropout(None, resume=False)), 1e-6)


def test_only_rank_0_touches_its_disk(ranks, folder):
    assert sorted(path.name for path in (folder / "cases").iterdir() if path.is_dir()) == ["rank0"]
    assert len(list((folder / "cases" / "rank0" / "whole").glob("step-*.safetensors"))) == 2


def test_a_finished_run_is_returned_on_every_rank(ranks):
    for of_rank in ranks:
        same(of_rank["finished"], of_rank["whole"], 0.0)


def test_errors_reach_every_rank(ranks):
    for of_rank in ranks:
        assert "holds a run already" in of_rank["refused"]
        assert "nan at step 5 (stage 0, epoch 1, batch 1 of 3)" in of_rank["not finite"]
        assert of_rank["cannot"].startswith("2 processes cannot share the batches of this DataLoader; give it a Distri")
        assert "devices" in of_rank["wrongly told"]


def test_only_rank_0_shows_progress(ranks):
    assert "epoch 2 of 2" in ranks[0]["shown"]
    assert ranks[1]["shown"] == ""


def test_a_distributed_sampler_is_used_as_it_is(ranks):
    """Which repeats a row where their number is odd; and it shuffles anew each epoch."""
    first, second = zip(*(of_rank["shared out"]["epochs"] for of_rank in ranks), strict=True)
    for epoch in (first, second):
        assert [len(each) for each in epoch] == [27, 27]
        assert set(epoch[0]) | set(epoch[1]) == set(range(fit_script.N))
    assert first != second
    torch.testing.assert_close(ranks[0]["shared out"]["weights"], ranks[1]["shared out"]["weights"], rtol=0, atol=0)


def test_the_settings_of_torchrun_are_used(ranks):
    torch.testing.assert_close(ranks[0]["untold"], ranks[1]["untold"], rtol=0, atol=0)


def assert_made_up_for(of_rank, whole, folder, times):
    """torchrun starts both ranks again; the run goes on from its checkpoint and ends as if nothing had happened."""
    assert of_rank["killed"]["attempt"] == times
    same(of_rank["killed"], whole, 0.0)
    made = (folder / "run" / "steps").stat().st_size
    assert STEPS <= made <= STEPS + times * EVERY


def test_a_rank_that_is_killed(ranks, folder):
    for of_rank in ranks:
        assert_made_up_for(of_rank, ranks[0]["whole"], folder, times=1)


@pytest.mark.slow
def test_ranks_that_are_killed_one_after_the_other(ranks, tmp_path):
    for of_rank in launch("killed_twice", tmp_path):
        assert_made_up_for(of_rank, ranks[0]["whole"], tmp_path, times=2)
