"""MetricClassifier: kinds of input, decisions, weights, groups, requirements."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    fbeta_score,
    matthews_corrcoef,
    precision_score,
    recall_score,
)
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from metricfit import MetricClassifier, metrics
from metricfit.curves import best_threshold
from metricfit.tabular import Network, ensemble_fit


@pytest.fixture(scope="module")
def fitted(quick_settings, blobs):
    return MetricClassifier(**quick_settings).fit(*blobs)


def test_it_learns_and_decides_at_its_threshold(fitted, blobs):
    X, y = blobs
    predicted = fitted.predict(X)
    assert f1_score(y, predicted) > 0.6
    assert fitted.score(X, y) == pytest.approx(f1_score(y, predicted))
    assert np.array_equal(predicted == 1, fitted.predict_proba(X)[:, 1] >= fitted.threshold_)
    assert np.array_equal(predicted == 1, fitted.decision_function(X) >= 0)
    assert fitted.predict_proba(X).sum(1) == pytest.approx(1)


def out_of_fold(model):
    """The calibrated out-of-fold probabilities of the positive class, and the labels."""
    return (1 / (1 + np.exp(-model.held_out_.logits.squeeze(1)))), model.held_out_.y


def test_the_plugin_threshold_has_the_best_expected_metric(fitted):
    """The naive twin: the expected counts at every out-of-fold probability."""
    scores, _ = out_of_fold(fitted)

    def expected_f1(threshold):
        called = scores >= threshold
        return 2 * scores[called].sum() / (called.sum() + scores.sum())

    assert expected_f1(fitted.threshold_) == pytest.approx(max(map(expected_f1, scores)))
    low, high = fitted.threshold_interval_
    assert low <= fitted.threshold_ <= high


def test_the_empirical_threshold_is_the_exact_best_out_of_fold(quick, blobs):
    model = MetricClassifier(**quick, decision="empirical").fit(*blobs)
    scores, y = out_of_fold(model)
    best = best_threshold(scores, y, "f1")
    assert model.decision_.evidence.value == pytest.approx(best.value)
    assert f1_score(y, scores >= model.threshold_) == pytest.approx(best.value)


def test_the_empirical_value_is_lowered_because_the_threshold_was_chosen_on_the_same_labels(quick):
    """Labels at random: the best threshold looks better out of fold than it can be."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), (rng.random(300) < 0.2).astype(int)
    model = MetricClassifier("mcc", decision="empirical", **quick).fit(X, y)
    assert model.value_ < model.decision_.evidence.value - 0.02
    assert model.value_interval_[0] < model.value_ < model.value_interval_[1]


@pytest.mark.parametrize("metric", ["f1", "accuracy", "mcc"])
def test_the_value_is_the_one_of_the_decisions_about_the_held_out_rows(metric, quick):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 4))
    y = (X[:, 0] + rng.normal(size=240) > 1).astype(int)
    model = MetricClassifier(metric, **quick).fit(X, y)
    scores, labels = out_of_fold(model)
    measure = {"f1": f1_score, "accuracy": accuracy_score, "mcc": matthews_corrcoef}[metric]
    assert model.value_ == pytest.approx(measure(labels, scores >= model.threshold_))
    assert model.value_interval_[0] < model.value_ < model.value_interval_[1]


