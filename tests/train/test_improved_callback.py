"""Callbacks that look at the weights which were just kept."""

import pytest
import torch
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, fit, fit_population


class Kept(Callback):
    def __init__(self, inputs):
        self.inputs, self.last, self.times = inputs, {}, 0

    def improved(self, members, outputs):
        self.times += 1
        logits = outputs([self.inputs[member] for member in members])
        self.last |= dict(zip(members, logits, strict=True))


@pytest.fixture
def table():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 3, generator=generator)
    return x, (x[:, 0] + torch.randn(120, generator=generator) > 0.5).long()


def network():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))


def test_a_populations_last_outputs_are_those_of_the_weights_it_returns(table):
    x, y = table
    several = [network() for _ in range(3)]
    inputs = [x[:50], x[50:57], x[100:]]  # of unequal length
    kept = Kept(inputs)
    parts = [(torch.arange(80), torch.arange(80, 120))] * 3
    settings = {"splits": parts, "lr": 0.05, "epochs": 30, "patience": 4, "progress": False}
    results = fit_population(several, (x, y), WeightedBCELoss(), callbacks=[kept], **settings)
    assert kept.times > 1
    for member, result in enumerate(results):
        assert kept.last[member].shape == (len(inputs[member]), 1)
        torch.testing.assert_close(kept.last[member], result.model(inputs[member]).detach())


def test_the_last_outputs_of_one_model_are_those_of_its_weights(table):
    x, y = table
    kept = Kept([x[:9]])
    settings = {"validation": (x[80:], y[80:]), "lr": 0.05, "epochs": 30, "patience": 4, "progress": False}
    result = fit(network(), (x[:80], y[:80]), WeightedBCELoss(), callbacks=[kept], **settings)
    torch.testing.assert_close(kept.last[0], result.model(x[:9]).detach())
    assert not kept.last[0].requires_grad


def test_training_with_it_is_training_without(table):
    x, y = table
    results = []
    for callbacks in ([], [Kept([x[:50]])]):
        torch.manual_seed(3)
        settings = {"validation": (x[80:], y[80:]), "epochs": 5, "progress": False, "callbacks": callbacks}
        results.append(fit(network(), (x[:80], y[:80]), WeightedBCELoss(), **settings).history.rows)
    assert results[0] == results[1]
