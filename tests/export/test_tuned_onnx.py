"""Classifiers of scikit-learn with a tuned decision, and as families, in onnxruntime."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, QuantileTransformer, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.errors import ExportError
from metricfit.export.onnx.graph import Graph
from metricfit.export.onnx.trees import add_lightgbm

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(150, 3)), columns=["a", "b", "c"])
SCORE = (X["a"] + X["b"] + 0.3 * RNG.normal(size=150)).to_numpy()
TARGETS = {2: np.where(SCORE > 0.8, "yes", "no"), 3: np.digitize(SCORE, [-0.5, 0.8])}
ESTIMATORS = [
    LogisticRegression(),
    make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), LogisticRegression()),
    make_pipeline(MinMaxScaler(clip=True), RobustScaler(), LinearSVC()),
    RidgeClassifier(),
    RandomForestClassifier(10, random_state=0),
    make_pipeline(MaxAbsScaler(), None, ExtraTreesClassifier(10, random_state=0)),
    DecisionTreeClassifier(max_depth=3, random_state=0),
]


def run(path, table):
    session = onnxruntime.InferenceSession(path)
    return session.run(None, {name: table[[name]].to_numpy() for name in table})


QUICK = (1, 4)
PLACES = [pytest.param(place, marks=() if place in QUICK else pytest.mark.slow) for place in range(len(ESTIMATORS))]


@pytest.mark.parametrize("place", PLACES)
def test_a_tuned_estimator_decides_as_in_python(place, tmp_path):
    estimator, classes = ESTIMATORS[place], 2 + place % 2
    model = TunedDecisionClassifier(estimator, cv=2, random_state=0).fit(X, TARGETS[classes])
    new = pd.DataFrame(np.random.default_rng(1).normal(size=(100, 3)) * 2, columns=list(X))
    assert model.export_onnx(tmp_path / "model.onnx", X).different_rows == ()
    label, probability = run(tmp_path / "model.onnx", new)
    assert label.tolist() == model.predict(new).tolist()
    assert np.allclose(probability, model.predict_proba(new), rtol=0, atol=1e-9)


@pytest.mark.parametrize("estimator", [ESTIMATORS[1], ESTIMATORS[4]])
def test_missing_values_are_followed_and_the_positive_class_may_be_the_first(estimator, tmp_path):
    table = X.mask(RNG.random(X.shape) < 0.1)
    model = TunedDecisionClassifier(estimator, cv=2, pos_label="no", random_state=0).fit(table, TARGETS[2])
    model.export_onnx(tmp_path / "model.onnx", table)
    label, probability = run(tmp_path / "model.onnx", table)
    assert label.tolist() == model.predict(table).tolist()
    assert np.allclose(probability, model.predict_proba(table), rtol=0, atol=1e-9)


def test_an_array_is_one_input(tmp_path):
    values = X.to_numpy()
    model = TunedDecisionClassifier(LinearSVC(), cv=2, pos_label="no", random_state=0).fit(values, TARGETS[2])
    result = model.export_onnx(tmp_path / "model.onnx", values)
    assert list(result.inputs) == ["X"]
    label, _ = onnxruntime.InferenceSession(result.path).run(None, {"X": values})
    assert label.tolist() == model.predict(values).tolist()


def test_classifiers_of_the_user_are_families_of_the_graph(tmp_path):
    models = [LogisticRegression(), RandomForestClassifier(10, random_state=0)]
    model = MetricClassifier("mcc", models=models, members=2, random_state=0).fit(X, TARGETS[2])
    assert len(model.ensemble_.members) == 2
    assert model.export_onnx(tmp_path / "model.onnx", X).different_rows == ()
    assert np.allclose(run(tmp_path / "model.onnx", X)[1], model.predict_proba(X), rtol=0, atol=1e-5)


def test_estimators_that_are_not_written_are_named(tmp_path):
    for estimator, message in (
        (GaussianNB(), "a GaussianNB is not written"),
        (make_pipeline(QuantileTransformer(n_quantiles=10), LogisticRegression()), "the step QuantileTransformer"),
    ):
        model = TunedDecisionClassifier(estimator, cv=2, random_state=0).fit(X[:70], TARGETS[2][:70])
        with pytest.raises(ExportError, match=message):
            model.export_onnx(tmp_path / "model.onnx", X)
    with pytest.raises(ExportError, match="pass rows"):
        model.export_onnx(tmp_path / "model.onnx")
    labels = TunedDecisionClassifier(MultiOutputClassifier(LogisticRegression()), cv=2, random_state=0)
    labels.fit(X[:70], (X > 0.2).astype(int)[["a", "b"]][:70])
    with pytest.raises(ExportError, match="several labels"):
        labels.export_onnx(tmp_path / "model.onnx", X)


@pytest.mark.parametrize("classes", [2, 3])
def test_lightgbm_decides_as_in_python(classes, tmp_path):
    table = X.mask(np.random.default_rng(2).random(X.shape) < [0.2, 0.0, 0.0])  # LightGBM learns where NaN goes for "a"
    settings = {"n_estimators": 12, "num_leaves": 7, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
    model = TunedDecisionClassifier(LGBMClassifier(**settings), cv=2, random_state=0).fit(table, TARGETS[classes])
    assert model.export_onnx(tmp_path / "model.onnx", table).different_rows == ()
    new = pd.DataFrame(np.random.default_rng(1).normal(size=(200, 3)) * 2, columns=list(X))
    new = new.mask(np.random.default_rng(3).random(new.shape) < 0.2)  # and in columns where training had none
    label, probability = run(tmp_path / "model.onnx", new)
    assert label.tolist() == model.predict(new).tolist()
    assert np.allclose(probability, model.predict_proba(new), rtol=0, atol=1e-9)


def test_other_forms_of_lightgbm_are_refused():
    quick = {"n_estimators": 2, "num_leaves": 3, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
    table = X.assign(kind=(X["a"] > 0).astype("category"))
    for settings, data, message in (
        ({"zero_as_missing": True}, X.mask(X.abs() < 0.1, 0.0), "missing zeros"),
        ({}, table[["b", "kind"]], "categorical columns"),
        ({"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1}, X, "boosting_type='rf'"),
        ({"objective": "cross_entropy"}, X, "with the objective cross_entropy"),
    ):
        estimator = LGBMClassifier(**quick, **settings).fit(data, TARGETS[2])
        with pytest.raises(ExportError, match=message):
            add_lightgbm(Graph(set()), estimator, "x")
