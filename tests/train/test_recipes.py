"""The recipes are the stages they say."""

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, losses, metrics
from metricfit.constraints import RankingConstraint
from metricfit.train import Monitor, Stage, evaluate, fit, recipes
from metricfit.train.stage import make_stages
from metricfit_papers.populations import fit_population

ALL = {
    "bce": lambda **settings: recipes.bce(**settings),
    "metric": lambda **settings: recipes.metric("f1", **settings),
    "mix": lambda **settings: recipes.mix("f1", **settings),
    "two_stage": lambda **settings: recipes.two_stage("f1", **settings),
    "constrained": lambda **settings: recipes.constrained("precision", "recall >= 0.8", **settings),
}


def test_every_recipe_is_named():
    assert set(recipes.NAMES) == set(ALL)


def test_the_objectives():
    (bce,) = recipes.bce()
    (metric,) = recipes.metric("fbeta(beta=2)")
    (mix,) = recipes.mix("f1", share=0.25)
    first, second = recipes.two_stage(metrics.mcc)
    assert isinstance(bce.objective, losses.WeightedBCELoss)
    assert isinstance(metric.objective, MetricLoss)
    assert metric.objective.metric == metrics.fbeta(beta=2)
    assert [type(one) for one in mix.objective.losses] == [recipes.CrossEntropy, MetricLoss]
    assert mix.objective.weights == (1.0, 0.25)
    assert isinstance(first.objective, losses.WeightedBCELoss)
    assert second.objective.metric == metrics.mcc
    assert (first.lr, second.lr) == (None, 3e-4)
    assert [item.name for item in (bce, metric, mix, first, second)] == ["bce", "metric", "mix", "bce", "metric"]


def test_constrained_is_cross_entropy_and_then_an_augmented_lagrangian():
    first, second = recipes.constrained("precision", ["recall >= 0.8", RankingConstraint(size=10)], mu=2.0)
    assert isinstance(first.objective, losses.WeightedBCELoss)
    assert isinstance(second.objective, AugmentedLagrangian)
    assert len(second.objective.constraints) == 2
    assert second.objective.mu == 2.0
    assert second.watched.name == "loss"
    (_, second) = recipes.constrained("precision", "recall >= 0.8", monitor="f1", objective=losses.MAELoss())
    assert second.watched.name == "f1"
    assert isinstance(second.objective.objective, losses.MAELoss)


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_settings_of_a_stage_go_to_all_stages(make):
    stages = make(epochs=7, patience=2)
    assert all((stage.epochs, stage.patience) == (7, 2) for stage in stages)


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
@pytest.mark.parametrize("task", [None, "multiclass"])
def test_every_recipe_learns(make, task):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=generator)
    y = (x[:, 0] > 0.5).long() + ((x[:, 0] > -0.5).long() if task else 0)
    torch.manual_seed(0)
    model = nn.Linear(4, 3 if task else 1)
    if make is ALL["constrained"] and task:
        stages = recipes.constrained("f1", metrics.recall[2] >= 0.8, task=task)
    else:
        stages = make(task=task)
    settings = {"epochs": 15, "lr": 0.2, "batch_size": 100, "monitor": "f1", "progress": False}
    result = fit(model, (x, y), stages, validation=(x, y), **settings)
    assert Monitor("f1").measure(result.model(x).detach(), y).value > 0.8
    assert list(dict.fromkeys(result.history["stage"])) == [stage.name for stage in stages]


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
@pytest.mark.parametrize("together", [False, True])
def test_several_classes_are_known_by_their_labels(make, together):
    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0.5).long() + (x[:, 0] > -0.5).long()
    results = []
    for task in (None, "multiclass"):
        torch.manual_seed(0)
        settings = {"validation": (x, y), "epochs": 3, "lr": 0.1, "batch_size": 30, "progress": False}
        if together:
            results += fit_population([nn.Linear(4, 3)], (x, y), make(task=task), seeds=[0], **settings)
        else:
            results.append(fit(nn.Linear(4, 3), (x, y), make(task=task), class_weight="balanced", **settings))
    left_open, named = results
    assert left_open.history["train_loss"] == pytest.approx(named.history["train_loss"], rel=1e-6)
    torch.testing.assert_close(left_open.model.weight, named.model.weight)


def test_images_of_several_classes_and_overlapping_masks():
    x = torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    settings = {"epochs": 1, "batch_size": 4, "progress": False}
    fit(nn.Conv2d(2, 3, 1), (x, torch.arange(128).reshape(8, 4, 4) % 3), recipes.mix("f1"), **settings)
    fit(nn.Conv2d(2, 2, 1), (x, (x > 0).long()), recipes.mix("f1", task="multilabel"), **settings)


