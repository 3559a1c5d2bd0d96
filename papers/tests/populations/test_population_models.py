"""fit_population with models of many kinds: batch normalisation, dropout, frozen weights and precision."""

import copy

import pytest
import torch
from small_populations import BCE, N, assert_same, data, networks, splits_of, together_and_alone
from torch import nn

from metricfit import MetricLoss
from metricfit.models import PerMember
from metricfit.train import Steps
from metricfit_papers import populations
from metricfit_papers.populations import fit_population


def test_batch_normalisation_with_members_of_one_size():
    def models(count):
        return networks(count, layers=[nn.BatchNorm1d(8)])

    settings = {"splits": splits_of(4, unequal=False), "optimizer": torch.optim.SGD}  # Adam enlarges rounding errors
    together, alone = together_and_alone(BCE, count=4, models=models, epochs=6, monitor="f1", **settings)
    assert_same(together, alone)
    assert together[0].model[1].num_batches_tracked > 0


@pytest.mark.parametrize("fewest", [0, 2**20], ids=["one by one", "under vmap"])
def test_networks_of_convolutions(fewest, monkeypatch):
    monkeypatch.setattr(populations, "FEWEST_WEIGHTS", fewest)

    def models(count):
        def one(seed):
            torch.manual_seed(seed)
            front = nn.Linear(5, 12), nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU()
            return nn.Sequential(*front, nn.Flatten(), nn.Linear(24, 1)).double()

        return [one(seed) for seed in range(count)]

    settings = {"splits": splits_of(4, unequal=False), "optimizer": torch.optim.SGD, "monitor": "f1", "patience": 2}
    together, alone = together_and_alone(BCE, count=4, models=models, epochs=6, **settings)
    assert_same(together, alone)
    assert together[0].model[3].num_batches_tracked > 0


