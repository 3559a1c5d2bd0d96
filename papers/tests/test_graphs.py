"""When steps are captured as CUDA graphs, as far as a CPU can show it; gpu/ has the rest."""

import random

import pytest
import torch
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit_papers import graphs
from metricfit_papers.graphs import find_obstacle_in_settings
from metricfit_papers.populations import fit_population

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


def test_on_a_cpu_steps_are_those_of_a_plain_learner():
    def trained(**settings):
        models = [nn.Linear(3, 1) for _ in range(2)]
        for model in models:
            nn.init.zeros_(model.weight)
        settings = {"epochs": 2, "device": "cpu", "start_at_prior": True, "progress": False} | settings
        return fit_population(models, (X, Y), WeightedBCELoss(), **settings)

    plain, captured = trained(), trained(make_learner=graphs.CapturedLearner)
    assert [result.history for result in captured] == [result.history for result in plain]
