"""Training under requirements: which epoch is kept, and what the result says about the requirements."""

import warnings

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, Counts, MetricLoss, metrics, steps
from metricfit import train as training
from metricfit.constraints import RequirementConstraint
from metricfit.losses import WeightedBCELoss
from metricfit.train import Monitor, fit, recipes
from metricfit_papers.populations import fit_population

SETTINGS = {"epochs": 12, "batch_size": 128, "lr": 0.02, "progress": False}


def data(seed=0, n=600):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    noise = torch.randn(n, generator=generator)
    return x, (x[:, 0] + 0.5 * x[:, 1] + 1.2 * noise > 1.8).long()


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


def rates(model, rows, threshold=0.5):
    with torch.no_grad():
        counts = Counts.hard(model(rows[0]).squeeze(1), rows[1], threshold=threshold)
    return {"recall": metrics.recall(counts).item(), "precision": metrics.precision(counts).item()}


def test_an_augmented_lagrangian_keeps_the_best_objective_among_epochs_that_meet_the_requirement():
    held_out = data(1)
    objective = AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.9", mu=1.0)
    result = fit(network(), data(), objective, validation=held_out, **{**SETTINGS, "epochs": 30})
    assert float(result.objective.mu) < 100
    assert rates(result.model, held_out)["recall"] >= 0.9
    with torch.no_grad():
        alone = WeightedBCELoss()(result.model(held_out[0]), held_out[1])
    assert result.best == pytest.approx(float(alone), rel=1e-5), "the objective alone, without the constraint's term"
    feasible = [row["value"] for row in result.history if row["feasible"]]
    assert 0 < len(feasible) < 30
    assert result.best == min(feasible)


def test_without_a_feasible_epoch_the_smallest_violation_is_kept():
    held_out = data(1)
    objective = AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.99", mu=0.01, rho=1.0)
    with pytest.warns(UserWarning, match=r"recall >= 0.99 does not hold: recall is 0\.\d+ on the validation"):
        result = fit(network(), data(), objective, validation=held_out, **SETTINGS)
    assert not any(result.history["feasible"])
    smallest = min(result.history["violation"])
    assert 0.99 - rates(result.model, held_out)["recall"] == pytest.approx(smallest)


