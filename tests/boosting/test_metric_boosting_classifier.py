"""The estimator: the same trees as by hand, probabilities, stopping, weights, several classes, wrong use."""

import pickle

import lightgbm
import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from metricfit import best_threshold
from metricfit.boosting import MetricBoostingClassifier, objective, prior_logits
from metricfit.errors import InvalidValueError
from metricfit.steps import Sigmoid

LIBRARIES = ("lightgbm", "xgboost")
libraries = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    x[::50, 3] = np.nan
    signal = x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=600)
    weight = rng.integers(1, 9, 600) / 4
    return x, (signal > 1.5).astype(int), np.digitize(signal, [-1.0, 1.5]), weight


def made(library="lightgbm", metric="f1", **settings):
    if library != "catboost":
        pytest.importorskip(library)
    return MetricBoostingClassifier(metric, library=library, n_jobs=1, random_state=0, **settings)


def small(library):
    return {"num_leaves": 7} if library == "lightgbm" else {"max_depth": 3}


@pytest.mark.parametrize("classes", [2, 3])
@libraries
def test_it_trains_the_trees_that_the_library_trains_by_hand(table, library, classes):
    x, two, three, weight = table
    y = two if classes == 2 else three
    model = made(library, rounds=12, parameters=small(library)).fit(x, y, weight)
    start = prior_logits(y, weight, rows=len(y))
    if library == "lightgbm":
        rows = lightgbm.Dataset(x, y, weight=weight, init_score=start, params={"verbose": -1})
        settings = {"objective": objective("f1"), "verbose": -1, "num_threads": 1, "num_leaves": 7}
        settings["num_class"] = 1 if classes == 2 else 3
        scores = lightgbm.train(settings, rows, 12).predict(x) + start
    else:
        import xgboost

        rows = xgboost.DMatrix(x, y, weight=weight, base_margin=start)
        settings = {"nthread": 1, "max_depth": 3} | ({} if classes == 2 else {"num_class": 3})
        trees = xgboost.train(settings, rows, 12, obj=objective("f1", "xgboost"))
        scores = trees.predict(rows, output_margin=True)
    np.testing.assert_allclose(model.decision_function(x), scores, rtol=1e-4, atol=1e-5)
    expected = np.column_stack([expit(-scores), expit(scores)]) if classes == 2 else softmax(scores, axis=1)
    np.testing.assert_allclose(model.predict_proba(x), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model.predict(x), model.predict_proba(x).argmax(1))
    assert model.rounds_ == 12


