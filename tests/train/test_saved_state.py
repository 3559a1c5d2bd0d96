"""Which checkpoint a run continues from when some are damaged."""

from types import SimpleNamespace

import pytest
import torch
from damages import DAMAGES, damage

from metricfit.errors import CheckpointError
from metricfit.train import CheckpointWarning
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.state import DamagedError, Position, RunState, Standing, pack, unpack
from metricfit.train.engine.launching import on_first_rank


def state(step):
    position = Position(batch=step, step=step, loss_sum=[0.0], standings=[Standing()])
    return RunState(position, [], {"weights": torch.arange(100.0) + step}, [])


@pytest.fixture
def folder(tmp_path):
    with RunFolder(tmp_path / "run") as run_folder:
        run_folder.begin({"seed": 1}, resume=False)
        for step in (3, 6):
            run_folder.save(state(step))
        yield run_folder


@pytest.mark.parametrize("how", DAMAGES)
def test_the_newest_intact_checkpoint_is_taken_and_the_damaged_one_is_named(folder, how):
    newest, before = folder.checkpoints()
    newest = damage(newest, how)
    with pytest.warns(CheckpointWarning, match=rf"{newest.name} \(.*the run continues from {before.name}"):
        assert folder.load().loop.step == 3
    folder.save(state(9))
    assert [path.name[:15] for path in folder.checkpoints()] == ["step-0000000009", "step-0000000003"]


@pytest.mark.parametrize("how", DAMAGES)
def test_where_none_is_intact_the_error_names_them_all(folder, how):
    names = ".*".join(damage(path, how).name for path in folder.checkpoints())
    with pytest.raises(CheckpointError, match=rf"no checkpoint in .* is intact: {names}.*delete them and run again"):
        folder.load()
    assert len(folder.checkpoints()) == 2


def test_a_checkpoint_that_is_made_again_after_it_was_damaged_stays(folder):
    newest, _ = folder.checkpoints()
    damage(newest, "flipped")
    with pytest.warns(CheckpointWarning):
        folder.load()
    folder.save(state(6))
    assert folder.checkpoints()[0] == newest
    assert folder.load().loop.step == 6


def test_a_folder_in_the_place_of_a_checkpoint_is_passed_over(folder):
    (folder.path / "step-0000000009-0123456789abcdef.safetensors").mkdir()
    assert folder.load().loop.step == 6


def test_processes_that_do_not_read_get_what_was_read(folder):
    def elsewhere(value):
        return SimpleNamespace(is_global_zero=False, broadcast=lambda outcome: value)

    assert on_first_rank(elsewhere(("of rank 0", None)), folder.load) == "of rank 0"
    with pytest.raises(CheckpointError, match="of rank 0"):
        on_first_rank(elsewhere((None, CheckpointError("of rank 0"))), folder.load)


def test_every_beginning_of_a_packed_state_is_noticed():
    packed = pack({"a": torch.ones(20), "b": [1, 2]})
    for end in range(len(packed)):
        with pytest.raises(DamagedError):
            unpack(packed[:end])


@pytest.mark.parametrize("content", [[1, 2], {"dict": 3}, {"dict": [[{"list": []}, 1]]}, {"tensor": "9"}, "text"])
def test_other_values_than_packed_ones_are_noticed(content, monkeypatch):
    monkeypatch.setattr("metricfit.train.checkpoint.state._without_tensors", lambda *args: content)
    packed = pack({})
    monkeypatch.undo()
    with pytest.raises(DamagedError):
        unpack(packed)


@pytest.mark.parametrize("mark", [b"{}", b"[]", b"null", b'{"result.safetensors": 3}', b"\0" * 90, b""])
def test_a_damaged_mark_of_the_end_is_noticed(folder, mark):
    folder.finish({"model": torch.ones(2)}, {"best": 0.5})
    (folder.path / "finished").write_bytes(mark)
    with pytest.raises(CheckpointError, match=r"cannot be used: damaged or missing. Delete the file 'finished'"):
        folder.result()
