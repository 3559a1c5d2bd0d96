"""Boosted trees as a family: where they stop, what the metric changes, weights, deadlines."""

import pickle

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss

from metricfit.boosting import prior_logits
from metricfit.metrics.metric import get_metric
from metricfit.tabular.families.arithmetic import cross_entropy
from metricfit.tabular.families.boosting import SMALL, Boosting, Trees
from metricfit.tabular.families.family import Deadline, Features, OutOfTime, TrainingRows, choose_candidates

NO_LIMIT = Deadline()


def best(boosting, train, held_out, seed=0, deadline=NO_LIMIT):
    return choose_candidates([boosting.fit(train, held_out, seed=seed, deadline=deadline)])[0]


def loss_of(logits, rows):
    return cross_entropy(logits, rows.y, rows.weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_cross_entropy_is_that_of_scikit_learn(make_rows, classes, weighted):
    rows = make_rows(classes, weighted=weighted)
    scores = np.random.default_rng(0).normal(size=(len(rows), rows.outputs)) * 5
    logits = np.concatenate([np.zeros_like(scores), scores], axis=1) if classes == 2 else scores
    expected = log_loss(rows.y, softmax(logits, axis=1), sample_weight=rows.weight, normalize=False)
    assert loss_of(scores, rows) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [None, get_metric("f1")], ids=["boosting", "boosting_metric"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_losses_of_candidates_are_those_of_their_logits(make_rows, classes, weighted, metric):
    rows, held_out = make_rows(classes), make_rows(classes, n=150, seed=1, weighted=weighted)
    fitted = Boosting(trees=SMALL, metric=metric).fit(rows, held_out, seed=0, deadline=NO_LIMIT)
    for at in (0, 5, len(fitted.losses) - 1):
        logits = fitted.select(at).logits(held_out.features)
        assert fitted.losses[at] == pytest.approx(loss_of(logits, held_out), rel=1e-5)


@pytest.mark.parametrize("metric", [None, "f1", "mcc"])
def test_it_is_much_better_than_the_class_shares(rows, held_out, metric):
    family = Boosting(trees=SMALL, metric=None if metric is None else get_metric(metric))
    model = best(family, rows, held_out)
    shares = np.tile(prior_logits(rows.y, classes=rows.classes), (len(held_out), 1))
    assert loss_of(model.logits(held_out.features), held_out) < 0.8 * loss_of(shares, held_out)


@pytest.mark.parametrize("metric", [None, get_metric("f1")], ids=["boosting", "boosting_metric"])
def test_the_trees_start_at_the_shares_and_stop_where_the_held_out_fold_is_best(rows, held_out, metric):
    model = best(Boosting(trees=SMALL, metric=metric), rows, held_out)
    np.testing.assert_allclose(model.starts[0], prior_logits(rows.y, classes=rows.classes))
    (booster,) = model.boosters
    (rounds,) = model.rounds
    assert 5 < rounds < booster.current_iteration() < 500
    lowest = loss_of(model.logits(held_out.features), held_out)
    for fewer in (0.3, 0.6, 0.9):
        sums = booster.predict(held_out.x, raw_score=True, num_iteration=int(fewer * rounds))
        assert lowest < loss_of(sums.reshape(len(held_out), -1) + model.starts, held_out)


def test_one_seed_gives_one_model_and_another_seed_another(rows, held_out):
    logits = [best(Boosting(trees=SMALL), rows, held_out, seed).logits(held_out.features) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(logits[0], logits[1])
    assert not np.array_equal(logits[0], logits[2])


@pytest.mark.parametrize("metric", [None, get_metric("f1")], ids=["boosting", "boosting_metric"])
def test_a_weight_of_0_is_a_row_less(rows, held_out, metric):
    weight = np.where(np.arange(len(rows)) < 200, 1.0, 0.0)
    flipped = np.where(weight > 0, rows.y, rows.classes - 1 - rows.y)
    fits = [
        best(
            Boosting(trees=Trees({"num_leaves": 15, "num_iterations": 20}, 30), metric=metric),
            TrainingRows(rows.features, y, weight, rows.classes),
            held_out,
        ).logits(held_out.features)
        for y in (rows.y, flipped)
    ]
    np.testing.assert_allclose(fits[0], fits[1], atol=1e-6)


class AfterChecks(Deadline):
    """A deadline that passes at its fifth check."""

    def check(self):
        self.__dict__["checks"] = self.__dict__.get("checks", 0) + 1
        if self.__dict__["checks"] == 5:
            raise OutOfTime


def test_it_stops_at_the_deadline_within_a_round(rows, held_out):
    deadline = AfterChecks()
    with pytest.raises(OutOfTime):
        Boosting().fit(rows, held_out, seed=0, deadline=deadline)
    assert deadline.checks == 5
    cancelled = Deadline()
    cancelled.cancelled.set()
    with pytest.raises(OutOfTime):
        Boosting().fit(rows, held_out, seed=0, deadline=cancelled)


@pytest.mark.parametrize("n", [4, 12, 20])
def test_tables_too_small_to_split_are_no_error(n):
    x = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    small = TrainingRows(Features(x), np.arange(n) % 2, None, 2)
    constant = TrainingRows(Features(np.zeros_like(x)), np.arange(n) % 2, None, 2)
    for table in (small, constant):
        model = Boosting("boosting_metric", SMALL, metric=get_metric("f1"))
        assert np.isfinite(best(model, table, table).logits(table.features)).all()


@pytest.mark.parametrize("limit", ["MOST_BINS", "MANY_ROWS"])
def test_boosters_without_the_memory_of_training_give_the_same_logits(rows, held_out, monkeypatch, limit):
    settings = Boosting().settings(len(rows), rows.classes, 0)
    monkeypatch.setattr(Boosting, "settings", lambda *_: settings)  # the learning rate depends on the number of rows
    kept = best(Boosting(), rows, held_out)
    monkeypatch.setattr(f"metricfit.tabular.families.boosting.{limit}", 0)
    read_again = best(Boosting(), rows, held_out)
    assert read_again.rounds == kept.rounds
    assert hasattr(kept.boosters[0], "train_set")
    assert not hasattr(read_again.boosters[0], "train_set")
    np.testing.assert_array_equal(read_again.logits(held_out.features), kept.logits(held_out.features))
    for model in (kept, read_again):
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.logits(held_out.features), kept.logits(held_out.features))
