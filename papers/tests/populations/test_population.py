"""fit_population: each member learns what fit would teach it alone."""

import copy
import math

import numpy as np
import pytest
import torch
from small_populations import BCE, MEMBERS, N, assert_same, data, networks, splits_of, together_and_alone
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, losses, steps
from metricfit.train import Batches, Callback, Monitor, Stage, Steps, fit, recipes
from metricfit_papers.populations import fit_population


def epochs_of(results):
    return [len(one.history) for one in results]


OBJECTIVES = {
    "bce": BCE,
    "metric": lambda: MetricLoss("f1", memory=RunningCounts(0.9)),
    "mix": lambda: losses.Mix((BCE(), 1.0), (MetricLoss("fbeta(beta=2)"), 0.5)),
    "lagrangian": lambda: AugmentedLagrangian(
        BCE(), ["recall >= 0.9", "fpr <= 0.2", RankingConstraint(size=N, normalize=True)], mu=0.5
    ),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_ten_members_equal_ten_runs_until_each_stops_with_its_split_seed_rate_and_stopping_point(objective):
    together, alone = together_and_alone(objective, epochs=20, monitor="best f1", patience=3)
    assert_same(together, alone)
    lengths = epochs_of(together)
    assert len(set(lengths)) > 2, "members should stop at different epochs for this test to mean something"
    assert min(lengths) < 20


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
    "stratified": (OBJECTIVES["mix"], {"batch_size": Batches(64, stratified=True)}),
    "oversample": (BCE, {"batch_size": Batches(64, oversample=0.4)}),
    "clip": (OBJECTIVES["mix"], {"steps": Steps(clip=0.1)}),
    "accumulate": (OBJECTIVES["mix"], {"steps": Steps(accumulate=3)}),
    "scheduler": (BCE, {"scheduler": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)}),
    "cosine": (BCE, {"scheduler": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)}),
    "plateau": (
        BCE,
        {"scheduler": lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=0)},
    ),
    "sgd": (BCE, {"optimizer": lambda weights, lr: torch.optim.SGD(weights, lr=lr, momentum=0.9, nesterov=True)}),
    "decay": (
        BCE,
        {"optimizer": lambda weights, lr: torch.optim.AdamW(weights, lr=lr, weight_decay=0.3, amsgrad=True)},
    ),
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
    [
        {},
        {"class_weight": "balanced"},
        {"class_weight": {1: 5.0}},
        {"batch_size": Batches(64, stratified=True)},
        {"batch_size": Batches(64, oversample=0.4)},
    ],
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


def test_the_objective_given_is_left_as_it_was():
    objective = OBJECTIVES["lagrangian"]()
    before = copy.deepcopy(objective.state_dict())
    fit_population(networks(2), data(), objective, epochs=2, lr=0.05, progress=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in objective.state_dict().items())


def test_torchs_random_numbers_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    models = networks(2)
    torch.manual_seed(3)
    fit_population(models, data(), BCE(), epochs=1, progress=False)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("kind", [np.array, torch.tensor], ids=["array", "tensor"])
def test_learning_rates_as_an_array(kind):
    rates = [0.01, 0.02, 0.04]
    results = fit_population(networks(3), data(), BCE(), epochs=2, lr=kind(rates, dtype=kind([0.5]).dtype))
    listed = [float(rate) for rate in kind(rates)]
    assert_same(results, fit_population(networks(3), data(), BCE(), epochs=2, lr=listed), tolerance=0)


@pytest.mark.parametrize(
    "optimizer", [torch.optim.Adagrad, torch.optim.NAdam, torch.optim.Rprop, torch.optim.Adafactor]
)
def test_every_optimiser_trains_members_as_it_would_alone(optimizer):
    together, alone = together_and_alone(BCE, count=3, epochs=3, optimizer=optimizer)
    assert_same(together, alone, tolerance=1e-8 if optimizer is torch.optim.NAdam else 1e-10)  # it has a float32 state


def test_an_interrupt_before_the_first_stage_is_one():
    class Stop(Callback):
        def started(self, plan, step):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_population(
            networks(2), data(), MetricLoss("f1"), epochs=1, device="cpu", callbacks=[Stop()], progress=False
        )
