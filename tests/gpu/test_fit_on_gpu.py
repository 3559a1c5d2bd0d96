"""fit on a CUDA device: precisions agree, data stays there, runs go on, a population is its members, NaN is told of."""

import copy

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RunningCounts, fit
from metricfit.curves import best_threshold
from metricfit.losses import Mix, WeightedBCELoss
from metricfit.train import Checkpoints, Hardware, NotFiniteError
from metricfit.train.data.sources import InMemory
from metricfit_papers.populations import fit_population

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def on_gpu(precision=None):
    return {"hardware": Hardware(accelerator="gpu", precision=precision), "progress": False}


def data(n, seed=0, dtype=torch.float32):
    """Two Gaussians in 10 dimensions, means 4 apart, 5 % positives."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=generator) < 0.05).long()
    x = torch.randn(n, 10, generator=generator) + 4 / 10**0.5 * y.unsqueeze(1)
    return x.to(dtype), y


def mlp(seed=0, dropout=0.0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 1)).to(dtype)


def mix():
    return Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5))


@torch.no_grad()
def f1_of(model, x, y):
    scores = torch.sigmoid(model(x.cuda())).squeeze(1)
    return best_threshold(scores, y.cuda(), "f1").value


@pytest.fixture(scope="module")
def by_precision():
    """The test F1 of a run in each precision, and its model."""
    train, validation, test = data(40_000), data(20_000, seed=1), data(100_000, seed=2)
    found = {}
    for precision in ("32-true", "bf16-mixed", "16-mixed"):
        told = {"validation": validation, "epochs": 5, "batch_size": 1024, "monitor": "best f1", "lr": 3e-3}
        result = fit(mlp(), train, mix(), **told, **on_gpu(precision))
        found[precision] = f1_of(result.model, *test), result
    return found


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_precisions_reach_the_same_f1(by_precision, precision):
    exact, rounded = by_precision["32-true"][0], by_precision[precision][0]
    print(f"F1: 32-true {exact:.4f}, {precision} {rounded:.4f}")
    assert exact > 0.7
    assert rounded == pytest.approx(exact, abs=0.01)


def test_precisions_differ(by_precision):
    losses = {name: result.history.rows[0]["train_loss"] for name, (_, result) in by_precision.items()}
    assert len(set(losses.values())) == 3


def test_weights_stay_in_float32(by_precision):
    for _, result in by_precision.values():
        assert {given.dtype for given in result.model.parameters()} == {torch.float32}
        assert {given.device.type for given in result.model.parameters()} == {"cuda"}


def test_data_in_memory_is_indexed_on_the_device(monkeypatch):
    """Each epoch takes its rows from tensors that lie there already."""
    devices, batches = [], InMemory.batches

    def watched(self, order, device, seed=0):
        devices.extend([self.x.device.type] * len(order))
        return batches(self, order, device, seed)

    monkeypatch.setattr(InMemory, "batches", watched)
    fit(mlp(), data(8192), WeightedBCELoss(), epochs=2, batch_size=1024, **on_gpu())
    assert devices == ["cuda"] * 16


class Breaks(WeightedBCELoss):
    passes, last = 0, None

    def forward(self, logits, target, weight=None):
        Breaks.passes += self.training
        if Breaks.passes == Breaks.last:
            raise KeyboardInterrupt
        return super().forward(logits, target, weight)


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_a_run_continues_after_an_interruption(tmp_path, precision):
    """Dropout, optimiser and the scaler of float16 included."""
    told = {"epochs": 3, "batch_size": 512, "resume": True}

    def run(folder, last=None):
        Breaks.passes, Breaks.last = 0, last
        told_here = (
            told
            | on_gpu(precision)
            | {"validation": data(1000, seed=1), "checkpoint_dir": Checkpoints(tmp_path / folder, 3)}
        )
        return fit(mlp(dropout=0.5), data(4096), Breaks(), **told_here)

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("broken", last=14)
    resumed = run("broken")
    assert Breaks.passes < 24
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, rtol=0, atol=0)
    assert [row["train_loss"] for row in resumed.history.rows] == [row["train_loss"] for row in whole.history.rows]


OBJECTIVES = {
    "bce": WeightedBCELoss,
    "f1 with memory": lambda: MetricLoss("f1", memory=RunningCounts()),
    "mix": mix,
    "constrained": lambda: AugmentedLagrangian(mix(), ["recall >= 0.9"]),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_population_equals_its_members_trained_alone(name):
    train, validation = data(3000, dtype=torch.float64), data(1000, seed=1, dtype=torch.float64)
    told = {"validation": validation, "epochs": 5, "batch_size": 256, "monitor": "f1", "lr": 3e-3, "progress": False}
    told["start_at_prior"] = True  # a copy of a fresh model is not known to be fresh
    models = [mlp(seed, dtype=torch.float64) for seed in range(4)]
    alone = [
        fit(
            copy.deepcopy(model),
            train,
            OBJECTIVES[name](),
            seed=seed,
            hardware=Hardware(accelerator="gpu", devices=1),
            **told,
        )
        for seed, model in enumerate(models)
    ]
    together = fit_population(models, train, OBJECTIVES[name](), device="cuda", **told)
    for one, member in zip(alone, together, strict=True):
        for key, value in one.model.state_dict().items():
            torch.testing.assert_close(member.model.state_dict()[key], value, rtol=1e-6, atol=1e-6)
        losses = [[row["train_loss"] for row in each.history.rows] for each in (one, member)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-6)


class TurnsBad(WeightedBCELoss):
    passes = 0

    def forward(self, logits, target, weight=None):
        TurnsBad.passes += 1
        return super().forward(logits, target, weight) * (float("nan") if TurnsBad.passes == 6 else 1.0)


def test_nan_is_reported_with_its_step():
    """Though losses are looked at only every so many steps on a GPU."""
    with pytest.raises(NotFiniteError, match=r"nan at step 6 \(stage 0, epoch 1, batch 1 of 4\)"):
        fit(mlp(), data(4096), TurnsBad(), epochs=3, batch_size=1024, **on_gpu())