def test_out_of_fold_means_that_the_model_did_not_see_the_row(quick):
    """Labels at random: a model that had seen its rows would do well on them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), rng.integers(0, 2, 300)
    model = MetricClassifier(**{**quick, "models": ["extra_trees"]}).fit(X, y)
    scores, labels = out_of_fold(model)
    assert np.mean((scores > 0.5) == labels) < 0.62


def test_models_tells_each_family_and_only_weighted_ones_predict(quick, blobs):
    X, y = blobs
    model = MetricClassifier(**{**quick, "models": "auto"}).fit(X, y)
    assert {row.name for row in model.models_} == {"linear", "kernel", "boosting", "boosting_small", "extra_trees"}
    assert sum(row.weight for row in model.models_) == pytest.approx(1)
    assert [member.name for member in model.ensemble_.members] == [row.name for row in model.models_ if row.weight > 0]
    for row in model.models_:
        assert 0.5 < row.value <= 1
        assert 0 < row.log_loss < 0.7
        assert row.seconds > 0
        assert row.left_out is None


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [7, -3], [2.0, 5.0]], ids=str)
def test_labels_of_any_type(labels, quick, blobs):
    X, y = blobs
    given = np.array(labels)[y]
    model = MetricClassifier(**{**quick, "pos_label": labels[1]}).fit(X, given)
    assert model.classes_.tolist() == sorted(labels)
    assert model.predict(X).dtype == given.dtype
    assert model.score(X, given) == pytest.approx(f1_score(given, model.predict(X), pos_label=labels[1]))
    assert model.score(X, given) > 0.6
    positive = model.classes_.tolist().index(labels[1])
    assert np.array_equal(model.predict(X) == labels[1], model.predict_proba(X)[:, positive] >= model.threshold_)
    assert np.array_equal(model.predict(X) == model.classes_[1], model.decision_function(X) > 0)


def test_several_classes(quick, blobs):
    X, _ = blobs
    y = np.array(["low", "middle", "top"])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 1.3])]
    model = MetricClassifier(**quick).fit(X, y)
    assert model.threshold_ is None
    assert model.offsets_.shape == (3,)
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), average="macro"))
    assert model.score(X, y) > 0.8
    assert np.array_equal(model.classes_[model.decision_function(X).argmax(1)], model.predict(X))
    shares = {"low": 0.8, "middle": 0.1, "top": 0.1}
    before = model.predict_proba(X).mean(0)
    assert model.rethreshold(shares).predict_proba(X).mean(0)[0] > before[0]
    with pytest.raises(ValueError, match=r"recall\['none'\]: there is no such class; the classes are 'low', 'middle'"):
        MetricClassifier(**quick, subject_to="recall['none'] >= 0.9").fit(X, y)


def test_a_class_with_one_row_is_learned_from_and_never_held_out(quick, blobs):
    X, y = blobs
    y = y.copy()
    y[0] = 2
    model = MetricClassifier(**quick).fit(X, y)
    assert len(model.held_out_.y) == len(y) - 1
    assert model.predict_proba(X).shape == (len(y), 3)
    with pytest.raises(ValueError, match="have a single row"):
        MetricClassifier(**quick).fit(X, np.arange(len(y)) == 3)


def test_a_table_of_all_kinds(messy, quick):
    frame, y = messy
    model = MetricClassifier(**quick, pos_label="yes").fit(frame, y)
    assert model.value_ > 0.75
    assert model.feature_names_in_.tolist() == list(frame.columns)
    wanted = model.predict_proba(frame)
    as_polars = pl.from_pandas(frame)
    again = MetricClassifier(**quick, pos_label="yes").fit(as_polars, pl.Series(y))
    assert np.allclose(again.predict_proba(as_polars), wanted, atol=1e-6)
    assert np.allclose(model.predict_proba(as_polars), wanted, atol=1e-6)


def test_an_array_of_objects_and_a_sparse_matrix(quick, blobs):
    X, y = blobs
    wanted = MetricClassifier(**quick).fit(X, y).predict_proba(X)
    assert np.allclose(MetricClassifier(**quick).fit(X.astype(object), y).predict_proba(X), wanted)
    holes = np.where(np.abs(X) < 0.5, 0, X)
    model = MetricClassifier(**quick).fit(sparse.csr_array(holes), y)
    assert np.allclose(model.predict_proba(sparse.coo_matrix(holes)), model.predict_proba(sparse.csc_array(holes)))


def test_the_same_random_state_gives_the_same_model(quick, blobs):
    X, y = blobs
    first, second = (MetricClassifier(**quick).fit(X, y) for _ in range(2))
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    third = MetricClassifier(**{**quick, "random_state": 1}).fit(X, y)
    assert not np.array_equal(first.predict_proba(X), third.predict_proba(X))


def test_requirements_hold_out_of_fold(quick, blobs):
    X, y = blobs
    model = MetricClassifier("precision", subject_to=["recall >= 0.9"], **quick).fit(X, y)
    scores, labels = out_of_fold(model)
    recall = recall_score(labels, scores >= model.threshold_)
    assert recall >= 0.9
    assert precision_score(labels, scores >= model.threshold_) == pytest.approx(model.decision_.evidence.value)
    assert model.requirements_met_
    assert model.requirements_["recall >= 0.9"].value == pytest.approx(recall, rel=1e-12)


def test_a_network_beside_other_families(quick, blobs):
    X, y = blobs
    network = Network(kind="mlp", recipe="constrained", epochs=3)
    model = MetricClassifier(**{**quick, "models": ["linear", network]}, subject_to="recall >= 0.5").fit(X, y)
    assert {row.name for row in model.models_} == {"linear", "network"}
    assert list(dict.fromkeys(row["stage"] for row in model.history_)) == ["bce", "constrained"]
    assert {row["member"] for row in model.history_} == {0, 1, 2}


def test_classifiers_and_pipelines_of_the_user(messy, quick):
    """A pipeline gets the table as it is, another classifier the encoded columns."""
    frame, y = messy
    pipeline = make_pipeline(make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["kind"])), BernoulliNB())
    models = [("trees", RandomForestClassifier(20, random_state=0)), pipeline]
    model = MetricClassifier(**{**quick, "models": models}, pos_label="yes").fit(frame, y)
    assert {row.name for row in model.models_} == {"trees", "Pipeline"}
    assert model.score(frame, y) > 0.8


def test_metrics_of_which_lower_is_better_score_negatively(quick, blobs):
    X, y = blobs
    model = MetricClassifier("cost(fp=1, fn=10)", **quick).fit(X, y)
    assert model.score(X, y) < 0
    assert recall_score(y, model.predict(X)) > 0.9


def test_a_metric_of_ones_own(quick, blobs):
    X, y = blobs

    def f2(c):
        return 5 * c.tp / (5 * c.tp + 4 * c.fn + c.fp)

    model = MetricClassifier(f2, **quick).fit(X, y)
    assert model.score(X, y) == pytest.approx(fbeta_score(y, model.predict(X), beta=2))


def test_sample_weight_moves_the_threshold_and_zero_means_absent(quick, blobs):
    X, y = blobs
    weight = np.where(y == 1, 5.0, 1.0)
    plain, weighted = MetricClassifier(**quick).fit(X, y), MetricClassifier(**quick).fit(X, y, sample_weight=weight)
    assert weighted.predict(X).sum() > plain.predict(X).sum()
    there = np.arange(len(y)) % 4 > 0
    absent = MetricClassifier(**quick).fit(X, y, sample_weight=there.astype(float))
    without = MetricClassifier(**quick).fit(X[there], y[there], sample_weight=np.ones(there.sum()))
    assert np.array_equal(absent.predict_proba(X), without.predict_proba(X))
    counted = plain.score(X, y, sample_weight=weight)
    assert counted == pytest.approx(f1_score(y, plain.predict(X), sample_weight=weight))


def test_class_weight_weighs_in_training_and_leaves_the_prevalence(quick, blobs):
    X, y = blobs
    plain, heavy = MetricClassifier(**quick).fit(X, y), MetricClassifier(**quick, class_weight={0: 1, 1: 30}).fit(X, y)
    assert not np.allclose(plain.predict_proba(X), heavy.predict_proba(X), atol=1e-3)
    assert heavy.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.05)
    assert heavy.score(X, y) > 0.65
    balanced = MetricClassifier(**quick, class_weight="balanced").fit(X, np.where(y == 1, "a", "b"))
    assert balanced.predict_proba(X)[:, 0].mean() == pytest.approx(y.mean(), abs=0.05)


def test_groups_and_copies_are_held_out_together(quick, blobs, monkeypatch):
    X, y = blobs
    X, y = np.concatenate([X, X[:50]]), np.concatenate([y, y[:50]])
    groups = np.arange(len(y)) % 40
    chosen = []
    choose_folds = ensemble_fit.choose_folds
    monkeypatch.setattr(ensemble_fit, "choose_folds", lambda *args: chosen.append(choose_folds(*args)) or chosen[-1])
    MetricClassifier(**quick).fit(X, y, groups=groups)
    for rest, fold in chosen[0]:
        assert not set(groups[rest]) & set(groups[fold])
        assert not set(map(tuple, X[rest])) & set(map(tuple, X[fold]))


def test_few_distinct_rows_are_no_obstacle(quick, caplog):
    X = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]], 20, axis=0)
    y = np.repeat([0, 0, 1], 20)
    model = MetricClassifier(**quick).fit(X, y)
    assert model.score(X, y) == 1.0
    assert "copies of rows are distributed over folds" in caplog.text


def fitted_threshold(model, odds):
    """The model's threshold as a logit of the balance before."""
    return np.log(model.threshold_ / (1 - model.threshold_)) - np.log(odds)


