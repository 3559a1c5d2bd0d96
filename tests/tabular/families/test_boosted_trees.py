"""Boosted trees against LightGBM's own predictions."""

import lightgbm
import numpy as np
import pytest
from stored_state import restore, state_of

from metricfit.tabular.families.boosting import BoostedTrees, Boosting


def train(rows, leaves, rounds=15, **settings):
    several = rows.classes > 2
    parameters = {
        "objective": "multiclass" if several else "binary",
        "num_class": rows.outputs,
        "num_leaves": leaves,
        "min_child_samples": 3,
        "boost_from_average": False,
        "verbose": -1,
        "num_threads": 1,
        **settings,
    }
    return lightgbm.train(parameters, lightgbm.Dataset(rows.x, rows.y), num_boost_round=rounds)


def read(booster, start, last=10_000):
    return BoostedTrees.first_rounds(booster, start, last)


@pytest.mark.parametrize("leaves", [2, 7, 17, 40])
def test_the_logits_are_those_of_lightgbm(rows, held_out, classes, leaves):
    booster = train(rows, leaves)
    start = np.linspace(-1.0, 1.0, rows.outputs)
    model = read(booster, start)
    expected = booster.predict(held_out.x, raw_score=True).reshape(len(held_out), -1) + start
    np.testing.assert_allclose(model.logits(held_out.features), expected, rtol=1e-12, atol=1e-12)


def test_trees_without_a_split_are_added_too(rows, held_out):
    booster = train(rows, 7, min_gain_to_split=1e9, boost_from_average=True)
    model = read(booster, np.zeros(rows.outputs))
    expected = booster.predict(held_out.x, raw_score=True).reshape(len(held_out), -1)
    np.testing.assert_allclose(model.logits(held_out.features), expected, rtol=1e-12, atol=1e-12)


def test_the_first_rounds_are_those_of_lightgbm(rows, held_out):
    booster = train(rows, 7)
    booster.best_iteration = 3  # the later trees are there all the same
    model = read(booster, np.zeros(rows.outputs), 3)
    again = restore(state_of(model), rows.x.shape[1], rows.classes)
    assert again.boosters[0].num_trees() == 4 * rows.outputs
    expected = booster.predict(held_out.x, raw_score=True, num_iteration=4).reshape(len(held_out), -1)
    np.testing.assert_allclose(model.logits(held_out.features), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("leaves", [5, 20, 40])
def test_the_mean_of_models_has_the_mean_of_their_logits(rows, held_out, leaves):
    models = [read(train(rows, leaves, rounds=rounds), np.full(rows.outputs, float(rounds))) for rounds in (3, 8, 5)]
    expected = np.mean([model.logits(held_out.features) for model in models], axis=0)
    combined = Boosting().combine(models)
    np.testing.assert_allclose(combined.logits(held_out.features), expected, rtol=1e-12, atol=1e-12)
    for fold, model in enumerate(models):
        np.testing.assert_array_equal(combined.of_fold(fold).logits(held_out.features), model.logits(held_out.features))


def test_stored_trees_give_the_same_predictions_bit_by_bit(rows, held_out):
    booster = train(rows, 7)
    model = read(booster, np.zeros(rows.outputs))
    again = restore(state_of(model), rows.x.shape[1], rows.classes)
    expected = booster.predict(held_out.x, raw_score=True).reshape(len(held_out), -1)
    np.testing.assert_array_equal(again.logits(held_out.features), expected)
    np.testing.assert_array_equal(state_of(again).arrays["text"], state_of(model).arrays["text"])
