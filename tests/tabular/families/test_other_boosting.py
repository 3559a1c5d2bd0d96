"""CatBoost's and XGBoost's trees in LightGBM's format, against the libraries' own predictions."""

import json

import numpy as np
import pytest
from stored_state import restore, state_of

from metricfit.boosting.functions import prior_logits
from metricfit.tabular.families import other_boosting
from metricfit.tabular.families.family import Deadline, OutOfTime, choose_candidates
from metricfit.tabular.families.other_boosting import PACKAGES, OtherBoosting


@pytest.fixture(params=list(PACKAGES))
def family(request, monkeypatch):
    pytest.importorskip(request.param)
    monkeypatch.setattr(other_boosting, "ROUNDS", 25)
    return OtherBoosting(request.param)


def own_predictions(family, rows, new):
    """Logits after 25 rounds, by the library itself with the same settings."""
    start = prior_logits(rows.y, rows.weight, classes=rows.classes)
    base, base_new = np.tile(start, (len(rows), 1)), np.tile(start, (len(new), 1))
    if family.name == "catboost":
        import catboost

        loss = "Logloss" if rows.classes == 2 else "MultiClass"
        settings = {"loss_function": loss, "iterations": 25, "learning_rate": 0.05, "random_seed": 3}
        model = catboost.CatBoost(
            {**settings, "verbose": False, "allow_writing_files": False, "boost_from_average": False, "thread_count": 1}
        ).fit(catboost.Pool(rows.x, rows.y, weight=rows.weight, baseline=base))
        return np.asarray(model.predict(new.x, prediction_type="RawFormulaVal")).reshape(len(new), -1) + base_new
    import xgboost

    several = {"objective": "multi:softprob", "num_class": rows.classes}
    kind = {"objective": "binary:logistic"} if rows.classes == 2 else several
    booster = xgboost.train(
        {"seed": 3, "learning_rate": 0.05, "base_score": 0.5, **kind},
        xgboost.DMatrix(rows.x, rows.y, weight=rows.weight, base_margin=base),
        num_boost_round=25,
    )
    return booster.predict(xgboost.DMatrix(new.x, base_margin=base_new), output_margin=True).reshape(len(new), -1)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_trees_predict_what_the_library_predicts(family, make_rows, classes, weighted):
    rows, held_out = make_rows(classes, weighted=weighted), make_rows(classes, n=150, seed=1)
    fitted = family.fit(rows, held_out, seed=3, deadline=Deadline())
    last = fitted.select(len(fitted.losses) - 1).logits(held_out.features)
    np.testing.assert_allclose(last, own_predictions(family, rows, held_out), rtol=1e-4, atol=1e-5)


def test_the_losses_are_those_of_the_trees(family, rows, held_out):
    from metricfit.tabular.families.arithmetic import cross_entropy

    fitted = family.fit(rows, held_out, seed=3, deadline=Deadline())
    for number in (0, 7, 24):
        logits = fitted.select(number).logits(held_out.features)
        assert fitted.losses[number] == pytest.approx(cross_entropy(logits, held_out.y, None), rel=1e-4)


def test_stored_trees_give_the_same_predictions(family, rows, held_out, classes):
    models = choose_candidates([family.fit(rows, held_out, seed=seed, deadline=Deadline()) for seed in range(2)])
    model = family.combine(models)
    again = restore(state_of(model), rows.x.shape[1], classes)
    np.testing.assert_array_equal(again.logits(held_out.features), model.logits(held_out.features))
    assert model.folds == 2


def test_it_stops_at_the_deadline(family, rows):
    with pytest.raises(OutOfTime):
        family.fit(rows, rows, seed=0, deadline=Deadline.after(-1.0))


def test_a_pruned_tree_of_xgboost_has_only_the_nodes_that_are_reached():
    pruned = {
        "left_children": [1, -1, -1, -1, -1],
        "right_children": [2, -1, -1, -1, -1],
        "split_conditions": [0.5, -1.0, 2.0, 7.0, 8.0],
        "split_indices": [3, 0, 0, 0, 0],
    }
    tree = other_boosting._tree_of_xgboost(json.loads(json.dumps(pruned)))
    lines = dict(line.split("=") for line in tree.split("\n") if line)
    assert lines["leaf_value"] == "-1.0 2.0"
    assert (lines["left_child"], lines["right_child"], lines["split_feature"]) == ("-1", "-2", "3")
    assert float(lines["threshold"]) < 0.5