def test_rethreshold_for_another_prevalence(fitted, blobs):
    X, y = blobs
    model = clone(fitted).fit(X, y)
    threshold, share = model.threshold_, model.predict_proba(X)[:, 1]
    model.rethreshold(0.5)
    odds = (0.5 / 0.5) / (y.mean() / (1 - y.mean()))
    moved = share * odds / (share * odds + 1 - share)
    assert model.predict_proba(X)[:, 1] == pytest.approx(moved)
    assert model.predict(X).sum() >= fitted.predict(X).sum()
    # The naive twin: rows weighted to the new balance.
    held_out = fitted.held_out_
    labels = held_out.y
    weight = np.where(labels == 1, 0.5 / labels.mean(), 0.5 / (1 - labels.mean()))
    decided = held_out.logits.squeeze(1) >= fitted_threshold(model, odds)
    assert model.decision_.evidence.value == pytest.approx(f1_score(labels, decided, sample_weight=weight))
    assert model.rethreshold().threshold_ == pytest.approx(threshold)
    assert model.rethreshold({0: 0.9, 1: 0.1}).threshold_ == model.rethreshold(0.1).threshold_
    for wrong in (0.0, 1.5, {0: 0.5, 1: 0.6}, {0: 0.5, 2: 0.5}, [0.2, 0.3]):
        with pytest.raises(ValueError, match="prevalence"):
            model.rethreshold(wrong)


