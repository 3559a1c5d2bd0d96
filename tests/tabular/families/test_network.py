"""Networks as a family: the same logits in any batch, trained on all folds at once, within the deadline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from metricfit import metrics
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.losses import MetricLoss
from metricfit.metrics import get_metric
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.families.family import Deadline, Features, OutOfTime, TrainingRows
from metricfit.tabular.families.network import RECIPES, Network
from metricfit.tabular.families.network_models import (
    Architecture,
    NetworkFamily,
    NetworkModel,
    bin_edges,
    choose_schedule,
    rise_and_fall,
    training_stages,
)
from metricfit.train import recipes

Splits = Sequence[tuple[np.ndarray, np.ndarray]]


def table(rows: int = 160, classes: int = 2, seed: int = 0) -> TrainingRows:
    """Rows whose class is where their first column lies among its quantiles."""
    x = np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)
    y = np.searchsorted(np.quantile(x[:, 0], np.linspace(0, 1, classes + 1)[1:-1]), x[:, 0])
    return TrainingRows(Features(x), y.astype(np.int64), None, classes)


def split(rows: TrainingRows, folds: int = 2) -> Splits:
    fold = np.arange(len(rows)) % folds
    return [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(folds)]


def family(**settings: Any) -> NetworkFamily:
    return NetworkFamily(Network(**{"epochs": 2} | settings), get_metric("f1"), device="cpu")


def fit(network: NetworkFamily, rows: TrainingRows, folds: int = 2, seed: int = 0) -> list[Any]:
    return network.fit_folds(rows, split(rows, folds), seed=seed, deadline=Deadline())


@pytest.mark.parametrize("kind", ["mlp", "embedded", "tabm"])
@pytest.mark.parametrize("classes", [2, 3])
def test_logits_have_one_column_for_two_classes_and_one_per_class_for_several(kind: str, classes: int) -> None:
    rows = table(classes=classes)
    models = fit(family(kind=kind), rows)
    assert len(models) == 2
    logits = NetworkFamily(Network(), get_metric("f1")).combine(models).logits(rows.features)
    assert logits.shape == (160, 1 if classes == 2 else 3)
    assert logits.dtype == np.float64
    assert np.isfinite(logits).all()


def test_a_network_learns_what_rows_that_were_held_out_can_confirm() -> None:
    rows = table(200)
    network = family(kind="mlp", epochs=10, batch_size=16)
    train, held_out = split(rows)[0]
    model = network.fit(rows.take(train), rows.take(held_out), seed=0, deadline=Deadline())
    logits = model.logits(rows.features.take(held_out))[:, 0]
    assert roc_auc_score(rows.y[held_out], logits) > 0.98
    assert np.mean((logits > 0) == rows.y[held_out]) > 0.9


def test_the_mean_of_the_members_is_the_same_for_a_row_alone_and_among_others() -> None:
    rows = table(1100)  # more than one batch of a prediction
    network = family(kind="embedded", epochs=1, batch_size=1024)
    models = fit(network, rows)
    combined = network.combine(models)
    together = combined.logits(rows.features)
    alone = np.concatenate([combined.logits(rows.features.take(np.array([row]))) for row in (0, 5, 1099)])
    np.testing.assert_allclose(alone, together[[0, 5, 1099]], rtol=1e-11, atol=1e-12)
    mean = np.mean([model.logits(rows.features) for model in models], axis=0)
    np.testing.assert_allclose(together, mean, rtol=1e-11, atol=1e-12)


def test_the_same_seed_gives_the_same_logits_and_another_seed_others() -> None:
    rows = table()
    first, again, other = (fit(family(), rows, seed=seed)[1].logits(rows.features) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_a_fold_alone_is_fitted_on_its_own_training_rows_and_stopped_on_the_held_out_ones() -> None:
    rows = table()
    network = family(kind="mlp", epochs=3)
    train, held_out = split(rows)[0]
    model = network.fit(rows.take(train), rows.take(held_out), seed=0, deadline=Deadline())
    assert isinstance(model, NetworkModel)
    order = np.concatenate([train, held_out])
    expected = network.fit_folds(rows.take(order), [(np.arange(80), np.arange(80, 160))], seed=0, deadline=Deadline())
    np.testing.assert_array_equal(model.logits(rows.features), expected[0].logits(rows.features))


def test_the_labels_of_rows_of_weight_0_change_nothing() -> None:
    rows = table(120)
    reordered = rows.y.copy()
    reordered[:40] = np.roll(rows.y[:40], 1)  # as many positives as before, which the first bias is set by
    weight = np.concatenate([np.zeros(40), np.ones(80)])
    network, splits = family(kind="mlp", epochs=3, batch_size=200), [(np.arange(100), np.arange(100, 120))]

    def logits(y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        weighted = TrainingRows(rows.features, y, weight, 2)
        (model,) = network.fit_folds(weighted, splits, seed=0, deadline=Deadline())
        return model.logits(rows.features)

    np.testing.assert_allclose(logits(rows.y, weight), logits(reordered, weight), atol=1e-4)
    assert np.abs(logits(rows.y, None) - logits(reordered, None)).max() > 0.01


def test_the_deadline_ends_training_between_two_steps() -> None:
    rows, deadline = table(), Deadline()

    def network(inputs: int, outputs: int) -> nn.Module:
        deadline.cancelled.set()  # once the first network is made, that is before the first step
        return nn.Linear(inputs, outputs)

    with pytest.raises(OutOfTime):
        family(kind=network, epochs=10_000).fit_folds(rows, split(rows), seed=0, deadline=deadline)


def test_nothing_is_trained_after_the_deadline() -> None:
    rows = table()
    with pytest.raises(OutOfTime):
        family().fit_folds(rows, split(rows), seed=0, deadline=Deadline.after(-1.0))


def test_small_batches_are_trained_by_one_thread_and_the_number_of_threads_is_restored() -> None:
    threads = torch.get_num_threads()
    seen: list[int] = []

    def network(inputs: int, outputs: int) -> nn.Module:
        seen.append(torch.get_num_threads())
        return nn.Linear(inputs, outputs)

    torch.set_num_threads(2)
    try:
        fit(family(kind=network, epochs=1), table(40))
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
        seen.clear()
        fit(family(kind=network, epochs=1, batch_size=1024), table(40))
        assert set(seen) == {2}
    finally:
        torch.set_num_threads(threads)


def test_the_history_has_a_row_per_member_and_epoch() -> None:
    network = family(epochs=3)
    models = fit(network, table(), folds=4)
    history = network.combine(models).history
    assert [(row["member"], row["epoch"]) for row in history] == [(m, e) for m in range(4) for e in range(3)]
    assert {"train_loss", "validation_loss", "step"} <= set(history[0])
    assert [row["member"] for row in models[2].history] == [0, 0, 0]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_trains(recipe: Any) -> None:
    rows = table(80)
    requirements = [Requirement(get_metric("recall"), ">=", 0.9)] if recipe == "constrained" else []
    network = NetworkFamily(Network(recipe=recipe, epochs=1), get_metric("f1"), requirements=requirements, device="cpu")
    (model,) = fit(network, rows)[:1]
    assert np.isfinite(model.logits(rows.features)).all()
    assert len(model.history) == (2 if recipe in ("two_stage", "constrained") else 1)


def test_the_baseline_is_for_two_classes() -> None:
    with pytest.raises(InvalidValueError, match="two classes"):
        fit(family(recipe="focal"), table(classes=3))


def test_constrained_training_needs_requirements() -> None:
    with pytest.raises(InvalidValueError, match="subject_to"):
        NetworkFamily(Network(recipe="constrained"), get_metric("f1"))


def test_a_user_s_own_network_is_trained() -> None:
    rows = table()
    sizes = []

    def network(inputs: int, outputs: int) -> nn.Module:
        sizes.append((inputs, outputs))
        return nn.Linear(inputs, outputs)

    model = fit(family(kind=network, epochs=20, lr=0.05, batch_size=20), rows)[0]
    assert set(sizes) == {(3, 1)}
    weights = model.members[0].weight.detach().numpy()[0]
    assert weights[0] > 3 * np.abs(weights[1:]).max()  # only the first column matters


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"kind": "deep"}, InvalidValueError, "kind is one of 'auto', 'tabm', 'embedded', 'mlp'"),
        ({"recipe": "hinge"}, InvalidValueError, "recipe is one of 'bce'"),
        ({"kind": "tabm", "recipe": "constrained"}, InvalidValueError, "use kind='embedded'"),
        ({"epochs": 0}, InvalidValueError, "epochs is a whole number"),
        ({"epochs": 1.5}, InvalidTypeError, "epochs is a whole number"),
        ({"patience": 0}, InvalidValueError, "patience is a whole number"),
        ({"batch_size": True}, InvalidTypeError, "batch_size is a whole number"),
        ({"lr": 0.0}, InvalidValueError, "lr is the learning rate"),
        ({"lr": "fast"}, InvalidTypeError, "lr is the learning rate"),
    ],
)
def test_settings_are_checked_when_they_are_made(settings: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        Network(**settings)


def test_settings_are_equal_by_value_and_show_what_differs_from_the_default() -> None:
    assert Network(recipe="mix") == Network("auto", "mix") != Network()
    assert repr(Network("mlp", lr=0.01)) == "Network(kind='mlp', lr=0.01)"
    assert repr(Network()) == "Network()"


def test_larger_tables_have_larger_batches_and_more_steps() -> None:
    schedules = [choose_schedule(rows, Network()) for rows in (200, 2_000, 20_000, 200_000)]
    batches = [schedule.batch_size for schedule in schedules]
    steps = [
        schedule.epochs * -(-rows // schedule.batch_size)
        for schedule, rows in zip(schedules, (200, 2_000, 20_000, 200_000), strict=True)
    ]
    assert batches == sorted(batches)
    assert batches[0] < batches[-1]
    assert steps[0] < steps[-1]
    given = choose_schedule(2_000, Network(epochs=7, batch_size=50, lr=0.1, patience=3))
    assert (given.epochs, given.batch_size, given.lr, given.patience) == (7, 50, 0.1, 3)


def test_the_learning_rate_rises_and_falls() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule, rates = rise_and_fall(optimizer, 50), []
    for _ in range(50):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    top = int(np.argmax(rates))
    assert rates[top] == pytest.approx(2.0)
    assert 0 < top < 10
    assert (np.diff(rates[: top + 1]) > 0).all()
    assert (np.diff(rates[top:]) < 0).all()
    assert 0 < rates[-1] < 0.01


def test_columns_that_are_constant_in_the_rows_have_one_bin() -> None:
    x = torch.stack([torch.arange(40.0), torch.full((40,), 3.0)], dim=1)
    edges = bin_edges(x)
    assert edges[1, :3].tolist() == [3.0, 4.0, torch.inf]
    torch.testing.assert_close(edges[0, [0, -1]], torch.tensor([0.0, 39.0]))
    assert Architecture("embedded", 2, 1, width=4).build(edges)(x).shape == (40, 1)


def test_the_recipes_are_those_of_training_and_a_baseline() -> None:
    assert (*recipes.NAMES, "focal") == RECIPES


def test_there_is_no_network_of_an_unknown_kind() -> None:
    with pytest.raises(InvalidValueError, match="kind"):
        Architecture("resnet", 5, 3)


def stages(name: Any, **settings: Any) -> list[Any]:
    return training_stages(name, metrics.f1, **{"classes": 2, "average": "macro", "lr": 1e-3, **settings})


def test_two_stage_at_the_default_rate_is_the_recipe_of_train() -> None:
    expected = recipes.two_stage("f1", task="binary")
    assert [(stage.name, stage.lr) for stage in stages("two_stage")] == [(stage.name, stage.lr) for stage in expected]
    assert stages("two_stage", lr=0.01)[1].lr == pytest.approx(recipes.SECOND_STAGE_LR * 0.01)


def test_the_average_reaches_the_metrics_loss() -> None:
    (stage,) = stages("metric", classes=3, average="micro")
    assert isinstance(stage.objective, MetricLoss)
    assert (stage.objective.average, stage.objective.task) == ("micro", "multiclass")


def test_constrained_training_begins_with_cross_entropy() -> None:
    made = stages("constrained", requirements=(metrics.recall >= 0.9,))
    assert [stage.name for stage in made] == ["bce", "constrained"]
