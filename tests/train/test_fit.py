"""fit: equal to a training loop written by hand, with its options, early stopping, seeds and stages."""

import copy
import math
import random
import sys

import numpy as np
import pytest
import torch
from small_fits import N, data, network, trained, weights_of
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, losses
from metricfit.losses import WeightedBCELoss
from metricfit.train import Hardware, Monitor, Stage, Steps, fit
from metricfit.train.data.batches import Batches


def by_hand(
    loss,
    optimizer,
    epochs,
    *,
    batch_size,
    seed=0,
    scheduler=None,
    steps=None,
    weight=None,
    prior=True,
    dtype=torch.float64,
):
    """The loop that fit stands for; the weights, and each epoch's mean loss."""
    x, y = data(dtype=dtype)
    model = network(dtype=dtype).train()
    if prior:
        share = float(y.double().mean())
        nn.init.constant_(model[-1].bias, math.log(share / (1 - share)))
    optimizer = optimizer(model.parameters())
    schedule = scheduler and scheduler(optimizer)
    order, means = Batches(batch_size), []
    for epoch in range(epochs):
        seen = []
        for index in order.divide(y, seed, 0, epoch):
            optimizer.zero_grad()
            settings = {} if weight is None else {"weight": weight[index]}
            value = loss(model(x[index]).squeeze(1), y[index].to(dtype), **settings)
            value.backward()
            if steps is not None and steps.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), steps.clip)
            optimizer.step()
            seen.append(float(value.detach()))
        if schedule:
            schedule.step()
        means.append(sum(seen) / len(seen))
    return weights_of(model), means


def exponential(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)