def test_pipeline_search_and_cross_validation(quick, blobs):
    X, y = blobs
    frame = pd.DataFrame(X, columns=list("abcd"))
    scaled = make_column_transformer((StandardScaler(), make_column_selector(dtype_include=float)))
    pipeline = make_pipeline(scaled, MetricClassifier(**{**quick, "members": 2}))
    search = GridSearchCV(pipeline, {"metricclassifier__metric": ["f1", metrics.fbeta(beta=2)]}, cv=2).fit(frame, y)
    assert 0.4 < search.best_score_ <= 1
    predicted = cross_val_predict(pipeline, frame, y, cv=2, method="predict_proba")
    assert predicted.shape == (len(y), 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": "forest"}, "a model is one of"),
        ({"models": []}, "models is empty"),
        ({"models": [StandardScaler()]}, "a scikit-learn classifier with predict_proba"),
        ({"models": ["linear", "linear"]}, "two models are called 'linear'"),
        ({"models": [Network(recipe="constrained")]}, "needs requirements"),
        ({"decision": "best"}, "decision is one of"),
        ({"cv": "backward"}, "cv is None, 'forward'"),
        ({"n_jobs": 0}, "n_jobs is a number of threads"),
        ({"members": 1}, "at least 2"),
        ({"pos_label": 3}, "none of the classes"),
        ({"metric": "f3"}, "f3"),
    ],
)
def test_wrong_settings(settings, message, quick, blobs):
    with pytest.raises((ValueError, TypeError), match=message):
        MetricClassifier(**{**quick, **settings}).fit(*blobs)


def test_wrong_labels_and_unfitted(quick, fitted, blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="one class"):
        MetricClassifier(**quick).fit(X, np.ones(len(y)))
    with pytest.raises(ValueError, match="contains NaN"):
        MetricClassifier(**quick).fit(X, pd.Series(["a", None] * (len(y) // 2)))
    with pytest.raises(ValueError, match="not there in fit: 7"):
        fitted.score(X[:2], [0, 7])
    with pytest.raises(NotFittedError):
        MetricClassifier().rethreshold(0.5)


@pytest.mark.parametrize("classes", [2, 3])
def test_what_check_classifiers_train_asks_besides(classes, quick):
    """The rest of scikit-learn's check that is an expected failure for what it says of predict_proba."""
    X, y = make_blobs(n_samples=300, random_state=0, centers=classes)
    X = StandardScaler().fit_transform(X).astype(np.float32)
    X.flags.writeable = False
    model = MetricClassifier(**quick)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:-1])
    model.fit(X.tolist(), y.tolist())
    assert np.array_equal(model.predict(X), MetricClassifier(**quick).fit(X, y).predict(X))
    assert np.mean(model.predict(X) == y) > 0.83
    for method in (model.predict, model.decision_function, model.predict_proba):
        with pytest.raises(ValueError, match="features"):
            method(X.T)


def test_a_factor_of_all_weights_changes_nothing(quick, blobs):
    X, y = blobs
    weight = np.linspace(1, 2, len(y))
    settings = {**quick, "models": ["linear", "kernel", "boosting"]}
    one, other = (MetricClassifier(**settings).fit(X, y, sample_weight=factor * weight) for factor in (1.0, 1024.0))
    assert np.allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-6)


def test_under_a_requirement_the_value_is_the_one_held_out(quick, blobs):
    model = MetricClassifier("f1", subject_to="precision >= 0.9", **quick).fit(*blobs)
    assert model.value_ == model.decision_.evidence.value
    assert model.value_interval_[0] <= model.value_ <= model.value_interval_[1]


def test_rows_of_weight_0_beside_folds_of_the_user_are_refused(quick, blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="rows of weight 0 count as absent, and cv= counts all rows"):
        MetricClassifier(**quick, cv=KFold(3)).fit(X, y, sample_weight=(np.arange(len(y)) > 9).astype(float))


def test_another_prevalence_is_that_of_the_rows_that_were_held_out(quick):
    """Positives become more frequent, and the first rows are held out by no model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (np.linspace(0, 1, 300) + 0.5 * rng.normal(size=300) > 0.9).astype(int)
    model = MetricClassifier(**{**quick, "members": 4}, cv="forward").fit(X, y)
    rows = model.held_out_.with_class_shares(np.array([0.7, 0.3]))
    assert float(rows.weight[rows.y == 1].sum() / rows.weight.sum()) == pytest.approx(0.3)