@libraries
def test_strength_0_is_calibrated_like_the_library_itself(table, library):
    """The scores of a plain function would be far off: the start and the sigmoid are missing there."""
    x, y, _, _ = table
    ours = made(library, strength=0.0, rounds=30, parameters=small(library)).fit(x[:400], y[:400])
    if library == "lightgbm":
        theirs = lightgbm.LGBMClassifier(n_estimators=30, num_leaves=7, verbose=-1, n_jobs=1)
    else:
        import xgboost

        theirs = xgboost.XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1)
    theirs.fit(x[:400], y[:400])
    losses = [log_loss(y[400:], model.predict_proba(x[400:])) for model in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.parametrize("stop_on", ["loss", "metric"])
@pytest.mark.parametrize("classes", [2, 3])
@libraries
def test_it_stops_where_the_held_out_rows_are_best(table, library, classes, stop_on):
    x, two, three, weight = table
    y = two if classes == 2 else three
    model = made(library, rounds=60, early_stopping_rounds=10, stop_on=stop_on, parameters=small(library))
    held_out = (x[400:], y[400:], weight[400:])
    model.fit(x[:400], y[:400], weight[:400], eval_set=held_out)
    best = int(np.argmin(model.history_))
    assert model.rounds_ == best + 1
    assert len(model.history_) == min(best + 11, 60)
    scores = model.decision_function(x[400:])
    if stop_on == "loss":
        expected = objective("f1").loss(y[400:], scores, weight[400:])
    elif classes == 2:
        expected = 1 - best_threshold(scores, y[400:], "f1", weight=weight[400:]).value
    else:
        expected = 1 - f1_score(y[400:], scores.argmax(1), average="macro", sample_weight=weight[400:])
    assert model.history_[best] == pytest.approx(expected, abs=1e-5)


@libraries
def test_it_holds_out_rows_of_its_own(table, library):
    x, y, _, weight = table
    model = made(library, rounds=200, early_stopping_rounds=5, parameters=small(library)).fit(x, y, weight)
    assert model.rounds_ < 200
    other = clone(model).fit(x, y, weight)
    np.testing.assert_array_equal(model.decision_function(x), other.decision_function(x))
    with pytest.raises(InvalidValueError, match="pass eval_set"):
        clone(model).fit(x[:10], np.arange(10) == 3)


def test_the_positive_class(table):
    x, y, _, _ = table
    text = np.where(y == 1, "bad", "good")
    by_number, by_text = made(rounds=5).fit(x, y), made(rounds=5).fit(x, text)
    assert (by_number.pos_label_, by_text.pos_label_) == (1, "bad")
    np.testing.assert_array_equal(by_text.predict_proba(x), by_number.predict_proba(x)[:, ::-1])
    np.testing.assert_array_equal(by_text.decision_function(x), -by_number.decision_function(x))
    np.testing.assert_array_equal(by_text.predict(x) == "bad", by_number.predict(x) == 1)
    other = made(rounds=5, pos_label="good").fit(x, text)
    assert other.pos_label_ == "good"
    assert not np.allclose(other.predict_proba(x), by_text.predict_proba(x))


@libraries
def test_rows_of_weight_0_are_left_out(table, library):
    x, y, _, _ = table
    weight = np.where(np.arange(600) < 300, 1.0, 0.0)
    weighted, of_half = (
        made(library, rounds=5).fit(x, y, weight),
        made(library, rounds=5).fit(x[:300], y[:300], weight[:300]),
    )
    np.testing.assert_array_equal(weighted.decision_function(x), of_half.decision_function(x))


@libraries
def test_columns_that_do_not_differ_leave_the_prior(library):
    x = np.ones((40, 2))
    model = made(library).fit(x, np.arange(40) % 4 == 0)
    np.testing.assert_allclose(model.predict_proba(x), np.tile([0.75, 0.25], (40, 1)))


@libraries
def test_it_is_pickled_and_searched(table, library):
    x, y, _, _ = table
    model = made(library, rounds=5, step=Sigmoid(10.0)).fit(x, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    search = GridSearchCV(made(library, rounds=5), {"strength": [0.0, 1.0]}, scoring="f1", cv=2).fit(x, y)
    assert set(search.best_params_) == {"strength"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"library": "catboost"}, "at most 1,000 rows at a time"),
        ({"library": "prophet"}, "library is 'lightgbm' or 'xgboost'"),
        ({"metric": "f7"}, "f7"),
        ({"strength": -1}, "strength is"),
        ({"rounds": 0}, "rounds is a whole number"),
        ({"rounds": 2.5}, "rounds is a whole number"),
        ({"early_stopping_rounds": 0}, "early_stopping_rounds is a whole number"),
        ({"n_jobs": 0}, "n_jobs is a whole number"),
        ({"stop_on": "auc"}, "stop_on is 'loss' or 'metric'"),
        ({"validation_fraction": 1.0}, "between 0 and 1"),
        ({"parameters": {"n_estimators": 5}}, "use rounds="),
        ({"parameters": {"objective": "binary"}}, "use metric= and strength="),
        ({"pos_label": 7}, "pos_label=7 is none of the classes"),
    ],
)
def test_wrong_parameters_are_refused(table, settings, message):
    x, y, _, _ = table
    with pytest.raises(InvalidValueError, match=message):
        MetricBoostingClassifier(**settings).fit(x, y)


@pytest.mark.parametrize(
    ("eval_set", "message"),
    [
        ([(np.zeros((3, 4)), np.zeros(3))], r"eval_set is \(X, y\)"),
        ((np.zeros((3, 4)), np.array([0, 1, 2])), "has the label 2"),
        ((np.zeros((3, 4)), np.array([0, 1])), "inconsistent numbers"),
        ((np.zeros((3, 5)), np.array([0, 1, 1])), "5 features"),
    ],
)
def test_wrong_held_out_rows_are_refused(table, eval_set, message):
    x, y, _, _ = table
    with pytest.raises(ValueError, match=message):
        made(rounds=5, early_stopping_rounds=2).fit(x, y, eval_set=eval_set)


def expected_failures(estimator):
    if estimator.library == "lightgbm":
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "XGBoost's bins are not those of repeated rows"}


@parametrize_with_checks(
    [MetricBoostingClassifier(library=library, rounds=10, n_jobs=1, random_state=0) for library in LIBRARIES],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks(estimator, check):
    pytest.importorskip(estimator.library)
    check(estimator)
