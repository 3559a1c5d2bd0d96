"""Boosted trees as arrays, against LightGBM's own predictions."""

import lightgbm
import numpy as np
import pytest

from metricfit.tabular.families.boosting import BoostedTrees, round_down
from metricfit.tabular.families.family import Features


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
    return BoostedTrees.from_lightgbm(booster.model_to_string(num_iteration=-1), start, last)


@pytest.mark.parametrize("leaves", [2, 7, 17, 40])
def test_the_logits_are_those_of_lightgbm(rows, held_out, classes, leaves):
    booster = train(rows, leaves)
    start = np.linspace(-1.0, 1.0, rows.outputs)
    model = read(booster, start)
    expected = booster.predict(held_out.x, raw_score=True).reshape(len(held_out), -1) + start
    np.testing.assert_allclose(model.logits(held_out.features), expected, rtol=1e-12, atol=1e-12)


def test_rows_at_the_thresholds_go_left_as_in_lightgbm(rows):
    booster = train(rows, 7)
    model = read(booster, np.zeros(rows.outputs))
    used = np.abs(model.threshold) > 1e-30  # LightGBM takes smaller numbers for 0
    assert used.sum() > 20
    x = np.zeros((int(used.sum()), rows.x.shape[1]), dtype=np.float32)
    x[np.arange(len(x)), model.feature[used]] = model.threshold[used]
    above = np.where(x != 0, np.nextafter(x, np.float32(np.inf)), x)
    for edge in (x, above):
        expected = booster.predict(edge, raw_score=True).reshape(len(x), -1)
        np.testing.assert_allclose(model.logits(Features(edge)), expected, rtol=1e-12, atol=1e-12)


def test_trees_without_a_split_are_added_too(rows, held_out):
    booster = train(rows, 7, min_gain_to_split=1e9, boost_from_average=True)
    model = read(booster, np.zeros(rows.outputs))
    expected = booster.predict(held_out.x, raw_score=True).reshape(len(held_out), -1)
    np.testing.assert_allclose(model.logits(held_out.features), expected, rtol=1e-12, atol=1e-12)


def test_the_first_rounds_are_those_of_lightgbm(rows, held_out):
    booster = train(rows, 7)
    booster.best_iteration = 3  # the later trees are there all the same
    model = read(booster, np.zeros(rows.outputs), 3)
    assert len(model.leaves) == 4 * rows.outputs
    expected = booster.predict(held_out.x, raw_score=True, num_iteration=4).reshape(len(held_out), -1)
    np.testing.assert_allclose(model.logits(held_out.features), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("leaves", [5, 20, 40])
def test_the_mean_of_models_has_the_mean_of_their_logits(rows, held_out, leaves):
    models = [read(train(rows, leaves, rounds=rounds), np.full(rows.outputs, float(rounds))) for rounds in (3, 8, 5)]
    expected = np.mean([model.logits(held_out.features) for model in models], axis=0)
    np.testing.assert_allclose(BoostedTrees.mean(models).logits(held_out.features), expected, rtol=1e-12, atol=1e-12)


def test_lightgbm_reads_the_text(rows, held_out):
    booster = train(rows, 7)
    again = lightgbm.Booster(model_str=read(booster, np.zeros(rows.outputs)).lightgbm_text())
    np.testing.assert_array_equal(
        again.predict(held_out.x, raw_score=True), booster.predict(held_out.x, raw_score=True)
    )


def test_thresholds_in_single_precision_compare_as_before():
    thresholds = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.arange(-8, 12).repeat(100)
    rounded = round_down(thresholds)
    assert (rounded <= thresholds).all()
    assert (np.nextafter(rounded, np.float32(np.inf)) > thresholds).all()
    assert np.isfinite(round_down(np.array([1e300]))).all()
