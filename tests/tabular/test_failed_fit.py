"""A fit or a rethreshold that fails leaves the model as it was."""

import numpy as np
import pandas as pd
import pytest

from metricfit import MetricClassifier
from metricfit.tabular import deciding


@pytest.fixture
def fitted(quick, blobs):
    X, y = blobs
    model = MetricClassifier(**{**quick, "members": 2})
    return model.set_params(subject_to=["precision >= 0.3", "recall >= 0.5"]).fit(X, y)


def learned(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_") or name.startswith("_")}


def same(one, other):
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def test_a_balance_that_is_none_changes_nothing(fitted, blobs):
    X, _ = blobs
    before, probabilities = learned(fitted), fitted.predict_proba(X)
    with pytest.raises(ValueError, match="prevalence"):
        fitted.rethreshold(1.5, subject_to="recall >= 0.7")
    assert same(learned(fitted), before)
    assert fitted.subject_to == ["precision >= 0.3", "recall >= 0.5"]
    assert np.array_equal(fitted.predict_proba(X), probabilities)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("what", ["other labels", "other columns"])
def test_a_refit_that_fails_changes_nothing(fitted, blobs, what, error, monkeypatch):
    X, y = blobs
    before, labels = learned(fitted), fitted.predict(X)

    def fail(*given, **settings):
        raise error

    monkeypatch.setattr(deciding, "choose_decision", fail)
    other = pd.DataFrame(X[:, :3], columns=list("abc")) if what == "other columns" else X
    with pytest.raises(error):
        fitted.fit(other, np.where(y == 1, "cat", "dog"))
    assert same(learned(fitted), before)
    assert np.array_equal(fitted.predict(X), labels)


def test_a_first_fit_that_fails_leaves_nothing(quick, blobs):
    X, y = blobs
    model = MetricClassifier(**{**quick, "models": "cake"})
    with pytest.raises(ValueError, match="a model is one of"):
        model.fit(X, y)
    assert not learned(model)
