"""When steps of one model are captured as CUDA graphs, as far as a CPU can show it; tests/gpu has the rest."""

import random

import pytest
import torch
from torch import nn

from metricfit.errors import InvalidStateError
from metricfit.losses import WeightedBCELoss
from metricfit.train import fit
from metricfit.train.data.batches import Batch
from metricfit.train.engine import graphs
from metricfit.train.engine.graphs import AutomaticGraphs, find_obstacle_in_settings

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


class Own(torch.optim.SGD):
    pass


def hooked():
    model = nn.Linear(3, 1)
    model.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"optimizer": torch.optim.SGD}, None),
        ({"steps": None}, None),
        ({"steps": 49}, "fewer than 50 steps"),
        ({"per_batch": True}, "the learning rate changes in every step"),
        ({"accumulate": 2}, "batches are computed in parts"),
        ({"optimizer": torch.optim.Adagrad}, "steps of Adagrad cannot be captured"),
        ({"optimizer": Own}, "steps of Own cannot be captured"),
        ({"model": hooked()}, "Linear has hooks"),
        ({"model": torch.compile(nn.Linear(3, 1), backend="eager")}, "Linear is compiled"),
        ({"model": nn.Linear(2**15, 2**14, device="meta")}, "the weights take more than 1024 MiB"),
    ],
    ids=lambda part: str(part) if isinstance(part, str) else "",
)
def test_settings_that_rule_graphs_out(changed, reason):
    settings = {"model": nn.Linear(3, 1), "optimizer": torch.optim.AdamW, "steps": 50, "per_batch": False}
    settings = {**settings, "accumulate": 1, **changed}
    model, optimizer = settings.pop("model"), settings.pop("optimizer")
    made = optimizer(model.parameters(), lr=0.1)
    assert find_obstacle_in_settings(model, WeightedBCELoss(), made, **settings) == reason


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.seen = 0, []
        self.register_buffer("mean", torch.zeros(2))


CHANGES = {
    "number": lambda module: setattr(module, "steps", 1),
    "list": lambda module: module.seen.append(1),
    "replaced_buffer": lambda module: setattr(module, "mean", module.mean + 1),
    "new_attribute": lambda module: setattr(module, "cache", torch.ones(1)),
    "random": lambda module: random.random(),
    "torchs_random": lambda module: torch.rand(1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_in_python_are_seen(name):
    module = Stateful()
    before = graphs._read_python_state([module])
    CHANGES[name](module)
    assert graphs._read_python_state([module]) != before


def test_changes_of_tensors_in_place_are_no_obstacle():
    module = Stateful()
    before = graphs._read_python_state([module])
    module.mean.add_(1)
    assert graphs._read_python_state([module]) == before


def test_an_obstacle_is_noted_or_an_error():
    parts = (lambda batches: batches[0].y, None, nn.Linear(3, 1), WeightedBCELoss(), [])
    steps = AutomaticGraphs(*parts, obstacle="fewer than 50 steps", required=False)
    assert steps([Batch(X, Y)]) is Y
    assert steps.note == "fewer than 50 steps"
    with pytest.raises(InvalidStateError, match="fewer than 50 steps; leave cuda_graphs out"):
        AutomaticGraphs(*parts, obstacle="fewer than 50 steps", required=True)


@pytest.mark.parametrize("cuda_graphs", [None, True, False])
def test_on_a_cpu_there_are_none(cuda_graphs):
    result = fit(
        nn.Linear(3, 1), (X, Y), WeightedBCELoss(), epochs=2, accelerator="cpu", cuda_graphs=cuda_graphs, progress=False
    )
    assert "cuda_graphs" not in result.history.columns
