"""MetricClassifier: kinds of input, decisions, weights, groups, requirements."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score, fbeta_score, precision_score, recall_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from metricfit import MetricClassifier, metrics
from metricfit.curves import best_threshold


@pytest.fixture(scope="module")
def fitted(quick_settings, blobs):
    return MetricClassifier(**quick_settings).fit(*blobs)


def test_it_learns_and_decides_at_its_threshold(fitted, blobs):
    X, y = blobs
    predicted = fitted.predict(X)
    assert f1_score(y, predicted) > 0.7
    assert fitted.score(X, y) == pytest.approx(f1_score(y, predicted))
    assert np.array_equal(predicted == 1, fitted.predict_proba(X)[:, 1] >= fitted.threshold_)
    assert np.array_equal(predicted == 1, fitted.decision_function(X) >= 0)
    assert fitted.predict_proba(X).sum(1) == pytest.approx(1)


def test_the_threshold_is_the_exact_best_out_of_fold(fitted):
    held_out = fitted.held_out_
    scores, y = torch.sigmoid(held_out.logits.squeeze(1)).numpy(), held_out.y.numpy()
    best = best_threshold(scores, y, "f1")
    assert fitted.value_ == pytest.approx(best.value)
    assert f1_score(y, scores >= fitted.threshold_) == pytest.approx(best.value)
    low, high = fitted.threshold_interval_
    assert low <= fitted.threshold_ <= high
    assert fitted.value_interval_[0] < fitted.value_ < fitted.value_interval_[1]


def test_out_of_fold_means_that_the_member_did_not_see_the_row(quick):
    """Labels at random: a model that had seen its rows would do well on them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), rng.integers(0, 2, 300)
    model = MetricClassifier(**{**quick, "recipe": "bce", "epochs": 80, "patience": 80}).fit(X, y)
    held_out = model.held_out_
    assert np.mean((held_out.logits.squeeze(1).numpy() > 0) == held_out.y.numpy()) < 0.62
    assert [row["member"] for row in model.history_][:: len(model.history_) // 3][:3] == [0, 1, 2]


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [7, -3], [2.0, 5.0]], ids=str)
def test_labels_of_any_type(labels, quick, blobs):
    X, y = blobs
    given = np.array(labels)[y]
    model = MetricClassifier(**{**quick, "pos_label": labels[1]}).fit(X, given)
    assert model.classes_.tolist() == sorted(labels)
    assert model.predict(X).dtype == given.dtype
    assert model.score(X, given) == pytest.approx(f1_score(given, model.predict(X), pos_label=labels[1]))
    assert model.score(X, given) > 0.7
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
    with pytest.raises(ValueError, match="subject_to is for two classes"):
        MetricClassifier(**quick, subject_to="recall >= 0.9").fit(X, y)


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
    quick["epochs"] = 60
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
    scores, labels = torch.sigmoid(model.held_out_.logits.squeeze(1)).numpy(), model.held_out_.y.numpy()
    assert recall_score(labels, scores >= model.threshold_) >= 0.9
    assert precision_score(labels, scores >= model.threshold_) == pytest.approx(model.value_)
    assert model.requirements_met_
    recall = recall_score(labels, scores >= model.threshold_)
    assert model.requirements_["recall >= 0.9"].value == pytest.approx(recall, rel=1e-12)


@pytest.mark.parametrize("recipe", ["bce", "metric", "two_stage", "constrained"])
def test_recipes(recipe, quick, blobs):
    X, y = blobs
    requirement = {"subject_to": "recall >= 0.8"} if recipe == "constrained" else {}
    model = MetricClassifier(**{**quick, "recipe": recipe}, **requirement).fit(X, y)
    assert model.requirements_met_
    assert model.score(X, y) > (0.6 if requirement else 0.7)  # recall of 0.8 costs precision
    stages = list(dict.fromkeys(row["stage"] for row in model.history_))
    two = {"two_stage": ["bce", "metric"], "constrained": ["bce", "constrained"]}
    assert stages == two.get(recipe, [recipe])


