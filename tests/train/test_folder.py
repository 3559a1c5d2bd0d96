"""Training state as bytes and back, and files that are whole or absent."""

import math
import os
import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from exactly import assert_same
from hypothesis import given, settings

from metricfit.train.checkpoint.folder import CHECKPOINT, CHECKPOINTS_KEPT, RunFolder
from metricfit.train.checkpoint.run_spec import find_differences, fingerprint
from metricfit.train.checkpoint.state import Position, RunState, Standing, pack, unpack


def state(step):
    return RunState(Position(step=step, loss_sum=[0.0], standings=[Standing()]), [], {}, [])


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
SHAPES = [(), (0,), (1,), (3,), (2, 0, 3), (2, 3), (1, 2, 2)]


@st.composite
def tensors(draw):
    """Any bits, those of NaN with a payload, of -0.0 and of infinity among them."""
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SHAPES))
    size = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    bits = torch.tensor(list(draw(st.binary(min_size=size, max_size=size))), dtype=torch.uint8)
    if dtype == torch.bool:
        return (bits % 2).bool().reshape(shape)
    return bits.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
keys = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
keys |= st.tuples(st.integers(), st.text(max_size=2))
states = st.recursive(
    plain | tensors(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(keys, states, max_size=4))
@settings(deadline=None, max_examples=200)
def test_packed_state_is_restored_unchanged(state):
    result = unpack(pack(state))
    assert_same(result, state)
    assert [repr(key) for key in result] == [repr(key) for key in state]


def test_tensors_that_share_memory_or_have_holes_come_back():
    x = torch.arange(12.0).reshape(3, 4)
    state = {"whole": x, "same": x, "column": x[:, 1], "turned": x.T, "leaf": torch.nn.Parameter(x)}
    result = unpack(pack(state))
    for name, tensor in state.items():
        assert torch.equal(result[name], tensor.detach())
    result["whole"].zero_()
    assert torch.equal(result["same"], x)


def test_kinds_of_tuples_and_dictionaries_come_back_plain():
    result = unpack(pack({"size": torch.Size([2, 3]), "ordered": torch.nn.Linear(1, 1).state_dict()}))
    assert result["size"] == (2, 3)
    assert type(result["ordered"]) is dict


def test_the_header_does_not_grow_with_plain_values():
    """safetensors refuses one of over 100 MB, which the history of a large population would reach."""
    sizes = [int.from_bytes(pack({"history": ["epoch"] * rows})[:8], "little") for rows in (1, 10_000)]
    assert max(sizes) < 200


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({1, 2}, r"state\['a'\]\[1\]\['b'\] is set: \{1, 2\}"),
        (np.zeros(2), r"state\['a'\]\[1\]\['b'\] is ndarray"),
        (print, r"state\['a'\]\[1\]\['b'\] is builtin_function_or_method"),
        (torch.zeros(2, 2).to_sparse(), r"cannot hold state\['a'\]\[1\]\['b'\], a tensor of torch.sparse_coo"),
        (torch.zeros(2, dtype=torch.complex64), r"a tensor of torch.strided, torch.complex64"),
    ],
    ids=["set", "array", "function", "sparse", "complex"],
)
def test_what_cannot_be_saved_is_named(odd, message):
    with pytest.raises(TypeError, match=message):
        pack({"a": [0, {"b": odd}]})


def test_no_code_is_run_by_loading():
    """A pickle in place of a checkpoint is not read as one."""
    with pytest.raises(Exception, match=r"(?i)header|json|decode|metadata|delimiter|Expecting"):
        unpack(b"\x80\x04\x95" + b"cos\nsystem\n" * 20)


@pytest.fixture
def folder(tmp_path):
    with RunFolder(tmp_path / "run") as run_folder:
        run_folder.begin({"seed": 1}, resume=False)
        yield run_folder