def momentum(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


LOSSES = {
    "torchs_bce": nn.BCEWithLogitsLoss,
    "bce": WeightedBCELoss,
    "metric": lambda: MetricLoss("f1"),
    "memory": lambda: MetricLoss("mcc", memory=RunningCounts()),
    "mix": lambda: losses.Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5)),
}


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, momentum], ids=["adamw", "sgd"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_fit_equals_a_loop_written_by_hand(loss, optimizer):
    settings = {"epochs": 6, "batch_size": 40, "seed": 3}
    expected, means = by_hand(loss(), lambda options: optimizer(options, lr=0.02), **settings)
    result = fit(network(), data(), loss(), lr=0.02, optimizer=optimizer, progress=False, **settings)
    torch.testing.assert_close(weights_of(result.model), expected, rtol=0, atol=1e-12)
    assert result.history["train_loss"] == pytest.approx(means, abs=1e-12)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_on_one_device_fit_is_the_loop_by_hand_without_fabric(clip, monkeypatch):
    """In float32 and with the default optimiser, whose fused form rounds differently."""
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    settings = {"epochs": 6, "batch_size": 40, "seed": 3, "steps": Steps(clip=clip)}
    single = torch.float32
    expected, means = by_hand(
        WeightedBCELoss(), lambda options: torch.optim.AdamW(options, lr=0.02), dtype=single, **settings
    )
    result = fit(
        network(dtype=single),
        data(),
        WeightedBCELoss(),
        lr=0.02,
        hardware=Hardware(accelerator="cpu"),
        progress=False,
        **settings,
    )
    torch.testing.assert_close(weights_of(result.model), expected, rtol=0, atol=1e-5)
    assert result.history["train_loss"] == pytest.approx(means, abs=1e-5)


WEIGHT = torch.rand(N, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1

OPTIONS = {
    "clip": {"steps": Steps(clip=0.05)},
    "scheduler": {"scheduler": exponential},
    "weight": {"weight": WEIGHT},
    "all": {"steps": Steps(clip=0.05), "scheduler": exponential, "weight": WEIGHT},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_clip_scheduler_and_weights(options):
    def loss():
        return losses.Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5))

    def optimizer(parameters, lr=0.05):
        return torch.optim.Adam(parameters, lr=lr)

    expected, _ = by_hand(loss(), optimizer, 6, batch_size=40, **options)
    plain, _ = by_hand(loss(), optimizer, 6, batch_size=40)
    settings = {name: tensor for name, tensor in options.items() if name != "weight"}
    train = (*data(), options["weight"]) if "weight" in options else data()
    result = fit(
        network(), train, loss(), epochs=6, batch_size=40, lr=0.05, optimizer=optimizer, progress=False, **settings
    )
    torch.testing.assert_close(weights_of(result.model), expected, rtol=0, atol=1e-12)
    assert not torch.allclose(expected, plain, atol=1e-6)


ACCUMULATED = {
    **LOSSES,
    "wmw": losses.WMWLoss,
    "ranking": lambda: AugmentedLagrangian(WeightedBCELoss(), [RankingConstraint(size=N, normalize=True)]),
    "requirements": lambda: AugmentedLagrangian(MetricLoss("precision"), ["recall >= 0.9", "fpr <= 0.1"], mu=1.0),
}


@pytest.mark.parametrize("loss", ACCUMULATED.values(), ids=ACCUMULATED)
@pytest.mark.parametrize("parts", [4, 30])
def test_a_batch_in_parts_is_the_whole_batch(loss, parts):
    whole, in_parts = trained(loss()), trained(loss(), steps=Steps(accumulate=parts))
    torch.testing.assert_close(weights_of(in_parts.model), weights_of(whole.model), rtol=0, atol=1e-10)
    assert in_parts.history["train_loss"] == pytest.approx(whole.history["train_loss"], abs=1e-10)


class Noise(nn.Module):
    """Dropout that remembers what it drew."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def forward(self, x):
        if not self.training:
            return x
        self.drawn.append((torch.rand(x.shape) < 0.5).to(x.dtype))
        return 2 * x * self.drawn[-1]


def test_dropout_drops_the_same_units_when_a_part_is_computed_again():
    x, y = data(40)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), Noise(), nn.Linear(8, 1)).double()
    twin = copy.deepcopy(model)
    settings = {"batch_size": 20, "epochs": 1, "lr": 0.5, "optimizer": torch.optim.SGD, "steps": Steps(accumulate=4)}
    trained(MetricLoss("f1"), (x, y), model, start_at_prior=False, **settings)
    drawn = model[1].drawn
    assert len(drawn) == 16  # two batches of four parts, each computed twice
    for number in (0, 8):
        assert all(torch.equal(drawn[number + part], drawn[number + 4 + part]) for part in range(4))
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[8])
    for number, index in zip((0, 8), Batches(20).divide(y, 0, 0, 0), strict=True):
        masks = torch.cat(drawn[number : number + 4])
        logits = twin[2](2 * twin[0](x[index]) * masks).squeeze(1)
        gradient = torch.autograd.grad(MetricLoss("f1")(logits, y[index].double()), list(twin.parameters()))
        with torch.no_grad():
            for options, slope in zip(twin.parameters(), gradient, strict=True):
                options -= 0.5 * slope
    torch.testing.assert_close(weights_of(model), weights_of(twin), rtol=0, atol=1e-12)


def test_the_best_weights_are_kept():
    x, y = data()
    result = trained(WeightedBCELoss(), lr=0.5, epochs=12, validation=(x[:60], y[:60]), monitor="best f1")
    values = result.history["value"]
    assert values[-1] < max(values)
    assert result.best == max(values)
    kept = Monitor("f1", threshold="best").measure(result.model(x[:60]).detach(), y[:60])
    assert (kept.value, kept.threshold) == (result.best, result.threshold)
    assert result.history["best"] == [max(values[: index + 1]) for index in range(12)]


@pytest.mark.parametrize(
    "monitor", ["loss", "f1", "best f1", "auroc", "fpr", Monitor("precision", subject_to="recall >= 0.5")]
)
def test_patience_counts_epochs_without_a_better_value(monitor):
    x, y = data()
    result = trained(WeightedBCELoss(), lr=0.3, epochs=40, validation=(x[:60], y[:60]), monitor=monitor, patience=3)
    values = result.history["value"]
    sign = 1 if monitor in ("loss", "fpr") else -1
    violations = result.history["violation"] if isinstance(monitor, Monitor) else [0.0] * len(values)
    best, since, expected = None, 0, 0
    for value, violation in zip(values, violations, strict=True):
        now = (violation, sign * value)
        best, since = (now, 0) if best is None or now < best else (best, since + 1)
        expected += 1
        if since == 3:
            break
    assert len(values) == expected < 40
    assert result.best == sign * best[1]


def test_the_validation_loss_is_that_of_eval_mode():
    x, y = data()
    result = trained(
        nn.BCEWithLogitsLoss(), model=network(dropout=0.5), epochs=1, validation=(x[:60], y[:60]), monitor="loss"
    )
    expected = binary_cross_entropy_with_logits(result.model(x[:60]).squeeze(1), y[:60].double())
    assert result.history["validation_loss"] == [pytest.approx(expected.item(), abs=1e-12)]
    assert not result.model.training


def test_history_without_validation():
    result = trained(WeightedBCELoss())
    assert result.history.columns == ["stage", "epoch", "step", "train_loss"]
    assert math.isnan(result.best)
    assert math.isnan(result.threshold)
    assert result.seconds > 0


@pytest.mark.parametrize(("option", "moved"), [(None, True), (True, True), (False, False)])
def test_the_last_bias_starts_at_the_prior(option, moved):
    _, y = data()
    model = network()
    before = model[-1].bias.item()
    trained(WeightedBCELoss(), model=model, lr=1e-12, epochs=1, start_at_prior=option)
    share = float(y.double().mean())
    assert model[-1].bias.item() == pytest.approx(math.log(share / (1 - share)) if moved else before, abs=1e-9)


def test_a_model_without_a_last_bias_is_left_as_it_is():
    model = nn.Linear(4, 1, bias=False).double()
    trained(WeightedBCELoss(), model=model)


def test_a_seed_gives_the_same_run_and_another_another():
    def run(seed):
        return weights_of(trained(WeightedBCELoss(), model=network(dropout=0.5), seed=seed).model)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


def test_the_users_random_numbers_are_left_alone():
    model = network(dropout=0.5)
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    trained(WeightedBCELoss(), model=model)
    trained(WeightedBCELoss(), TensorDataset(*data()), model=model)
    trained(WeightedBCELoss(), DataLoader(TensorDataset(*data()), shuffle=True, batch_size=50), model=model)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()  # noqa: NPY002
    assert torch.get_default_dtype() == torch.float32


def test_frozen_weights_stay():
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    trained(WeightedBCELoss(), model=model)
    assert torch.equal(model[0].weight, before)


def test_several_stages_each_with_its_settings():
    stages = [
        Stage(WeightedBCELoss(), epochs=2, lr=0.1, name="warm"),
        Stage(MetricLoss("f1"), epochs=3, optimizer=torch.optim.SGD, scheduler=exponential),
    ]
    result = trained(stages, validation=data(), monitor="f1")
    assert result.history["stage"] == ["warm"] * 2 + ["stage 1"] * 3
    assert result.history["epoch"] == [0, 1, 0, 1, 2]
    assert isinstance(result.objective, MetricLoss)


def test_a_model_can_be_trained_again():
    model = network()
    first = trained(WeightedBCELoss(), model=model)
    loss = first.history["train_loss"][-1]
    second = trained(WeightedBCELoss(), model=model, start_at_prior=False)
    assert second.model is model
    assert second.history["train_loss"][-1] < loss


@pytest.mark.parametrize("monitor", ["loss", "f1"])
def test_a_scheduler_that_waits_for_what_is_watched(monitor):
    members = []

    def plateau(optimizer):
        mode = "min" if monitor == "loss" else "max"
        members.append(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, patience=0, factor=0.5))
        return members[-1]

    x, y = data()
    result = trained(WeightedBCELoss(), scheduler=plateau, monitor=monitor, validation=(x, 1 - y), epochs=5, lr=0.1)
    twin = torch.optim.lr_scheduler.ReduceLROnPlateau(
        torch.optim.SGD([torch.zeros(1)], lr=0.1), mode=members[-1].mode, patience=0, factor=0.5
    )
    for value in result.history["value"]:
        twin.step(value)
    assert members[-1].get_last_lr() == twin.get_last_lr()
    assert members[-1].get_last_lr()[0] < 0.1
