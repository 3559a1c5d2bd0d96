"""A population learns what its members would learn alone: weights, histories, best values, thresholds."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, losses, steps
from metricfit.models import PerMember
from metricfit.train import Callback, Monitor, Stage, fit, fit_population, recipes
from metricfit.train.data.samples import InMemory
from metricfit.train.engine.member_checks import ELEMENTWISE, PROPORTIONAL
from metricfit.train.engine.population_learner import Population

N, MEMBERS = 300, 10


def data(n=N, dtype=torch.float64, classes=2):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    score = x[:, 0] + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64)
    y = (score > 1.0).long() if classes == 2 else (score > 0.8).long() + (score > -0.5).long()
    return x.to(dtype), y


def networks(count=MEMBERS, *, dtype=torch.float64, outputs=1, layers=()):
    def one(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 8), *copy.deepcopy(list(layers)), nn.ReLU(), nn.Linear(8, outputs)).to(dtype)

    return [one(seed) for seed in range(count)]


def splits_of(count=MEMBERS, n=N, unequal=True):
    """For each member another shuffle, and with ``unequal`` another number of training samples."""
    generator = torch.Generator().manual_seed(1)
    shuffles = [torch.randperm(n, generator=generator) for _ in range(count)]
    cuts = [200 + (3 * member % 7 if unequal else 0) for member in range(count)]
    return [(numbers[:cut], numbers[cut:]) for numbers, cut in zip(shuffles, cuts, strict=True)]


RATES = [1e-2 * (1 + member % 3) for member in range(MEMBERS)]


def together_and_alone(objective, *, count=MEMBERS, whole=None, splits=None, models=networks, lr=None, **settings):
    """The same models trained as a population and by ``fit`` one after the other."""
    whole = whole or data()
    splits = splits or splits_of(count)
    lr = lr or RATES[:count]
    seeds = [11 * member + 3 for member in range(count)]
    settings = {"batch_size": 64, "progress": False} | settings
    together = fit_population(models(count), whole, objective(), splits=splits, seeds=seeds, lr=lr, **settings)
    alone = [
        fit(
            model,
            tuple(part[train] for part in whole),
            objective(),
            validation=tuple(part[held_out] for part in whole),
            seed=seed,
            lr=rate,
            **settings,
        )
        for model, (train, held_out), seed, rate in zip(models(count), splits, seeds, lr, strict=True)
    ]
    return together, alone


def near(value, other, tolerance):
    return value == pytest.approx(other, abs=tolerance, rel=0, nan_ok=True)


def assert_same(together, alone, tolerance=1e-10):
    assert len(together) == len(alone)
    for one, other in zip(together, alone, strict=True):
        # An objective's state holds sums over samples.
        for mine, twin, rtol in ((one.model, other.model, 0), (one.objective, other.objective, tolerance)):
            theirs = twin.state_dict()
            assert mine.state_dict().keys() == theirs.keys()
            for name, given in mine.state_dict().items():
                torch.testing.assert_close(given, theirs[name], rtol=rtol, atol=tolerance, msg=lambda t, n=name: n + t)
        assert len(one.history) == len(other.history)
        for row, twin in zip(one.history, other.history, strict=True):
            assert row.keys() == twin.keys()
            for name, value in row.items():
                same = value == twin[name] if isinstance(value, str) else near(value, twin[name], tolerance)
                assert same, (name, value, twin[name])
        assert near(one.best, other.best, tolerance)
        assert near(one.threshold, other.threshold, tolerance)


def epochs_of(results):
    return [len(one.history) for one in results]


BCE = losses.WeightedBCELoss
OBJECTIVES = {
    "bce": BCE,
    "metric": lambda: MetricLoss("f1", memory=RunningCounts(0.9)),
    "mix": lambda: losses.Mix((BCE(), 1.0), (MetricLoss("fbeta(beta=2)"), 0.5)),
    "lagrangian": lambda: AugmentedLagrangian(
        BCE(), ["recall >= 0.9", "fpr <= 0.2", RankingConstraint(size=N, normalize=True)], mu=0.5
    ),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_ten_members_equal_ten_runs_after_50_epochs_each_with_its_split_seed_rate_and_stopping_point(objective):
    together, alone = together_and_alone(objective, epochs=50, monitor="best f1", patience=6)
    assert_same(together, alone)
    lengths = epochs_of(together)
    assert len(set(lengths)) > 2, "members should stop at different epochs for this test to mean something"
    assert min(lengths) < 50


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_float32_members_stay_within_1e_5_for_20_steps(objective):
    def models(count):
        return networks(count, dtype=torch.float32)

    together, alone = together_and_alone(
        objective, whole=data(dtype=torch.float32), models=models, epochs=5, lr=[3e-3] * MEMBERS
    )
    assert together[0].history["step"][-1] == 20
    assert_same(together, alone, tolerance=1e-5)


def annealed():
    return MetricLoss("f1", step=steps.Annealed(steps.Linear(0.1), steps.Sigmoid(k=20)))


SETTINGS = {
    "two_stage": (lambda: recipes.two_stage("f1", epochs=6), {}),
    "a_stage_with_its_own_rate": (lambda: [Stage(BCE(), epochs=4), Stage(MetricLoss("f1"), lr=5e-3, epochs=4)], {}),
    "constrained": (lambda: recipes.constrained("precision", "recall >= 0.8", epochs=6), {}),
    "annealed": (annealed, {}),
    "balanced": (BCE, {"class_weight": "balanced"}),
    "class_weight": (BCE, {"class_weight": [1.0, 4.0]}),
    "stratified": (OBJECTIVES["mix"], {"stratified": True}),
    "oversample": (BCE, {"oversample": 0.4}),
    "clip": (OBJECTIVES["mix"], {"clip": 0.1}),
    "scheduler": (BCE, {"scheduler": lambda given: torch.optim.lr_scheduler.ExponentialLR(given, 0.8)}),
    "cosine": (BCE, {"scheduler": lambda given: torch.optim.lr_scheduler.CosineAnnealingLR(given, 10)}),
    "sgd": (BCE, {"optimizer": lambda given, lr: torch.optim.SGD(given, lr=lr, momentum=0.9, nesterov=True)}),
    "decay": (BCE, {"optimizer": lambda given, lr: torch.optim.AdamW(given, lr=lr, weight_decay=0.3, amsgrad=True)}),
    "rmsprop": (BCE, {"optimizer": torch.optim.RMSprop}),
    "torchs_bce": (nn.BCEWithLogitsLoss, {}),
    "a_mix_with_torchs_bce": (lambda: losses.Mix((nn.BCEWithLogitsLoss(), 1.0), (MetricLoss("f1"), 0.5)), {}),
    "a_function_constraint": (lambda: AugmentedLagrangian(BCE(), lambda z, y: z.abs().mean() - 0.5, mu=2.0), {}),
    "loss_watched": (BCE, {"monitor": "loss"}),
    "auroc_watched": (BCE, {"monitor": "auroc"}),
    "requirement_watched": (BCE, {"monitor": Monitor("precision", threshold="best", subject_to="recall >= 0.7")}),
    "no_prior": (BCE, {"start_at_prior": False}),
}


@pytest.mark.parametrize(("objective", "settings"), SETTINGS.values(), ids=SETTINGS)
def test_members_equal_runs_under_every_setting(objective, settings):
    settings = {"epochs": 10, "monitor": "f1", "patience": 3} | settings
    together, alone = together_and_alone(objective, count=4, **settings)
    assert_same(together, alone)


def test_sample_weights():
    x, y = data()
    weight = torch.rand(N, generator=torch.Generator().manual_seed(2)) + 0.2
    together, alone = together_and_alone(OBJECTIVES["lagrangian"], count=4, whole=(x, y, weight), epochs=8)
    assert_same(together, alone)
    plain, _ = together_and_alone(OBJECTIVES["lagrangian"], count=4, whole=(x, y), epochs=8)
    assert together[0].history["train_loss"] != plain[0].history["train_loss"]


@pytest.mark.parametrize("label", [-100, 255])
@pytest.mark.parametrize(
    "option",
    [{}, {"class_weight": "balanced"}, {"class_weight": {1: 5.0}}, {"stratified": True}, {"oversample": 0.4}],
    ids=str,
)
def test_ignored_labels_are_no_class(option, label):
    x, y = data()
    marked = torch.where(torch.arange(N) % 3 > 0, y, label)
    settings = {"whole": (x, marked), "epochs": 5, "monitor": "f1", **option}
    together, alone = together_and_alone(lambda: MetricLoss("f1", ignore_index=label), count=4, **settings)
    assert_same(together, alone)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_validation_set_for_all(class_weight):
    x, y = data()
    settings = {"epochs": 8, "batch_size": 64, "monitor": "best f1", "class_weight": class_weight, "progress": False}
    held_out = x[200:], y[200:]
    together = fit_population(networks(4), (x[:200], y[:200]), BCE(), validation=held_out, lr=0.02, **settings)
    alone = [
        fit(model, (x[:200], y[:200]), BCE(), validation=held_out, seed=seed, lr=0.02, **settings)
        for seed, model in enumerate(networks(4))
    ]
    assert_same(together, alone)


def test_without_validation_the_last_weights_are_kept():
    x, y = data()
    together = fit_population(networks(3), (x, y), BCE(), epochs=4, lr=0.02, progress=False)
    alone = [
        fit(model, (x, y), BCE(), epochs=4, lr=0.02, seed=seed, progress=False)
        for seed, model in enumerate(networks(3))
    ]
    assert_same(together, alone)
    assert all(math.isnan(one.best) for one in together)


@pytest.mark.parametrize("unequal", [False, True])
def test_several_classes(unequal):
    def models(count):
        return networks(count, outputs=3)

    def objective():
        return recipes.mix("f1", task="multiclass") + recipes.metric("recall", task="multiclass")

    settings = {"whole": data(classes=3), "splits": splits_of(4, unequal=unequal), "models": models}
    together, alone = together_and_alone(objective, count=4, epochs=6, monitor="f1", **settings)
    assert_same(together, alone)


def test_several_labels():
    x, y = data()
    whole = x, torch.stack([y, 1 - y, (x[:, 1] > 0).long()], 1)

    def models(count):
        return networks(count, outputs=3)

    together, alone = together_and_alone(BCE, count=4, whole=whole, models=models, epochs=6, monitor="f1")
    assert_same(together, alone)


def test_batch_normalisation_with_members_of_one_size():
    def models(count):
        return networks(count, layers=[nn.BatchNorm1d(8)])

    settings = {"splits": splits_of(4, unequal=False), "optimizer": torch.optim.SGD}  # Adam enlarges rounding errors
    together, alone = together_and_alone(BCE, count=4, models=models, epochs=6, monitor="f1", **settings)
    assert_same(together, alone)
    assert together[0].model[1].num_batches_tracked > 0


def test_batch_normalisation_would_see_what_fills_up_shorter_batches():
    with pytest.raises(
        ValueError, match=r"200 to 206 samples in step 0.* BatchNorm1d would see.*same number of samples"
    ):
        fit_population(networks(3, layers=[nn.BatchNorm1d(8)]), data(), BCE(), splits=splits_of(3))


@pytest.mark.parametrize("settings", [{"stratified": True, "batch_size": 2}, {"oversample": 0.4}], ids=str)
def test_members_of_one_size_with_other_positives_have_batches_of_other_lengths(settings):
    x, y = data()
    positives, negatives = (y == 1).nonzero().flatten(), (y == 0).nonzero().flatten()
    splits = [(torch.cat([positives[:few], negatives[: 100 - few]]), negatives[150:]) for few in (5, 30)]
    models = networks(2, layers=[nn.BatchNorm1d(8)])
    before = copy.deepcopy(models[0].state_dict())
    with pytest.raises(ValueError, match=r"batches differ in length.*of samples per class"):
        fit_population(models, (x, y), BCE(), splits=splits, epochs=1, progress=False, **settings)
    assert all(torch.equal(given, before[name]) for name, given in models[0].state_dict().items())
    fit_population(models, (x, y), BCE(), splits=splits[:1] * 2, epochs=1, progress=False, **settings)


def test_shorter_batches_are_filled_with_the_members_own_samples(monkeypatch):
    seen = {"train": [], "validation": []}
    take, hold = InMemory.take, Population._get_validation_batch

    def take_and_note(self, index):
        seen["train"].append(index)
        return take(self, index)

    def hold_and_note(self):
        found = hold(self)
        seen["validation"].append(found[0].index)
        return found

    monkeypatch.setattr(InMemory, "take", take_and_note)
    monkeypatch.setattr(Population, "_get_validation_batch", hold_and_note)
    splits = splits_of(3)
    fit_population(networks(3), data(), BCE(), splits=splits, epochs=1, batch_size=64, progress=False)
    for at, part in enumerate(seen):
        assert seen[part]
        for numbers in seen[part]:
            for row, split in zip(numbers, splits, strict=True):
                assert set(row.tolist()) <= set(split[at].tolist()), part


def test_frozen_weights_stay_and_the_others_learn():
    def models(count):
        made = networks(count)
        for model in made:
            model[0].requires_grad_(False)
        return made

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
        found = fit_population(twins, (x, y), BCE(), seeds=[5, 5], batch_size=N, epochs=1, progress=False)
        return [one.model[0].weight for one in found]

    first, second = trained()
    assert not torch.equal(first, second)
    again, _ = trained()
    assert torch.equal(first, again)


def test_the_objective_given_is_left_as_it_was():
    objective = OBJECTIVES["lagrangian"]()
    before = copy.deepcopy(objective.state_dict())
    fit_population(networks(2), data(), objective, epochs=2, lr=0.05, progress=False)
    assert all(torch.equal(given, before[name]) for name, given in objective.state_dict().items())


def test_torchs_random_numbers_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    models = networks(2)
    torch.manual_seed(3)
    fit_population(models, data(), BCE(), epochs=1, progress=False)
    assert torch.equal(torch.rand(3), expected)


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
    found = fit_population([Look(), Look()], (numbers, y), BCE(), splits=splits, epochs=2, progress=False)
    assert all(len(one.history) == 2 for one in found)
    (one,) = fit_population([Look()], (numbers, y), BCE(), epochs=2, progress=False)
    assert one.history.columns == ["stage", "epoch", "step", "train_loss"]


def test_arrays_go_to_the_type_of_the_members():
    x, y = data()
    (one,) = fit_population(networks(1), (x.numpy(), y.numpy()), BCE(), epochs=2, progress=False)
    (other,) = fit_population(networks(1), (x, y), BCE(), epochs=2, progress=False)
    assert_same([one], [other])
    fit_population(networks(1, dtype=torch.float32), (x, y), BCE(), epochs=1, progress=False)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(self.second(self.first(x).relu()))


class ByNorm(torch.optim.SGD):
    """As LARS: how far a weight moves depends on the norm of all."""


def frozen():
    (model,) = networks(1)
    model[0].requires_grad_(False)
    return model


WRONG = {
    "none": (lambda: {"models": []}, "at least one model"),
    "twice": (lambda: {"models": networks(1) * 2}, "same model occurs several times.*make a new model for each"),
    "rates": (lambda: {"lr": [0.1]}, "3 models, but lr has 1 entries"),
    "seeds": (lambda: {"seeds": [1, 2]}, "3 models, but seeds has 2 entries"),
    "splits": (lambda: {"splits": splits_of(2)}, "3 models, but splits has 2 entries"),
    "both": (lambda: {"splits": splits_of(3), "validation": data()}, "give either splits or validation"),
    "other_shapes": (lambda: {"models": [*networks(2), *networks(1, outputs=2)]}, "one architecture.*member 2 has 2"),
    "other_dropout": (
        lambda: {"models": [*networks(2, layers=[nn.Dropout(0.0)]), *networks(1, layers=[nn.Dropout(0.9)])]},
        r"member 2 has \(1\): Dropout\(p=0.9.* where member 0 has \(1\): Dropout\(p=0.0.*with fit",
    ),
    "other_activation": (
        lambda: {"models": [*networks(2, layers=[nn.ReLU()]), *networks(1, layers=[nn.Tanh()])]},
        r"member 2 has \(1\): Tanh\(\) where member 0 has \(1\): ReLU\(\)",
    ),
    "frozen_here": (lambda: {"models": [*networks(2), frozen()]}, r"member 2 has 0.weight of shape .*, frozen where"),
    "tied": (
        lambda: {"models": [Tied(), Tied(), Tied()]},
        "first.weight and second.weight are the same.*with fit",
    ),
    "negative_rate": (lambda: {"lr": [0.1, -0.1, 0.01]}, "lr must be finite and above 0, got -0.1 for member 1"),
    "no_rate": (lambda: {"lr": [0.0, 0.1, 0.01]}, "lr must be finite and above 0, got 0.0 for member 0"),
    "endless_rate": (lambda: {"lr": math.inf}, "lr must be finite and above 0, got inf"),
    "adafactor": (lambda: {"optimizer": torch.optim.Adafactor}, "Adafactor is not known to move .*with fit"),
    "lbfgs": (lambda: {"optimizer": torch.optim.LBFGS}, "LBFGS is not known to move every weight by its own"),
    "lars": (lambda: {"optimizer": ByNorm}, "ByNorm is not known to move every weight by its own gradient alone"),
    "rprop": (lambda: {"optimizer": torch.optim.Rprop, "lr": [0.1, 0.2, 0.1]}, "Rprop does not move in proportion"),
    "beyond": (lambda: {"splits": [([0, N], [1])] * 3}, f"splits.*member 0.*0 to {N - 1}"),
    "empty_part": (lambda: {"splits": [([0, 1], [])] * 3}, "member 0.*no validation samples"),
    "weights_of_one": (lambda: {"validation": (*data(), torch.ones(N))}, "validation must be like train"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_members_that_do_not_go_together_are_refused(given, message):
    settings = {"models": networks(3)} | given()
    with pytest.raises((ValueError, TypeError), match=message):
        fit_population(settings.pop("models"), data(), BCE(), epochs=1, progress=False, **settings)


def test_a_member_whose_validation_set_lacks_positives_is_named():
    x, y = data()
    negative = (y == 0).nonzero().flatten()
    splits = [*splits_of(2), (torch.arange(N), negative)]
    with pytest.raises(ValueError, match=r"validation \(of member 2\) set has no positives, which f1"):
        fit_population(networks(3), (x, y), BCE(), splits=splits, monitor="f1")


@pytest.mark.parametrize("kind", [np.array, torch.tensor], ids=["array", "tensor"])
def test_learning_rates_as_an_array(kind):
    rates = [0.01, 0.02, 0.04]
    found = fit_population(networks(3), data(), BCE(), epochs=2, lr=kind(rates, dtype=kind([0.5]).dtype))
    listed = [float(rate) for rate in kind(rates)]
    assert_same(found, fit_population(networks(3), data(), BCE(), epochs=2, lr=listed), tolerance=0)


@pytest.mark.parametrize("optimizer", ELEMENTWISE)
def test_every_optimiser_let_in_trains_members_as_it_would_alone(optimizer):
    rates = {} if optimizer in PROPORTIONAL else {"lr": [1e-2] * 3}
    together, alone = together_and_alone(BCE, count=3, epochs=3, optimizer=optimizer, **rates)
    assert_same(together, alone, tolerance=1e-8 if optimizer is torch.optim.NAdam else 1e-10)  # it has a float32 state


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


def test_a_dataset_is_refused():
    with pytest.raises(TypeError, match="data in memory"):
        fit_population(networks(2), torch.utils.data.TensorDataset(*data()), BCE())


def test_forward_passes_in_bfloat16_are_near_those_in_float32():
    def trained(precision):
        models = networks(3, dtype=torch.float32)
        given = {"splits": splits_of(3), "epochs": 3, "batch_size": 64, "device": "cpu", "progress": False}
        return fit_population(models, data(dtype=torch.float32), MetricLoss("f1"), precision=precision, **given)

    for exact, mixed in zip(trained(None), trained("bf16-mixed"), strict=True):
        assert next(mixed.model.parameters()).dtype == torch.float32
        assert mixed.history["train_loss"] != exact.history["train_loss"]
        assert mixed.history["train_loss"] == pytest.approx(exact.history["train_loss"], abs=0.01)


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="precision is None or 'bf16-mixed', got '16-mixed'"):
        fit_population(networks(2), data(), MetricLoss("f1"), precision="16-mixed", epochs=1, device="cpu")


def test_graphs_make_no_difference_on_the_cpu():
    given = {"splits": splits_of(3), "epochs": 2, "batch_size": 64, "device": "cpu", "progress": False}
    plain, graphs = (
        fit_population(networks(3), data(), MetricLoss("f1"), cuda_graphs=asked, **given) for asked in (False, True)
    )
    for one, other in zip(plain, graphs, strict=True):
        assert one.history["validation_loss"] == other.history["validation_loss"]


def test_a_run_begun_with_graphs_on_a_gpu_goes_on_on_a_cpu(tmp_path, monkeypatch):
    """Its optimiser's settings, which the checkpoint keeps, say that its steps are captured."""
    given = {"splits": splits_of(3), "batch_size": 64, "device": "cpu", "progress": False, "epochs": 3}

    class Stop(Callback):
        def epoch_ended(self, rows):
            if rows[0]["epoch"] == 1:
                raise KeyboardInterrupt

    whole = fit_population(networks(3), data(), MetricLoss("f1"), **given)
    state = Population.state

    def as_on_a_gpu(learner):
        found = state(learner)
        for group in found["optimizer"]["param_groups"]:
            group["capturable"] = True
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Population, "state", as_on_a_gpu)
        with pytest.raises(KeyboardInterrupt):
            fit_population(networks(3), data(), MetricLoss("f1"), checkpoint_dir=tmp_path, callbacks=[Stop()], **given)
    resumed = fit_population(networks(3), data(), MetricLoss("f1"), checkpoint_dir=tmp_path, resume=True, **given)
    for one, other in zip(whole, resumed, strict=True):
        assert one.history["validation_loss"] == other.history["validation_loss"]


def test_a_run_in_another_precision_is_another_run(tmp_path):
    given = {"splits": splits_of(2), "epochs": 1, "batch_size": 64, "device": "cpu", "progress": False}
    models = {"dtype": torch.float32}
    whole = data(dtype=torch.float32)
    fit_population(networks(2, **models), whole, MetricLoss("f1"), checkpoint_dir=tmp_path, **given)
    with pytest.raises(Exception, match="precision"):
        fit_population(
            networks(2, **models),
            whole,
            MetricLoss("f1"),
            checkpoint_dir=tmp_path,
            resume=True,
            precision="bf16-mixed",
            **given,
        )


def test_an_interrupt_before_the_first_stage_is_one():
    class Stop(Callback):
        def started(self, plan, step):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_population(
            networks(2), data(), MetricLoss("f1"), epochs=1, device="cpu", callbacks=[Stop()], progress=False
        )
