"""Callbacks that look at the weights which were just kept."""

import pytest
import torch
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, fit
from metricfit_papers.populations import fit_population


class Kept(Callback):
    def __init__(self, inputs):
        self.inputs, self.last, self.times = inputs, {}, 0

    def started(self, plan, step):
        self.outputs, self.best = plan.outputs, {}

    def epoch_ended(self, rows):
        for row in rows:
            member = row.get("member", 0)
            if row["best"] != self.best.get(member):
                self.times, self.best[member] = self.times + 1, row["best"]
                self.last[member] = self.outputs(member, self.inputs[member])


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


class OnOtherRows(Callback):
    """Adds the mean logit of other rows to the history."""

    def __init__(self, x):
        self.x = x

    def started(self, plan, step):
        self.outputs = plan.outputs

    def epoch_ended(self, rows):
        for row in rows:
            row["mean"] = self.outputs(row.get("member", 0), self.x).mean().item()


class StopsInThirdEpoch(Callback):
    def epoch_ended(self, rows):
        if rows[0]["epoch"] == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("number", [1, 3])
def test_numbers_of_other_rows_by_epoch_are_in_the_history_also_after_an_interruption(table, tmp_path, number):
    x, y = table
    torch.manual_seed(0)
    parts = [(torch.arange(80), torch.arange(80, 120))] * number
    start = [nn.Linear(3, 1) for _ in range(number)]

    def run(folder, *others, **more):
        members = [nn.Linear(3, 1) for _ in range(number)]
        for model, first in zip(members, start, strict=True):
            model.load_state_dict(first.state_dict())
        settings = {"splits": parts, "lr": 0.05, "epochs": 4, "progress": False, "checkpoint_dir": folder} | more
        return fit_population(members, (x, y), WeightedBCELoss(), callbacks=[OnOtherRows(x[:9]), *others], **settings)

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", StopsInThirdEpoch())
    resumed = run(tmp_path / "parts", resume=True)
    for result, again in zip(whole, resumed, strict=True):
        means = result.history["mean"]
        assert len(set(means)) == 4
        assert means == pytest.approx(again.history["mean"])
        best = max(range(4), key=lambda epoch: -result.history["value"][epoch])
        assert means[best] == pytest.approx(result.model(x[:9]).mean().item(), abs=1e-6)


def test_training_with_it_is_training_without(table):
    x, y = table
    results = []
    for callbacks in ([], [Kept([x[:50]])]):
        torch.manual_seed(3)
        settings = {"validation": (x[80:], y[80:]), "epochs": 5, "progress": False, "callbacks": callbacks}
        results.append(fit(network(), (x[:80], y[:80]), WeightedBCELoss(), **settings).history.rows)
    assert results[0] == results[1]
