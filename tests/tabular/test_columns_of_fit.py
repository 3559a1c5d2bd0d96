"""Rows to predict may have their columns in any order, and more of them, if the names of fit are known."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression

from metricfit import MetricClassifier, TunedDecisionClassifier


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a b", "b", "c"])
    return X, (X["a b"] - X["b"] + rng.normal(size=200) > 0).astype(int)


@pytest.mark.parametrize(
    "model",
    [
        MetricClassifier("f1", models=["linear"], random_state=0),
        TunedDecisionClassifier(LogisticRegression(), "f1"),
        TunedDecisionClassifier(LGBMClassifier(n_estimators=5, verbose=-1), "f1"),
    ],
    ids=["classifier", "tuned", "tuned LightGBM"],
)
def test_order_and_further_columns_do_not_matter(model, table):
    X, y = table
    model.fit(X, y)
    mixed = X[["c", "a b", "b"]].assign(note="text")
    assert (model.predict_proba(mixed) == model.predict_proba(X)).all()
    assert (model.predict(mixed) == model.predict(X)).all()
    with pytest.raises(ValueError, match=r"X lacks 1 of the columns .*: .b.\. Did you mean .B."):
        model.predict(X.rename(columns={"b": "B"}))
    again = X.copy()
    again.insert(0, "b", 1.0, allow_duplicates=True)
    with pytest.raises(ValueError, match="several columns of one name"):
        model.predict(again)
