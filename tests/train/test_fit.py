"""fit, against a training loop written out by hand."""

import copy
import itertools
import math
import random

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, losses, steps
from metricfit.losses import WeightedBCELoss
from metricfit.models import PerMember, TabM
from metricfit.train import Monitor, Stage, evaluate, fit
from metricfit.train.data.order import Order

N = 150


def data(n=N, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64) > 0.8).long()
    return x.to(dtype), y


def network(outputs=1, dropout=0.0, dtype=torch.float64):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, outputs)).to(dtype)


def weights_of(model):
    return torch.cat([given.detach().flatten() for given in model.parameters()])


def by_hand(loss, optimizer, epochs, *, batch_size, seed=0, scheduler=None, clip=None, weight=None, prior=True):
    """The loop that fit stands for; the weights, and each epoch's mean loss."""
    x, y = data()
    model = network().train()
    if prior:
        share = float(y.double().mean())
        nn.init.constant_(model[-1].bias, math.log(share / (1 - share)))
    optimizer = optimizer(model.parameters())
    schedule = scheduler and scheduler(optimizer)
    order, means = Order(batch_size), []
    for epoch in range(epochs):
        seen = []
        for index in order.batches(y, seed, 0, epoch):
            optimizer.zero_grad()
            given = {} if weight is None else {"weight": weight[index]}
            value = loss(model(x[index]).squeeze(1), y[index].double(), **given)
            value.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
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
    expected, means = by_hand(loss(), lambda given: optimizer(given, lr=0.02), **settings)
    result = fit(network(), data(), loss(), lr=0.02, optimizer=optimizer, progress=False, **settings)
    torch.testing.assert_close(weights_of(result.model), expected, rtol=0, atol=1e-12)
    assert result.history["train_loss"] == pytest.approx(means, abs=1e-12)


WEIGHT = torch.rand(N, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
OPTIONS = {
    "clip": {"clip": 0.05},
    "scheduler": {"scheduler": exponential},
    "weight": {"weight": WEIGHT},
    "all": {"clip": 0.05, "scheduler": exponential, "weight": WEIGHT},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_clip_scheduler_and_weights(options):
    def loss():
        return losses.Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5))

    def optimizer(parameters, lr=0.05):
        return torch.optim.Adam(parameters, lr=lr)

    expected, _ = by_hand(loss(), optimizer, 6, batch_size=40, **options)
    plain, _ = by_hand(loss(), optimizer, 6, batch_size=40)
    settings = {name: given for name, given in options.items() if name != "weight"}
    train = (*data(), options["weight"]) if "weight" in options else data()
    result = fit(
        network(), train, loss(), epochs=6, batch_size=40, lr=0.05, optimizer=optimizer, progress=False, **settings
    )
    torch.testing.assert_close(weights_of(result.model), expected, rtol=0, atol=1e-12)
    assert not torch.allclose(expected, plain, atol=1e-6)


def trained(objective, train=None, model=None, **settings):
    settings = {"epochs": 4, "batch_size": 50, "lr": 0.02, "progress": False} | settings
    return fit(model or network(), train or data(), objective, **settings)


ACCUMULATED = {
    **LOSSES,
    "wmw": losses.WMWLoss,
    "ranking": lambda: AugmentedLagrangian(WeightedBCELoss(), [RankingConstraint(size=N, normalize=True)]),
    "requirements": lambda: AugmentedLagrangian(MetricLoss("precision"), ["recall >= 0.9", "fpr <= 0.1"], mu=1.0),
}


@pytest.mark.parametrize("loss", ACCUMULATED.values(), ids=ACCUMULATED)
@pytest.mark.parametrize("parts", [4, 30])
def test_a_batch_in_parts_is_the_whole_batch(loss, parts):
    whole, in_parts = trained(loss()), trained(loss(), accumulate=parts)
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
    settings = {"batch_size": 20, "epochs": 1, "lr": 0.5, "optimizer": torch.optim.SGD, "accumulate": 4}
    trained(MetricLoss("f1"), (x, y), model, start_at_prior=False, **settings)
    drawn = model[1].drawn
    assert len(drawn) == 16  # two batches of four parts, each computed twice
    for at in (0, 8):
        assert all(torch.equal(drawn[at + part], drawn[at + 4 + part]) for part in range(4))
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[8])
    for at, index in zip((0, 8), Order(20).batches(y, 0, 0, 0), strict=True):
        masks = torch.cat(drawn[at : at + 4])
        logits = twin[2](2 * twin[0](x[index]) * masks).squeeze(1)
        gradient = torch.autograd.grad(MetricLoss("f1")(logits, y[index].double()), list(twin.parameters()))
        with torch.no_grad():
            for given, slope in zip(twin.parameters(), gradient, strict=True):
                given -= 0.5 * slope
    torch.testing.assert_close(weights_of(model), weights_of(twin), rtol=0, atol=1e-12)