def test_constrained_meets_its_requirement_or_says_that_it_does_not():
    train = data()
    stages = recipes.constrained("precision", "recall >= 0.9", mu=1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(network(), train, stages, validation=train, **{**SETTINGS, "epochs": 25})
    (outcome,) = result.requirements
    assert (outcome.requirement, outcome.bound, outcome.rows, outcome.threshold) == (
        "recall >= 0.9",
        0.9,
        "validation",
        0.5,
    )
    assert outcome.value == pytest.approx(rates(result.model, train)["recall"])
    assert outcome.met is (outcome.value >= 0.9)
    assert outcome.met, "training for it meets it on its own training rows"
    assert not [warning for warning in caught if issubclass(warning.category, UserWarning)]


def test_without_validation_requirements_are_measured_on_the_training_rows():
    train = data()
    objective = AugmentedLagrangian(MetricLoss("precision"), RequirementConstraint("recall >= 0.999", threshold=0.7))
    with pytest.warns(training.UnmetRequirementWarning, match="on the train rows at threshold 0.7"):
        result = fit(network(), train, objective, class_weight=[5.0, 1.0], **{**SETTINGS, "epochs": 2})
    (outcome,) = result.requirements
    assert (outcome.rows, outcome.threshold, outcome.met) == ("train", 0.7, False)
    assert not result.model.training
    assert outcome.value == pytest.approx(rates(result.model, train, 0.7)["recall"])


def test_a_monitors_requirements_are_reported_at_its_threshold_and_once():
    held_out = data(1)
    monitor = Monitor("precision", threshold="best", subject_to="recall >= 0.9")
    objective = AugmentedLagrangian(WeightedBCELoss(), ["recall >= 0.9", "fpr <= 0.99"])
    result = fit(network(), data(), objective, validation=held_out, monitor=monitor, **SETTINGS)
    first, second = result.requirements
    assert (first.requirement, first.threshold, first.met) == ("recall >= 0.9", result.threshold, True)
    assert first.value == rates(result.model, held_out, result.threshold)["recall"]
    assert (second.requirement, second.threshold) == ("fpr <= 0.99", 0.5)


def test_without_requirements_there_is_nothing_to_say():
    result = fit(network(), data(), WeightedBCELoss(), validation=data(1), **{**SETTINGS, "epochs": 1})
    assert result.requirements == ()
    assert "feasible" not in result.history.columns


def test_several_classes_are_judged_by_the_worst():
    x, _ = data()
    y = torch.arange(600) % 3
    objective = AugmentedLagrangian(MetricLoss("f1"), "recall >= 0.99")
    result = fit(nn.Linear(6, 3), (x, y), objective, **{**SETTINGS, "epochs": 1})
    (outcome,) = result.requirements
    with torch.no_grad():
        expected = metrics.recall(Counts.hard(result.model(x), y))
    assert outcome.value == float(expected.min())
    assert outcome.threshold != outcome.threshold  # NaN: the largest logit decides


def test_members_of_a_population_are_what_they_are_alone():
    def objective():
        return AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.9", mu=0.5)

    settings = {**SETTINGS, "validation": data(1), "epochs": 8, "start_at_prior": False}
    several = fit_population([network(0), network(1)], data(), objective(), seeds=[3, 4], **settings)
    for seed, member in enumerate(several):
        alone = fit(network(seed), data(), objective(), seed=3 + seed, **settings)
        assert member.history["violation"] == pytest.approx(alone.history["violation"], abs=1e-6)
        assert member.history["validation_loss"] == pytest.approx(alone.history["validation_loss"], abs=1e-4)
        assert [item.met for item in member.requirements] == [item.met for item in alone.requirements]
        assert member.requirements[0].value == pytest.approx(alone.requirements[0].value, abs=1e-6)


def test_one_warning_names_the_members_that_break_a_requirement():
    objective = AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.999", mu=0.01, rho=1.0)
    with pytest.warns(UserWarning, match=r"member 0: recall.*; member 1: recall"):
        fit_population([network(0), network(1)], data(), objective, **{**SETTINGS, "epochs": 1})


def test_a_finished_run_still_says_what_held(tmp_path):
    settings = {**SETTINGS, "validation": data(1), "epochs": 2, "checkpoint_dir": tmp_path / "run", "resume": True}
    objective = AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.999", mu=0.01, rho=1.0)
    with pytest.warns(UserWarning, match="does not hold"):
        first = fit(network(), data(), objective, **settings)
    with pytest.warns(UserWarning, match="does not hold"):
        again = fit(network(), data(), objective, **settings)
    assert again.requirements == first.requirements
    assert again.history == first.history


@pytest.mark.parametrize("population", [False, True])
def test_epochs_of_an_annealed_loss_are_compared_at_the_steps_end(population):
    """The loss by the steep step of the start is far below that by the flat one of the end, for any weights."""

    def ranker():
        model = nn.Linear(6, 1)
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[1.0, 0.5, 0.0, 0.0, 0.0, 0.0]]))
            model.bias.fill_(-1.0)
        return model

    held_out = data(1)
    objective = MetricLoss("f1", step=steps.Annealed(steps.Sigmoid(k=30), steps.Identity()))
    settings = {**SETTINGS, "validation": held_out, "epochs": 4, "start_at_prior": False}
    if population:
        result = fit_population([ranker(), ranker()], data(), objective, **settings)[0]
    else:
        result = fit(ranker(), data(), objective, **settings)
    end = MetricLoss("f1", step=steps.Identity())
    with torch.no_grad():
        expected = float(end(result.model(held_out[0]).squeeze(1), held_out[1]))
    assert result.best == pytest.approx(expected, abs=1e-5)
    assert result.best == min(result.history["validation_loss"])
    assert float(result.objective.step.a) == 1.0


@pytest.mark.parametrize("soft", [False, True], ids=["numbers", "shares"])
def test_the_warning_recommends_no_threshold_for_exclusive_classes(soft):
    x, _ = data()
    y = torch.arange(600) % 3
    constraint = RequirementConstraint("recall >= 0.999", task="multiclass")
    objective = AugmentedLagrangian(MetricLoss("f1", task="multiclass"), constraint)
    target = nn.functional.one_hot(y, 3).float() if soft else y
    with pytest.warns(training.UnmetRequirementWarning, match=r"Train longer.*decide\.best_decision") as caught:
        result = fit(nn.Linear(6, 3), (x, target), objective, **{**SETTINGS, "epochs": 1})
    assert not any("best_threshold" in str(warning.message) for warning in caught)
    assert result.requirements[0].threshold != result.requirements[0].threshold
