"""Estimators with a cost for each row: decisions, scores, other metrics and wrong use."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.decide import RowCostDecision
from metricfit.tabular import storage

METRIC = "cost(fp=5, fn='amount')"


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 3)), columns=list("abc"))
    X["amount"] = np.exp(rng.normal(3, 1.2, 400)).round(2)
    X.loc[::20, "amount"] = 0.0
    return X, (X["a"] + 0.5 * X["b"] + rng.normal(size=400) > 1.5).to_numpy().astype(int)


def models(**parameters):
    return [
        MetricClassifier(METRIC, models=["linear"], members=3, random_state=0, **parameters),
        TunedDecisionClassifier(LogisticRegression(max_iter=1000), METRIC, cv=3, random_state=0, **parameters),
    ]


def money(X, y, predicted):
    return np.where(y == 1, (predicted == 0) * X["amount"], (predicted == 1) * 5.0)


@pytest.mark.parametrize("model", models())
def test_each_row_is_decided_by_its_expected_cost(model, rows):
    X, y = rows
    model.fit(X, y)
    p, predicted = model.predict_proba(X)[:, 1], model.predict(X)
    assert (predicted == (p * X["amount"] > (1 - p) * 5)).all()
    assert not predicted[X["amount"] == 0].any()
    assert model.score(X, y) == pytest.approx(-money(X, y, predicted).mean())
    weight = np.random.default_rng(1).random(len(y))
    assert model.score(X, y, weight) == pytest.approx(-np.average(money(X, y, predicted), weights=weight))
    assert ((p >= model.row_thresholds(X)) == predicted).all()
    assert (model.decision_function(X) >= 0).tolist() == predicted.tolist()
    assert model.threshold_ is None
    assert model.threshold_interval_ is None
    assert model.curve_ is None
    low, high = model.value_interval_
    assert 0 < low < model.value_ < high
    never, always = (money(X, y, np.full(len(y), label)).mean() for label in (0, 1))
    assert model.value_ < min(never, always)


@pytest.mark.parametrize("model", models(decision="empirical"))
def test_the_empirical_rule_is_the_cheapest_on_held_out_rows(model, rows):
    X, y = rows
    model.fit(X, y)
    assert (
        model.decision_.evidence.value
        <= model.fit(X, y).set_params(decision="plugin").rethreshold().decision_.evidence.value
    )


@pytest.mark.parametrize("model", models())
def test_other_costs_and_other_metrics_without_training(model, rows):
    X, y = rows
    model.fit(X, y)
    cheap = model.predict(X).sum()
    assert model.rethreshold(metric="cost(fp=50, fn='amount')").predict(X).sum() < cheap
    p = model.predict_proba(X)[:, 1]
    assert (model.predict(X) == (p * X["amount"] > (1 - p) * 50)).all()
    assert model.rethreshold(metric="f1").threshold_ is not None
    assert model.rethreshold(metric=METRIC).predict(X).sum() == cheap
    with pytest.raises(ValueError, match=r"column 'a' were not kept"):
        model.rethreshold(metric="cost(fp=1, fn='a')")
    with pytest.raises(ValueError, match="subject_to cannot be combined"):
        model.rethreshold(subject_to="recall >= 0.9")
    with pytest.raises(ValueError, match="confidence"):
        model.rethreshold(confidence=0.95)
    assert model.metric == METRIC


def test_another_class_balance_changes_the_probabilities_and_so_the_decisions(rows):
    X, y = rows
    model = models()[0].fit(X, y)
    before = model.predict(X).sum()
    model.rethreshold(prevalence=0.5)
    p = model.predict_proba(X)[:, 1]
    assert model.predict(X).sum() > before
    assert (model.predict(X) == (p * X["amount"] > (1 - p) * 5)).all()


@pytest.mark.parametrize("model", models())
def test_columns_that_are_missing_or_wrong_are_named(model, rows):
    X, y = rows
    with pytest.raises(TypeError, match="pass a DataFrame"):
        model.fit(X.to_numpy(), y)
    with pytest.raises(ValueError, match="which the table does not have"):
        model.fit(X.drop(columns="amount"), y)
    with pytest.raises(ValueError, match="1 of 400 are missing"):
        model.fit(X.assign(amount=X["amount"].where(X.index != 3)), y)
    with pytest.raises(ValueError, match="is for two classes"):
        model.fit(X, np.arange(400) % 3)
    model.fit(X, y)
    with pytest.raises(ValueError, match="which the table does not have"):
        model.predict(X.drop(columns="amount"))
    with pytest.raises(ValueError, match="are negative"):
        model.score(X.assign(amount=-X["amount"]), y)
    with pytest.raises(ValueError, match="subject_to cannot be combined"):
        model.set_params(subject_to="recall >= 0.9").fit(X, y)


def test_several_labels_are_refused(rows):
    X, y = rows
    with pytest.raises(ValueError, match="is for two classes"):
        models()[1].fit(X, np.column_stack([y, 1 - y]))


def test_models_that_are_trained_for_a_metric_are_refused(rows):
    X, y = rows
    with pytest.raises(ValueError, match="boosting_metric is trained for a metric of counts"):
        MetricClassifier(METRIC, models=["linear", "boosting_metric"]).fit(X, y)


def test_both_costs_can_be_columns(rows):
    X, y = rows
    X = X.assign(effort=np.arange(len(X)) % 5 + 1.0)
    model = MetricClassifier("cost(fp='effort', fn='amount')", models=["linear"], members=3, random_state=0).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    assert (model.predict(X) == (p * X["amount"] > (1 - p) * X["effort"])).all()
    assert sorted(model.held_out_.columns) == ["amount", "effort"]


@pytest.mark.parametrize("model", models())
def test_a_saved_model_decides_as_before(model, rows, tmp_path):
    X, y = rows
    model.fit(X, y).save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert (loaded.predict(X) == model.predict(X)).all()
    assert (loaded.value_, loaded.value_interval_) == (model.value_, model.value_interval_)
    assert loaded.threshold_ is None
    assert isinstance(loaded.decision_, RowCostDecision)
    assert loaded.rethreshold(metric="cost(fp=50, fn='amount')").value_ == pytest.approx(
        model.rethreshold(metric="cost(fp=50, fn='amount')").value_
    )


def test_a_saved_model_without_its_costs_is_refused(rows, tmp_path, monkeypatch):
    X, y = rows
    monkeypatch.setattr(
        storage, "model_card", lambda *model, **names: ""
    )  # it would count the costs, which are spoilt here
    model = models()[0].fit(X, y)
    for columns, message in (
        ({}, "costs of rows need columns"),
        ({"amount": -model.held_out_.columns["amount"] - 1}, "does not hold one cost per row"),
        ({"amount": model.held_out_.columns["amount"][:-1]}, "does not hold one cost per row"),
    ):
        basis = model.chosen_.basis
        spoilt = dataclasses.replace(basis, held_out=dataclasses.replace(basis.held_out, columns=columns))
        model.chosen_ = dataclasses.replace(model.chosen_, basis=spoilt)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        model.save(folder)
        with pytest.raises(ValueError, match=message):
            MetricClassifier.load(folder)
        model.fit(X, y)


def numbers_of(page):
    return [float(value) for value in re.findall(r'<data value="([^"]+)"', page.read_text())]


def test_the_report_shows_the_money(rows, tmp_path):
    X, y = rows
    model = models()[0].fit(X, y)
    shown = numbers_of(model.report(tmp_path / "model.html"))
    never = money(X, y, np.zeros(len(y))).mean()
    assert any(number == pytest.approx(never) for number in shown)
    assert any(number == pytest.approx(model.decision_.evidence.value) for number in shown)
    shown = numbers_of(model.report(tmp_path / "rows.html", X, y))
    assert any(number == pytest.approx(money(X, y, model.predict(X)).sum()) for number in shown)
    with pytest.raises(ValueError, match="threshold="):
        model.report(tmp_path / "other.html", X, y, threshold=0.3)
