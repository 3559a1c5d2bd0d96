"""The rows that a model gets most wrong."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from metricfit import MetricClassifier, TunedDecisionClassifier


@pytest.fixture(scope="module")
def model(messy, quick_settings):
    frame, y = messy
    return MetricClassifier("f1", **quick_settings).fit(frame[:150], y[:150])


def test_worst_rows_are_those_with_the_least_probability_of_the_truth(model, messy):
    X, y = messy[0][150:], messy[1][150:]
    result = model.worst(X, y, n=7)
    probability = model.predict_proba(X)
    of_truth = probability[np.arange(150), np.searchsorted(model.classes_, y)]
    order = np.argsort(of_truth)[:7]
    assert result.numbers.tolist() == order.tolist()
    assert result.table.index.tolist() == X.index[order].tolist()
    assert result.table["truth"].tolist() == y[order].tolist()
    assert result.table["decision"].tolist() == model.predict(X)[order].tolist()
    assert np.allclose(result.table["probability"], probability[order, 1])
    assert result.positive == "yes"
    assert result.table["kind"].tolist() == X["kind"].iloc[order].tolist()
    assert result.wrong == int((model.predict(X) != y).sum())
    assert "The 7 worst of 150 rows" in repr(result)


def test_out_of_fold_probabilities_are_those_of_fit(model, messy):
    X, y = messy[0][:150], messy[1][:150]
    table = model.worst(X, y, n=150, out_of_fold=True).table.sort_index()
    assert np.allclose(table["probability"], 1 / (1 + np.exp(-model.held_out_.logits.squeeze())), atol=1e-6)


def test_several_classes_and_referred_rows(blobs, quick_settings):
    X, y = blobs[0], blobs[1] + 2 * (blobs[0][:, 1] > 1)
    several = MetricClassifier("accuracy", **quick_settings).fit(X[:200], y[:200])
    table = several.worst(X[200:], y[200:], n=3).table
    chosen = several.predict_proba(X[200:])[np.arange(200), np.searchsorted(several.classes_, y[200:])]
    assert np.allclose(table["probability"], np.sort(chosen)[:3])
    assert several.worst(X[200:], y[200:]).positive is None
    two = TunedDecisionClassifier(LogisticRegression(), cv=3, random_state=0).fit(X[:200], blobs[1][:200])
    referred = two.refer(max_share=0.2).worst(X[200:], blobs[1][200:], n=200)
    decided = two.predict(X[200:])
    assert "refer" in set(referred.table["decision"])
    assert referred.wrong == int(((decided != "refer") & (decided != blobs[1][200:])).sum())


def test_costs_come_first_and_names_do_not_collide(quick_settings):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"amount": rng.exponential(100, 200), "truth": rng.normal(size=200)})
    y = (frame["truth"] + 0.5 * rng.normal(size=200) > 0.8).astype(int)
    model = MetricClassifier("cost(fp=10, fn='amount')", **quick_settings).fit(frame[:100], y[:100])
    table = model.worst(frame[100:], y[100:], n=5).table
    assert list(table.columns) == ["truth_", "decision", "probability", "cost", "amount", "truth"]
    assert table["cost"].is_monotonic_decreasing
    missed = (table["truth_"] == 1) & (table["decision"] == 0)
    assert (table["cost"][missed] == table["amount"][missed]).all()
    assert (table["cost"][~missed] == 10).all()


def test_wrong_use(model, messy):
    with pytest.raises(ValueError, match="n is a whole number of rows to show, at least 1"):
        model.worst(*messy, n=0)
    with pytest.raises(ValueError, match="X lacks 2 of the columns"):
        model.worst(messy[0].drop(columns=["kind", "number"]), messy[1])