def test_the_best_weights_are_kept():
    x, y = data()
    result = trained(WeightedBCELoss(), lr=0.5, epochs=12, validation=(x[:60], y[:60]), monitor="best f1")
    values = result.history["value"]
    assert values[-1] < max(values)
    assert result.best == max(values)
    kept = Monitor("f1", threshold="best").measure(result.model(x[:60]).detach(), y[:60])
    assert (kept.value, kept.threshold) == (result.best, result.threshold)
    assert result.history["best"] == [max(values[: at + 1]) for at in range(12)]


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


def lagrangian():
    return AugmentedLagrangian(WeightedBCELoss(), ["recall >= 0.9"], mu=0.5, rho=2.0)


@pytest.mark.parametrize("monitor", ["f1", "loss"])
def test_mu_grows_where_the_requirements_are_broken_more_than_before(monitor):
    x, y = data()
    objective = AugmentedLagrangian(WeightedBCELoss(), ["recall >= 0.99"], mu=0.001, rho=2.0)
    result = trained(objective, lr=0.3, epochs=12, validation=(x[:60], y[:60]), monitor=monitor)
    violations = result.history["violation"]
    assert min(violations) > 0
    rises = sum(later > before for before, later in itertools.pairwise(violations))
    assert rises > 0
    assert float(result.objective.mu) == 0.001 * 2.0**rises


def test_mu_stays_once_an_epoch_has_met_the_requirements():
    x, y = data()
    result = trained(lagrangian(), lr=0.5, epochs=20, validation=(x[:60], y[:60]))
    violations = result.history["violation"]
    first = violations.index(0.0)
    assert max(violations[first:]) > 0, "later epochs break the requirement again"
    rises = sum(later > before for before, later in itertools.pairwise(violations[: first + 1]))
    assert float(result.objective.mu) == 0.5 * 2.0**rises


@pytest.mark.parametrize(("monitor", "sign"), [("f1", 1), ("loss", -1)])
def test_without_requirements_mu_grows_where_the_monitored_value_became_worse(monitor, sign):
    def small(logits, target):
        return logits.abs().mean() - 4.0

    x, y = data()
    objective = AugmentedLagrangian(WeightedBCELoss(), small, mu=0.5, rho=2.0)
    result = trained(objective, lr=0.5, epochs=20, validation=(x[:60], y[:60]), monitor=monitor)
    values = [sign * value for value in result.history["value"]]
    falls = sum(later < before for before, later in itertools.pairwise(values))
    assert falls > 0
    assert float(result.objective.mu) == 0.5 * 2.0**falls


def test_multipliers_move_once_an_epoch():
    class Counted(AugmentedLagrangian):
        updates: list[int] = []  # noqa: RUF012 (shared by the copies that fit makes)
        forwards: list[int] = []  # noqa: RUF012

        def forward(self, *args, **given):
            self.forwards.append(1)
            return super().forward(*args, **given)

        def update(self):
            self.updates.append(len(self.forwards))
            super().update()

    objective = Counted(WeightedBCELoss(), ["recall >= 0.9"])
    result = trained(objective, epochs=4)
    assert Counted.updates == [3, 6, 9, 12]
    assert float(result.objective.multipliers["recall >= 0.9"]) > 0
    assert objective.multipliers["recall >= 0.9"] is None, "the objective that was given is left as it was"


def test_annealed_steps_go_from_start_to_end():
    class Seen(MetricLoss):
        a: list[float] = []  # noqa: RUF012 (shared by the copies that fit makes)

        def forward(self, *args, **given):
            self.a.append(float(self.step.a))
            return super().forward(*args, **given)

    objective = Seen("f1", step=steps.Annealed(steps.Identity(), steps.Sigmoid(k=20)))
    trained(objective, epochs=5)
    assert Seen.a == pytest.approx([0.0] * 3 + [0.25] * 3 + [0.5] * 3 + [0.75] * 3 + [1.0] * 3)


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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_gives_what_tensors_give_dropout_included(workers):
    settings = {"validation": data(), "monitor": "f1"}
    from_tensors = trained(WeightedBCELoss(), model=network(dropout=0.5), **settings)
    settings["validation"] = TensorDataset(*data())
    from_dataset = trained(
        WeightedBCELoss(), TensorDataset(*data()), model=network(dropout=0.5), workers=workers, **settings
    )
    assert torch.equal(weights_of(from_tensors.model), weights_of(from_dataset.model))
    assert from_tensors.history == from_dataset.history


