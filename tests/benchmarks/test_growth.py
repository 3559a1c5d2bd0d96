"""How cost grows is measured in parts that add up, and the bytes between processes are counted."""

import json
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import growth, growth_processes


def test_a_run_that_was_stopped_goes_on_where_it_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(growth, "CLASSES", (1, 2))
    file = tmp_path / "growth.json"
    run = ["--json", str(file), "--budget", "0"]
    growth.main([*run, "--largest", "100"])
    first = json.loads(file.read_text())["points"]
    assert {(p["axis"], p["samples"], p["classes"]) for p in first} == {
        ("samples", 100, 1),
        ("multiclass", 100, 2),
        ("multilabel", 100, 1),
        ("multilabel", 100, 2),
    }
    assert all(p["seconds"] > 0 and p["bytes"] >= 0 and p["repeats"] >= 3 for p in first)
    monkeypatch.setattr(growth, "measure", lambda *_: pytest.fail("everything was measured before"))
    growth.main([*run, "--largest", "100"])
    assert json.loads(file.read_text())["points"] == first


def point(**values):
    return {"axis": "samples", "samples": 10, "classes": 1, "seconds": 1e-6, "bytes": 100, "reason": ""} | values


@pytest.mark.parametrize(
    ("loss", "values", "reason"),
    [
        ("a", {}, ""),
        ("a", {"bytes": 10**13}, "not enough memory"),
        ("a", {"seconds": 2.0}, "a pass takes more than 5 s"),
        ("all pairs", {"seconds": 0.2}, "a pass takes more than 5 s"),  # a hundred times the pairs
        ("a", {"reason": "not enough memory"}, "not enough memory"),
    ],
)
def test_losses_are_left_out_of_sizes_that_they_cannot_do(loss, values, reason):
    known = growth.Known()
    known.add(point(loss=loss, **values))
    assert known.reason_to_skip(loss, growth.Size("samples", 100, 1, dict), "cpu") == reason


def test_bytes_of_messages_are_those_of_the_tensor_that_is_sent(monkeypatch):
    for name in growth_processes.COLLECTIVES:
        monkeypatch.setattr(dist, name, lambda *_, **__: None)
    messages = growth_processes.Messages()

    def work():
        dist.all_reduce(torch.zeros(4))
        dist.all_gather([torch.zeros(3)] * 2, torch.zeros(3, dtype=torch.float64))

    assert messages.of(work) == [("all_reduce", 16), ("all_gather", 24)]
    assert messages.of(lambda: None) == []