def test_a_second_stage_starts_from_the_best_weights_of_the_first():
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    model = nn.Linear(2, 1).double()
    first = Stage(losses.WeightedBCELoss(), lr=5.0, epochs=6)  # too high: the last epoch is not the best
    settings = {"validation": (x, y), "batch_size": 100, "progress": False}
    result = fit(model, (x, y), [first, Stage(losses.WeightedBCELoss(), epochs=1, lr=1e-9)], **settings)
    of_first = result.history["validation_loss"][:6]
    assert min(of_first) < of_first[-1]
    assert result.history["train_loss"][6] == pytest.approx(min(of_first), abs=1e-12)
    assert result.history["validation_loss"][6] == pytest.approx(min(of_first), abs=1e-6)


def test_stages_with_the_same_name_are_distinguished():
    stages = make_stages(recipes.bce() + recipes.two_stage("f1") + recipes.bce(), epochs=1)
    assert [stage.name for stage in stages] == ["bce", "bce (2)", "metric", "bce (3)"]
    assert [stage.name for stage in make_stages([Stage(nn.BCEWithLogitsLoss())] * 2)] == ["stage 0", "stage 1"]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"objective": "f1"}, TypeError, "a stage's objective is a loss module, got 'f1'"),
        ({"epochs": 0}, ValueError, "epochs must be an integer of at least 1"),
        ({"patience": 0}, ValueError, "patience must be at least 1 epoch"),
        ({"lr": 0.0}, ValueError, "lr must be above 0"),
    ],
)
def test_a_stage_with_wrong_settings_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        Stage(**{"objective": nn.BCEWithLogitsLoss(), **settings})


@pytest.mark.parametrize("objective", ["f1", [], [nn.BCEWithLogitsLoss()], 5])
def test_an_objective_is_a_loss_a_stage_or_stages(objective):
    with pytest.raises(TypeError, match=r"a loss, a Stage or a list of Stages such as recipes.mix\('f1'\)|iterable"):
        make_stages(objective)


def spoiled(**settings):
    """A good first stage, then one whose every step does harm."""
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    stages = [
        Stage(losses.WeightedBCELoss(), lr=0.1, epochs=20),
        Stage(settings.pop("objective", losses.WeightedBCELoss()), lr=50.0, epochs=1, **settings),
    ]
    return fit(nn.Linear(3, 1), (x, y), stages, validation=(x, y), monitor="f1", progress=False, optimizer=ascent), x, y


def ascent(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr, maximize=lr > 1)


def test_a_later_stage_returns_no_weights_worse_than_those_it_starts_from():
    result, x, y = spoiled()
    last = result.history.rows[-1]
    first = max(row["value"] for row in result.history.rows if row["stage"] == "stage 0")
    assert last["value"] < first
    assert result.best == last["best"] == first
    assert evaluate(result.model, (x, y), "f1")["f1"] == first


def test_a_start_that_meets_the_requirements_counts():
    result, x, y = spoiled(objective=AugmentedLagrangian(losses.WeightedBCELoss(), "recall >= 0.6"))
    assert result.requirements[0].met
    assert result.best > result.history.rows[-1]["value"]
    assert result.best == evaluate(result.model, (x, y), "f1")["f1"]


def test_under_constraints_that_only_training_samples_have_the_start_does_not_count():
    result, x, y = spoiled(objective=AugmentedLagrangian(losses.WeightedBCELoss(), RankingConstraint(size=60)))
    assert result.best == result.history.rows[-1]["value"] == evaluate(result.model, (x, y), "f1")["f1"]


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_several_classes_take_weights(make):
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    settings = {"validation": (x, torch.arange(60) % 3), "epochs": 1, "progress": False}
    fit(nn.Linear(3, 3), (x, torch.arange(60) % 3), make(task="multiclass"), class_weight=[1.0, 2.0, 3.0], **settings)


def test_constrained_for_several_labels():
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    y = (x > 0).long()
    stages = recipes.constrained("f1", "recall >= 0.8", task="multilabel")
    result = fit(nn.Linear(3, 3), (x, y), stages, validation=(x, y), epochs=2, progress=False)
    assert result.history.rows[-1]["monitor"] == "loss"
    assert [item.requirement for item in result.requirements] == ["recall >= 0.8"]