def test_the_last_two_checkpoints_are_kept(folder):
    for step in range(0, 12, 3):
        folder.save(state(step))
    assert [int(CHECKPOINT.fullmatch(path.name)[1]) for path in folder.checkpoints()] == [9, 6]
    assert len(folder.checkpoints()) == CHECKPOINTS_KEPT
    assert folder.load().loop.step == 9


def test_steps_are_counted_over_several_processes(folder):
    for _ in range(3):
        folder.count_step()
    again = RunFolder(folder.path)
    with again:
        again.count_step()
    assert folder.steps_made == 4


def test_a_write_that_fails_leaves_the_old_file_and_no_other(folder, monkeypatch):
    folder.save(state(3))

    def fails(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    kept = folder.checkpoints()[0].name
    with pytest.raises(OSError, match=f"cannot write step-.*Input/output error; the last good checkpoint, {kept}"):
        folder.save(state(6))
    assert folder.load().loop.step == 3
    assert not list(folder.path.glob(".*"))


def test_leftovers_of_a_killed_write_are_cleared(folder):
    folder.save(state(3))
    leftover = folder.path / ".step-0000000006-0123456789abcdef.safetensors.unfinished"
    leftover.write_bytes(b"half")
    folder.__exit__()
    with RunFolder(folder.path) as again:
        again.begin({"seed": 1}, resume=True)
        assert not leftover.exists()
        assert again.load().loop.step == 3


def test_the_lock_is_held_and_let_go(folder):
    other = RunFolder(folder.path)
    with pytest.raises(BlockingIOError, match="training in this folder now; wait for it, or choose another"):
        other.begin({"seed": 1}, resume=True)
    folder.__exit__()
    with other:
        other.begin({"seed": 1}, resume=True)


def test_a_refused_folder_is_not_left_locked(folder):
    folder.__exit__()
    with pytest.raises(ValueError, match="seed: 1 then, 2 now"):
        RunFolder(folder.path).begin({"seed": 2}, resume=True)
    with RunFolder(folder.path) as again:
        again.begin({"seed": 1}, resume=True)


def test_differences_are_of_leaves_and_leave_out_versions():
    before = {"a": {"b": [1, 2], "c": 3}, "versions": 1, "checkpoint_every": 5, "gone": 1}
    now = {"a": {"b": [1, 4], "c": 3}, "versions": 2, "checkpoint_every": None, "new": [1]}
    assert find_differences(before, now) == [
        "a.b[1]: 2 then, 4 now",
        "gone: 1 then, None now",
        "new: None then, [1] now",
    ]
    assert find_differences(before, before) == []


def test_code_is_not_compared_between_two_pythons():
    def spec(python, code):
        return {"stages": [{"optimizer": {"code": code}, "lr": 1}], "versions": {"python": python}}

    assert find_differences(spec("3.11.2", "a"), spec("3.11.9", "b")) == [
        "stages[0].optimizer.code: 'a' then, 'b' now",
    ]
    assert find_differences(spec("3.11.2", "a"), spec("3.12.2", "b")) == []


def test_descriptions_of_settings_are_the_same_in_another_process():
    code = (
        "import json; from metricfit.train import Monitor\n"
        "from metricfit.train.checkpoint.run_spec import describe\n"
        "def mine(counts): return counts.tp if 'a' in {'a', 'b', 'c'} else counts.fp\n"
        "print(json.dumps(describe(Monitor(mine, subject_to=['recall >= 0.5', 'mcc >= 0.1']))))"
    )
    result = [
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    assert result[0] == result[1]
    assert b'"code"' in result[0]


def test_fingerprints():
    x = torch.arange(6.0)
    assert fingerprint(x) == fingerprint(x.clone()) == fingerprint(x.reshape(1, 6)[0])
    others = [x.reshape(2, 3), x.double(), x + 1, -x, x[:0], x.to(torch.bfloat16), x > 2]
    assert len({fingerprint(item) for item in (x, *others)}) == 1 + len(others)