class Moving(nn.Module):
    """Keeps a mean of its inputs by assigning a new tensor, and counts its steps in Python."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.front = nn.Sequential(nn.Linear(5, 12), nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 4, 2), nn.Flatten())
        self.head = nn.Linear(24, 1)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("mean", torch.zeros(24))
        self.steps = 0
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.front(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * features.detach().mean(0)
            self.steps += 1
        return self.scale * min(1.0, self.steps / 8) * self.head(features - self.mean)


@pytest.mark.parametrize("fewest", [0, 2**20], ids=["one by one", "under vmap"])
def test_assigned_buffers_counts_in_python_and_scalar_weights(fewest, monkeypatch):
    monkeypatch.setattr(populations, "FEWEST_WEIGHTS", fewest)
    settings = {"splits": splits_of(3, unequal=False), "optimizer": torch.optim.SGD, "lr": [0.1] * 3}
    together, alone = together_and_alone(
        BCE,
        count=3,
        models=lambda count: [Moving(seed) for seed in range(count)],
        epochs=4,
        steps=Steps(clip=1.0),
        **settings,
    )
    assert_same(together, alone)
    assert together[0].model.mean.abs().sum() > 0


def test_a_member_that_is_left_alone_may_change_its_weights():
    class Written(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.mul_(1.0)  # a write
            return super().forward(x)

    def models(count):
        def one(seed):
            torch.manual_seed(seed)
            return nn.Sequential(Written(5, 8), nn.ReLU(), nn.Linear(8, 1)).double()

        return [one(seed) for seed in range(count)]

    settings = {"splits": splits_of(3, unequal=False), "optimizer": torch.optim.SGD, "lr": [1e-12, 1e-12, 0.1]}
    settings |= {"epochs": 6, "patience": 2, "monitor": "best f1"}
    together, alone = together_and_alone(BCE, count=3, models=models, **settings)
    assert len(together[0].history) < len(together[2].history)
    assert_same(together, alone)


@pytest.mark.parametrize("norm", [lambda: nn.BatchNorm1d(8), lambda: nn.InstanceNorm1d(1, track_running_stats=True)])
def test_normalisation_sees_no_padding_of_shorter_batches(norm):
    """A batch of members that differ in length is then not padded: the members run one by one."""

    def models(count):
        wide = isinstance(norm(), nn.InstanceNorm1d)
        return networks(count, layers=[nn.Unflatten(1, (1, 8)), norm(), nn.Flatten()] if wide else [norm()])

    settings = {"splits": splits_of(3), "optimizer": torch.optim.SGD}
    together, alone = together_and_alone(BCE, count=3, models=models, epochs=3, **settings)
    assert_same(together, alone)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 1)
        self.second.weight = self.first.weight
        self.double()

    def forward(self, x):
        return self.last(self.second(self.first(x).relu()))


def test_tied_weights_stay_tied():
    def models(count):
        made = []
        for seed in range(count):
            torch.manual_seed(seed)
            made.append(Tied())
        return made

    together, alone = together_and_alone(BCE, count=3, models=models, epochs=3)
    assert_same(together, alone)
    assert together[0].model.first.weight is together[0].model.second.weight


def test_frozen_weights_stay_and_the_others_learn():
    def models(count):
        members = networks(count)
        for model in members:
            model[0].requires_grad_(False)
        return members

    together, alone = together_and_alone(BCE, count=3, models=models, epochs=4)
    assert_same(together, alone)
    for fresh, one in zip(networks(3), together, strict=True):
        assert torch.equal(fresh[0].weight, one.model[0].weight)
        assert not torch.equal(fresh[2].weight, one.model[2].weight)


def test_a_model_of_members_within_a_member():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.Linear(5, 2)

        def forward(self, x):
            logits = self.heads(x).unsqueeze(1)
            return logits if self.training else logits.mean(-1)

    def models(count):
        def one(seed):
            torch.manual_seed(seed)
            return Twice().double()

        return [one(seed) for seed in range(count)]

    def objective():
        return PerMember(MetricLoss("f1"), members=2)

    together, alone = together_and_alone(objective, count=3, models=models, epochs=4, start_at_prior=False)
    assert_same(together, alone)


def test_dropout_differs_from_member_to_member_and_repeats_with_the_seeds():
    x, y = data()

    def trained():
        twins = [copy.deepcopy(networks(1, layers=[nn.Dropout(0.5)])[0]) for _ in range(2)]
        results = fit_population(twins, (x, y), BCE(), seeds=[5, 5], batch_size=N, epochs=1, progress=False)
        return [one.model[0].weight for one in results]

    first, second = trained()
    assert not torch.equal(first, second)
    again, _ = trained()
    assert torch.equal(first, again)


def test_a_population_of_one_and_whole_numbers_as_inputs():
    class Look(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 1)

        def forward(self, x):
            return self.table(x).sum(1)

    numbers = torch.arange(40).reshape(20, 2) % 10
    y = torch.arange(20) % 2
    splits = [(torch.arange(10), torch.arange(10, 20)), (torch.arange(11), torch.arange(11, 20))]
    results = fit_population([Look(), Look()], (numbers, y), BCE(), splits=splits, epochs=2, progress=False)
    assert all(len(one.history) == 2 for one in results)
    (one,) = fit_population([Look()], (numbers, y), BCE(), epochs=2, progress=False)
    assert one.history.columns == ["stage", "epoch", "step", "train_loss"]


def test_arrays_go_to_the_type_of_the_members():
    x, y = data()
    (one,) = fit_population(networks(1), (x.numpy(), y.numpy()), BCE(), epochs=2, progress=False)
    (other,) = fit_population(networks(1), (x, y), BCE(), epochs=2, progress=False)
    assert_same([one], [other])
    fit_population(networks(1, dtype=torch.float32), (x, y), BCE(), epochs=1, progress=False)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.last = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.gru(x.unsqueeze(-1))[0][:, -1])


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 1)

    def forward(self, x):
        return self.last(x if x.mean() > 0 else -x)


@pytest.mark.parametrize("kind", [Recurrent, Branching])
def test_models_that_vmap_cannot_take_are_sent_to_fit(kind):
    with pytest.raises(RuntimeError, match=f"a {kind.__name__} cannot be trained.*train them one by one with fit"):
        fit_population([kind(), kind()], data(dtype=torch.float32), BCE(), epochs=1, progress=False)


def test_forward_passes_in_bfloat16_are_near_those_in_float32():
    def trained(precision):
        models = networks(3, dtype=torch.float32)
        settings = {"splits": splits_of(3), "epochs": 3, "batch_size": 64, "device": "cpu", "progress": False}
        return fit_population(models, data(dtype=torch.float32), MetricLoss("f1"), precision=precision, **settings)

    for exact, mixed in zip(trained(None), trained("bf16-mixed"), strict=True):
        assert next(mixed.model.parameters()).dtype == torch.float32
        assert mixed.history["train_loss"] != exact.history["train_loss"]
        assert mixed.history["train_loss"] == pytest.approx(exact.history["train_loss"], abs=0.01)


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="precision is None or 'bf16-mixed', got '16-mixed'"):
        fit_population(networks(2), data(), MetricLoss("f1"), precision="16-mixed", epochs=1, device="cpu")


def test_a_run_in_another_precision_is_another_run(tmp_path):
    settings = {"splits": splits_of(2), "epochs": 1, "batch_size": 64, "device": "cpu", "progress": False}
    models = {"dtype": torch.float32}
    whole = data(dtype=torch.float32)
    fit_population(networks(2, **models), whole, MetricLoss("f1"), checkpoint_dir=tmp_path, **settings)
    with pytest.raises(Exception, match="precision"):
        fit_population(
            networks(2, **models),
            whole,
            MetricLoss("f1"),
            checkpoint_dir=tmp_path,
            resume=True,
            precision="bf16-mixed",
            **settings,
        )