def test_a_loader_with_the_same_batches_gives_what_tensors_give():
    x, y = data()
    whole = trained(WeightedBCELoss(), model=network(dropout=0.5), batch_size=N, start_at_prior=False)
    (order,) = Order(N).batches(y, 0, 0, 0)
    first = trained(
        WeightedBCELoss(),
        DataLoader(TensorDataset(x[order], y[order]), batch_size=N),
        model=network(dropout=0.5),
        epochs=1,
    )
    assert first.history[0]["train_loss"] == pytest.approx(whole.history[0]["train_loss"], abs=1e-12)
    validated = trained(
        WeightedBCELoss(), validation=DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True), monitor="auroc"
    )
    twin = trained(WeightedBCELoss(), validation=(x, y), monitor="auroc")
    assert validated.history["value"] == pytest.approx(twin.history["value"])


X32, Y32 = data(dtype=torch.float32)
KINDS = {
    "numpy": lambda: (X32.numpy(), Y32.numpy()),
    "pandas": lambda: (pd.DataFrame(X32.numpy()), pd.Series(Y32.numpy())),
    "lists": lambda: (X32.tolist(), Y32.tolist()),
    "float64": lambda: (X32.double(), Y32.double()),
    "bool": lambda: (X32, Y32.bool()),
    "uint8": lambda: (X32, Y32.byte()),
    "int32": lambda: (X32, Y32.int()),
    "column": lambda: (X32, Y32.unsqueeze(1)),
}


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("objective", [nn.BCEWithLogitsLoss, lambda: MetricLoss("f1")], ids=["torchs_bce", "metric"])
def test_all_kinds_of_inputs_and_labels_give_the_same(given, objective):
    model = network(dtype=torch.float32)
    expected = trained(objective(), (X32, Y32), network(dtype=torch.float32))
    found = trained(objective(), given(), model, validation=given(), monitor="f1", epochs=4)
    assert found.history["train_loss"] == pytest.approx(expected.history["train_loss"], abs=1e-6)


def test_one_output_with_or_without_its_axis():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x):
            return self.inner(x).squeeze(1)

    for labels in (data()[1], data()[1].unsqueeze(1)):
        flat = trained(nn.BCEWithLogitsLoss(), (data()[0], labels), Flat(), validation=data(), monitor="best f1")
        column = trained(nn.BCEWithLogitsLoss(), (data()[0], labels), validation=data(), monitor="best f1")
        assert flat.history == column.history


def test_the_index_goes_to_objectives_that_take_it():
    class Indexed(nn.Module):
        seen: list[torch.Tensor] = []  # noqa: RUF012

        def forward(self, logits, target, index):
            self.seen.append(index)
            return binary_cross_entropy_with_logits(logits, target)

    x, y = data()
    trained(Indexed(), epochs=2, seed=4)
    expected = [each for epoch in range(2) for each in Order(50).batches(y, 4, 0, epoch)]
    assert len(Indexed.seen) == len(expected)
    assert all(map(torch.equal, Indexed.seen, expected))
    Indexed.seen.clear()
    trained(Indexed(), TensorDataset(x, y), epochs=1, seed=4)
    assert all(map(torch.equal, Indexed.seen, expected[:3]))


def labels_for(outputs):
    x, y = data()
    classes = y + (x[:, 1] > 0).long()
    return {"multiclass": classes, "multilabel": torch.stack([y, 1 - y, (x[:, 1] > 0).long()], 1)}[outputs]


SEVERAL = {
    "cross_entropy": ("multiclass", nn.CrossEntropyLoss),
    "multi_margin": ("multiclass", nn.MultiMarginLoss),
    "metric": ("multiclass", lambda: MetricLoss("f1")),
    "multilabel_bce": ("multilabel", nn.BCEWithLogitsLoss),
    "soft_margin": ("multilabel", nn.MultiLabelSoftMarginLoss),
    "multilabel_metric": ("multilabel", lambda: MetricLoss("f1")),
}


@pytest.mark.parametrize(("kind", "objective"), SEVERAL.values(), ids=SEVERAL)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_several_classes_and_several_labels(kind, objective, dtype):
    x, _ = data()
    train = x, labels_for(kind).to(dtype)
    result = trained(objective(), train, network(3), validation=train, monitor="f1", epochs=25)
    assert result.best > 0.6
    assert evaluate(result.model, train, "f1")["f1"] == pytest.approx(result.best)