def test_members_that_break_the_requirement_at_one_half_are_not_warned_of(quick, blobs):
    """The decision of the ensemble is chosen under the requirement, whatever its members do at 0.5."""
    settings = {**quick, "recipe": "constrained", "members": 2, "epochs": 1, "subject_to": "recall >= 0.8"}
    model = MetricClassifier(**settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*blobs)
    assert not [each for each in caught if "does not hold" in str(each.message)]


@pytest.mark.parametrize("network", ["embedded", "blend", "tabm", lambda inputs, outputs: nn.Linear(inputs, outputs)])
@pytest.mark.parametrize("classes", [2, 3])
def test_networks(network, classes, quick, blobs):
    X, y = blobs
    y = y if classes == 2 else np.digitize(X[:, 0], [-0.7, 0.7])
    weight = np.random.default_rng(0).uniform(0.5, 1.5, len(y))
    model = MetricClassifier(
        **{**quick, "network": network, "members": 2, "epochs": 60 if callable(network) else 20}
    ).fit(X, y, sample_weight=weight)
    assert model.score(X, y) > 0.6
    assert model.network_.name == (network if isinstance(network, str) else "own")


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
    from metricfit.tabular import member_training as training

    X, y = blobs
    X, y = np.concatenate([X, X[:50]]), np.concatenate([y, y[:50]])
    groups = np.arange(len(y)) % 40
    seen = []
    real = training.folds_of
    monkeypatch.setattr(training, "folds_of", lambda *given: seen.append(real(*given)) or seen[-1])
    MetricClassifier(**quick).fit(X, y, groups=groups)
    for rest, fold in seen[0]:
        assert not set(groups[rest]) & set(groups[fold])
        assert not set(map(tuple, X[rest])) & set(map(tuple, X[fold]))


def test_members_fall_to_the_rarest_class(quick):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = np.zeros(60, dtype=int)
    y[np.argsort(X[:, 0])[-5:]] = 1
    model = MetricClassifier(**{**quick, "members": 8, "epochs": 60}).fit(X, y)
    assert len(model.members_) == 5
    assert model.value_ > 0.5


def test_few_distinct_rows_are_no_obstacle(quick, caplog):
    X = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]], 20, axis=0)
    y = np.repeat([0, 0, 1], 20)
    model = MetricClassifier(**{**quick, "epochs": 80}).fit(X, y)
    assert model.score(X, y) == 1.0
    assert "copies of rows are distributed over folds" in caplog.text


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
    labels = held_out.y.numpy()
    weight = np.where(labels == 1, 0.5 / labels.mean(), 0.5 / (1 - labels.mean()))
    best = best_threshold(held_out.logits.squeeze(1).numpy(), labels, "f1", weight=weight)
    assert model.value_ == pytest.approx(best.value)
    assert model.rethreshold().threshold_ == pytest.approx(threshold)
    assert model.rethreshold({0: 0.9, 1: 0.1}).threshold_ == model.rethreshold(0.1).threshold_
    for wrong in (0.0, 1.5, {0: 0.5, 1: 0.6}, {0: 0.5, 2: 0.5}, [0.2, 0.3]):
        with pytest.raises(ValueError, match="prevalence"):
            model.rethreshold(wrong)


def test_pipeline_search_and_cross_validation(quick, blobs):
    X, y = blobs
    frame = pd.DataFrame(X, columns=list("abcd"))
    scaled = make_column_transformer((StandardScaler(), make_column_selector(dtype_include=float)))
    pipeline = make_pipeline(scaled, MetricClassifier(**{**quick, "members": 2, "epochs": 10}))
    search = GridSearchCV(pipeline, {"metricclassifier__metric": ["f1", metrics.fbeta(beta=2)]}, cv=2).fit(frame, y)
    assert 0.4 < search.best_score_ <= 1
    predicted = cross_val_predict(pipeline, frame, y, cv=2, method="predict_proba")
    assert predicted.shape == (len(y), 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "forest"}, "network is one of"),
        ({"recipe": "cake"}, "recipe is one of"),
        ({"recipe": "constrained"}, "needs requirements"),
        ({"recipe": "constrained", "subject_to": "recall >= 0.5", "network": "tabm"}, "trains one network"),
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
