"""Models as scikit-learn's own parts, beside the model."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.svm import LinearSVC

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.errors import ExportError, InvalidTypeError
from metricfit.export.scikit_learn import to_sklearn

TINY = {"members": 2, "random_state": 0}


@pytest.fixture(scope="module")
def plain_columns(mixed):
    return mixed.X[["amount", "visits", "member", "kind", "answer"]]


@pytest.mark.parametrize("positive", [pytest.param("good", marks=pytest.mark.slow), "bad"])
def test_a_linear_model_is_a_pipeline_with_the_same_probabilities(positive, mixed, plain_columns, new_rows):
    model = MetricClassifier("f1", models=["linear"], pos_label=positive, **TINY).fit(plain_columns, mixed.two)
    model.rethreshold(prevalence=0.2)
    plain = model.to_sklearn(plain_columns)
    assert isinstance(plain, FixedThresholdClassifier)
    for X in (plain_columns, new_rows[plain_columns.columns]):
        assert plain.predict(X).tolist() == model.predict(X).tolist()
        assert np.allclose(plain.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-5)


def test_the_parts_are_those_of_scikit_learn(mixed, plain_columns):
    model = MetricClassifier("f1", models=["linear"], **TINY).fit(plain_columns, mixed.two)
    content = pickle.dumps(model.to_sklearn())
    assert b"metricfit" not in content


def test_a_forest_decides_alike_by_its_own_shares(mixed, plain_columns, new_rows):
    model = MetricClassifier("f1", models=["extra_trees"], pos_label="bad", **TINY).fit(plain_columns, mixed.two)
    plain = model.to_sklearn()
    for X in (plain_columns, new_rows[plain_columns.columns]):
        assert plain.predict(X).tolist() == model.predict(X).tolist()
    order = np.argsort(plain.predict_proba(plain_columns)[:, 1], kind="stable")
    shares = model.predict_proba(plain_columns)[:, 0]
    assert (np.diff(shares[order]) > -1e-9).all()


def test_arrays_need_no_names(mixed):
    X = np.column_stack([mixed.X["amount"], mixed.X["visits"], np.ones(len(mixed.X))])
    model = MetricClassifier("f1", models=["linear"], **TINY).fit(X, mixed.two)
    assert model.to_sklearn(X).predict(X).tolist() == model.predict(X).tolist()


@pytest.mark.parametrize(
    ("estimator", "positive"),
    [
        (RandomForestClassifier(30, random_state=0), 1),
        (LinearSVC(), 0),
        pytest.param(LinearSVC(), 1, marks=pytest.mark.slow),
    ],
)
def test_a_tuned_estimator_keeps_its_decision(estimator, positive):
    X = np.random.default_rng(0).normal(size=(150, 3))
    y = (X[:, 0] + X[:, 1] > 0.8).astype(int)
    tuned = TunedDecisionClassifier(estimator, "f1", ensemble=False, cv=3, pos_label=positive, random_state=0).fit(X, y)
    plain = tuned.to_sklearn(X)
    new = np.random.default_rng(1).normal(size=(300, 3))
    assert plain.predict(new).tolist() == tuned.predict(new).tolist()


def test_models_without_parts_are_refused_with_a_remedy(mixed, plain_columns):
    several = MetricClassifier("f1", models=["linear"], **TINY).fit(plain_columns[:80], mixed.three[:80])
    with pytest.raises(ExportError, match=r"several classes.*export_onnx"):
        several.to_sklearn()
    two = MetricClassifier("f1", models=["linear"], **TINY).fit(mixed.X[["amount", "since"]][:80], mixed.two[:80])
    with pytest.raises(ExportError, match="dates, text"):
        two.to_sklearn()
    with pytest.raises(ExportError, match="refers rows"):
        two.refer(max_share=0.2).to_sklearn()
    kernel = MetricClassifier("f1", models=["kernel"], **TINY).fit(plain_columns[:80], mixed.two[:80])
    with pytest.raises(ExportError, match=r"made of 'kernel'.*models=\['linear'\]"):
        kernel.to_sklearn()
    X = plain_columns[["visits"]]
    tuned = TunedDecisionClassifier(LogisticRegression(), cv=2, random_state=0).fit(X[:80], mixed.two[:80])
    with pytest.raises(ExportError, match="ensemble=False"):
        tuned.to_sklearn()
    with pytest.raises(InvalidTypeError, match="got LogisticRegression"):
        to_sklearn(LogisticRegression())


def test_parts_that_decide_otherwise_are_not_returned(mixed):
    """Categories that are numbers are text to the model, and numbers to scikit-learn."""
    X = pd.DataFrame({"code": pd.Categorical(np.random.default_rng(0).integers(0, 3, len(mixed.X)))})
    model = MetricClassifier("f1", models=["linear"], **TINY).fit(X, X["code"] == 2)
    with pytest.raises(ExportError, match=r"decide .* rows otherwise"):
        model.to_sklearn(X)
