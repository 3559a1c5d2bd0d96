"""Forests against scikit-learn's predict_proba, and their compact form against naive walks."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from stored_state import restore, state_of

from metricfit.errors import ModelFileError
from metricfit.tabular.families.family import Deadline, Features, OutOfTime, TrainingRows
from metricfit.tabular.families.forest import ExtraTrees


def logits_of(votes):
    shares = votes / votes.sum(axis=1, keepdims=True)
    return np.log(shares[:, 1:] / shares[:, :1]) if votes.shape[1] == 2 else np.log(shares)


def shares_of_scikit_learn(rows, held_out, trees, seed):
    """Shares by scikit-learn's forest; of two classes, by its forest on the variance, whose trees predict one share."""
    kind = ExtraTreesRegressor if rows.classes == 2 else ExtraTreesClassifier
    forest = kind(trees, max_features=0.5, random_state=seed).fit(rows.x, rows.y, sample_weight=rows.weight)
    if rows.classes > 2:
        return forest.predict_proba(held_out.x)
    share = forest.predict(held_out.x)
    return np.stack([1 - share, share], axis=1)


def test_trees_on_the_variance_decide_like_trees_on_the_gini_impurity(rows, held_out):
    forest = ExtraTreesClassifier(400, max_features=0.5, random_state=0).fit(rows.x, rows.y)
    expected = forest.predict_proba(held_out.x)[:, 1]
    shares = shares_of_scikit_learn(rows, held_out, 400, 0)[:, 1]
    assert np.abs(shares - expected).max() < 0.15
    assert np.corrcoef(shares, expected)[0, 1] > 0.98


def fit(rows, trees=20, seed=3):
    return ExtraTrees(trees).fit(rows, rows, seed=seed, deadline=Deadline())


@pytest.mark.parametrize("trees", [5, 20, 23])
def test_the_votes_are_those_of_scikit_learn(rows, held_out, trees):
    expected = logits_of(shares_of_scikit_learn(rows, held_out, trees, 3) * trees + 0.5)
    np.testing.assert_allclose(fit(rows, trees).logits(held_out.features), expected, rtol=1e-9, atol=1e-9)


def test_the_trees_of_all_folds_vote_together(rows, held_out, classes):
    folds = [fit(rows, seed=seed) for seed in range(3)]
    votes = np.zeros((len(held_out), classes))
    for seed in range(3):
        votes += shares_of_scikit_learn(rows, held_out, 20, seed) * 20 / 3
    combined = ExtraTrees().combine(folds)
    np.testing.assert_allclose(combined.logits(held_out.features), logits_of(votes + 0.5), rtol=1e-9, atol=1e-9)


def test_a_class_without_rows_gets_half_a_vote(rows, held_out):
    some = rows.take(np.flatnonzero(rows.y != 1))
    model = fit(TrainingRows(some.features, some.y, None, max(3, rows.classes)))
    logits = model.logits(held_out.features)
    assert (np.exp(logits[:, 1]) < 0.5 / 20).all()


def test_the_trees_are_grown_with_the_weights(make_rows, held_out, classes):
    rows = make_rows(classes, weighted=True)
    votes = shares_of_scikit_learn(rows, held_out, 20, 3) * 20
    logits = fit(rows).logits(held_out.features)
    np.testing.assert_allclose(logits, logits_of(votes + 0.5), rtol=1e-9, atol=1e-9)
    assert not np.allclose(logits, fit(make_rows(classes)).logits(held_out.features), atol=0.1)


def test_it_stops_at_the_deadline(rows):
    with pytest.raises(OutOfTime):
        ExtraTrees().fit(rows, rows, seed=0, deadline=Deadline.after(-1.0))


def test_stored_trees_give_the_same_predictions_bit_by_bit(rows, held_out, classes):
    model = fit(rows)
    restored = restore(state_of(model), rows.x.shape[1], classes)
    for tree, again in zip(model.trees, restored.trees, strict=True):
        np.testing.assert_array_equal(again.children_left, tree.children_left)
        np.testing.assert_array_equal(again.children_right, tree.children_right)
        np.testing.assert_array_equal(again.predict(held_out.x), tree.predict(held_out.x))


def test_stored_trees_send_rows_at_a_threshold_the_same_way(rows, classes):
    model = fit(rows)
    restored = restore(state_of(model), rows.x.shape[1], classes)
    for tree, again in zip(model.trees, restored.trees, strict=True):
        inner = tree.children_left >= 0
        at = np.zeros((int(inner.sum()), rows.x.shape[1]), dtype=np.float32)
        at[np.arange(len(at)), tree.feature[inner]] = tree.threshold[inner]
        for edge in (at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))):
            np.testing.assert_array_equal(again.apply(edge), tree.apply(edge))


@pytest.mark.parametrize("change", [("left", 0, 0), ("right", 0, 1), ("left", 3, 10_000), ("right", 2, 2)])
def test_nodes_that_form_no_tree_are_refused(rows, classes, change):
    state = state_of(fit(rows))
    name, at, value = change
    state.arrays[name][at] = value
    with pytest.raises(ModelFileError, match=r"no tree|outside of 1"):
        restore(state, rows.x.shape[1], classes)


def test_parts_of_the_rows_and_threads_do_not_change_the_logits(rows, monkeypatch):
    model = fit(rows)
    whole = model.logits(rows.features)
    monkeypatch.setattr("metricfit.tabular.families.arithmetic.ROWS_PER_PART", 7)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    np.testing.assert_array_equal(model.logits(rows.features), whole)
    assert model.logits(Features(rows.x[:0])).shape == (0, rows.outputs)