def test_balanced_class_weights_are_the_weights_they_stand_for():
    x, y = data()
    positives = int(y.sum())
    by_class = torch.tensor([N / (2 * (N - positives)), N / (2 * positives)])
    balanced = trained(WeightedBCELoss(), class_weight="balanced")
    explicit = trained(WeightedBCELoss(), (x, y, by_class[y]))
    given = trained(WeightedBCELoss(), class_weight=by_class.tolist())
    by_name = trained(WeightedBCELoss(), class_weight=dict(enumerate(by_class.tolist())))
    assert torch.equal(weights_of(by_name.model), weights_of(given.model))
    torch.testing.assert_close(weights_of(balanced.model), weights_of(explicit.model), rtol=0, atol=1e-6)
    torch.testing.assert_close(weights_of(given.model), weights_of(balanced.model), rtol=0, atol=1e-6)
    twice = trained(WeightedBCELoss(), (x, y, torch.full((N,), 2.0)), class_weight="balanced")
    torch.testing.assert_close(weights_of(twice.model), weights_of(balanced.model), rtol=0, atol=1e-6)


def test_class_weights_are_not_for_the_validation_set():
    weighted = trained(WeightedBCELoss(), class_weight="balanced", validation=data(), epochs=1, lr=1e-12)
    plain = trained(WeightedBCELoss(), validation=data(), epochs=1, lr=1e-12)
    assert weighted.history["validation_loss"] == pytest.approx(plain.history["validation_loss"], abs=1e-9)


@pytest.mark.parametrize("option", [{"stratified": True}, {"oversample": 0.5}])
def test_stratified_and_oversampled_batches_reach_the_objective(option):
    class Shares(WeightedBCELoss):
        seen: list[float] = []  # noqa: RUF012

        def forward(self, logits, target, weight=None):
            self.seen.append(float(target.mean()))
            return super().forward(logits, target, weight)

    Shares.seen.clear()
    _, y = data()
    trained(Shares(), batch_size=15, epochs=1, **option)
    if "oversample" in option:
        assert sum(Shares.seen) / len(Shares.seen) == pytest.approx(0.5, abs=0.01)
    else:
        share = float(y.double().mean())
        assert all(abs(each - share) <= 1 / 15 for each in Shares.seen)


def test_frozen_weights_stay():
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    trained(WeightedBCELoss(), model=model)
    assert torch.equal(model[0].weight, before)


def test_a_network_of_members_with_a_loss_for_each():
    torch.manual_seed(0)
    model = TabM(4, k=3, width=16, blocks=1)
    result = trained(
        PerMember(MetricLoss("f1"), members=3), (X32, Y32), model, validation=(X32, Y32), monitor="best f1"
    )
    assert result.best == pytest.approx(max(result.history["value"]))


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


@pytest.mark.parametrize(
    "option", [{"class_weight": "balanced"}, {"class_weight": {1: 5.0}}, {"stratified": True}, {"oversample": 0.6}]
)
def test_ignored_labels_are_no_class(option):
    """Ignored samples of any label train what ignored samples of another do, and are not dealt as positives."""
    x, y = data()
    kept = torch.arange(N) % 3 > 0
    found = []
    for label in (-100, 255):
        marked = torch.where(kept, y, label)
        loss = MetricLoss("f1", ignore_index=label)
        found.append(weights_of(trained(loss, (x, marked), batch_size=25, **option).model))
    assert torch.equal(*found)


def test_balanced_class_weights_are_of_what_is_not_ignored():
    x, y = data()
    kept = torch.arange(N) % 3 > 0
    share = y[kept].double().mean().item()
    by_class = {0: 0.5 / (1 - share), 1: 0.5 / share}
    loss, marked = MetricLoss("f1", ignore_index=255), torch.where(kept, y, 255)
    balanced, given = (trained(loss, (x, marked), class_weight=each) for each in ("balanced", by_class))
    torch.testing.assert_close(weights_of(balanced.model), weights_of(given.model), rtol=0, atol=1e-6)


def test_a_column_of_labels_can_be_stratified():
    x, y = data()
    column, row = (trained(WeightedBCELoss(), (x, given), stratified=True) for given in (y[:, None], y))
    assert torch.equal(weights_of(column.model), weights_of(row.model))


@pytest.mark.parametrize("monitor", ["loss", "f1"])
def test_a_scheduler_that_waits_for_what_is_watched(monitor):
    made = []

    def plateau(optimizer):
        mode = "min" if monitor == "loss" else "max"
        made.append(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, patience=0, factor=0.5))
        return made[-1]

    x, y = data()
    result = trained(WeightedBCELoss(), scheduler=plateau, monitor=monitor, validation=(x, 1 - y), epochs=5, lr=0.1)
    twin = torch.optim.lr_scheduler.ReduceLROnPlateau(
        torch.optim.SGD([torch.zeros(1)], lr=0.1), mode=made[-1].mode, patience=0, factor=0.5
    )
    for value in result.history["value"]:
        twin.step(value)
    assert made[-1].get_last_lr() == twin.get_last_lr()
    assert made[-1].get_last_lr()[0] < 0.1
