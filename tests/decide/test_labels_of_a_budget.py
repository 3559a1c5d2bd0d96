"""Exactly k rows, or k labels of every row: against xcolumns, against all choices, and in estimators."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from metricfit import TunedDecisionClassifier
from metricfit.decide import DecisionModule, TopLabelsDecision, best_decision
from metricfit.decide.budget import choose_top_labels
from metricfit.decide.decision import restore_decision
from metricfit.decide.held_out import collect_label_rows
from metricfit.decide.labels import label_value
from metricfit.decide.rules import Goal
from metricfit.metrics import get_metric

#: Macro metrics at k on the rows of ``draw_labels``: of the k most probable labels, and of the best single decision
#: that ``find_classifier_using_fw`` of xcolumns 0.0.2 meets from there, on the labels and on the expected counts.
XCOLUMNS = {
    ("f1", 1): (0.2787, 0.3785, 0.3545),
    ("f1", 3): (0.4606, 0.4901, 0.4841),
    ("f1", 5): (0.4521, 0.4707, 0.4641),
    ("recall", 1): (0.2012, 0.2938, 0.2869),
    ("recall", 3): (0.5185, 0.5886, 0.6018),
    ("recall", 5): (0.7303, 0.7744, 0.7872),
    ("jaccard", 1): (0.1737, 0.2359, 0.2159),
    ("jaccard", 3): (0.3091, 0.3301, 0.3254),
    ("jaccard", 5): (0.2983, 0.3163, 0.3093),
}


def draw_labels(n=600, c=12):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, c)) * 1.5 + np.linspace(-4, -0.5, c)
    return z, (rng.random((n, c)) < 1 / (1 + np.exp(-z))).astype(np.int64)


@pytest.mark.parametrize(("name", "k"), XCOLUMNS)
def test_macro_at_k_is_as_good_as_in_xcolumns(name, k):
    (z, y), metric = draw_labels(), get_metric(name)
    rows = collect_label_rows(z, y, None, None)
    most_probable, *expected = XCOLUMNS[name, k]
    top = TopLabelsDecision(np.ones(12), np.zeros(12), k).decide(z)
    assert label_value(top, y, None, metric, "macro") == pytest.approx(most_probable, abs=5e-5)
    for rule, truth, value in zip(("empirical", "plugin"), (y, 1 / (1 + np.exp(-z))), expected, strict=True):
        decided = choose_top_labels(rows, Goal(metric, rule=rule), k).decide(z)
        assert (decided.sum(1) == k).all()
        assert label_value(decided, truth, None, metric, "macro") >= value - 1e-3


@pytest.mark.parametrize(("name", "average"), [("recall", "macro"), ("recall", "weighted"), ("f1", "micro")])
def test_the_best_labels_are_the_ones_of_all_choices(name, average):
    z, y = draw_labels(5, 4)
    p, metric = 1 / (1 + np.exp(-z)), get_metric(name)
    rows = collect_label_rows(z, y, None, None)
    decided = choose_top_labels(rows, Goal(metric, average=average), 1).decide(z)
    values = (
        label_value(np.eye(4)[list(of)], p, None, metric, average) for of in itertools.product(range(4), repeat=5)
    )
    assert label_value(decided, p, None, metric, average) == pytest.approx(max(values))


def test_a_metric_that_is_minimised():
    z, y = draw_labels()
    rows = collect_label_rows(z, y, None, None)
    cost, value = get_metric("cost(fp=1, fn=5)"), []
    for decision in (choose_top_labels(rows, Goal(cost), 3), TopLabelsDecision(np.ones(12), np.zeros(12), 3)):
        value.append(label_value(decision.decide(z), 1 / (1 + np.exp(-z)), None, cost, "macro"))
    assert value[0] <= value[1]


@pytest.mark.parametrize("average", ["macro", "micro", "samples"])
def test_best_decision_with_k_labels_per_row(average):
    z, y = draw_labels()
    raw = 2 * z + 1
    decision = best_decision(raw, y, "f1", budget=3, average=average)
    assert (decision.decide(raw).sum(1) == 3).all()
    assert torch.equal(decision.decide(torch.from_numpy(raw)), torch.from_numpy(decision.decide(raw)))
    assert ((decision.margins(raw) > 0) == decision.decide(raw)).all()
    evidence = decision.evidence
    assert evidence.value == pytest.approx(f1_score(y, decision.decide(raw), average=average))
    assert evidence.value_interval[0] < evidence.value < evidence.value_interval[1]
    again = restore_decision(decision.state())
    assert (again.decide(raw) == decision.decide(raw)).all()
    assert again.describe() == "the 3 best labels of each row"


def test_all_labels_and_none():
    z, y = draw_labels(20, 3)
    for budget in (0, 3):
        decision = best_decision(z, y, "f1", budget=budget)
        assert (decision.decide(z) == (budget == 3)).all()
        assert ((decision.margins(z) > 0) == (budget == 3)).all()


def test_k_rows_of_two_classes():
    rng = np.random.default_rng(0)
    y = rng.random(300) < 0.2
    z = rng.normal(size=300) + 2 * y
    for budget in (0, 40, 300):
        decision = best_decision(z, y.astype(int), "f1", budget=budget)
        assert decision.decide(z).sum() == budget
        assert set(np.flatnonzero(decision.decide(z))) == set(np.argsort(-z)[:budget])
        assert decision.evidence.value == pytest.approx(f1_score(y, decision.decide(z)))


@pytest.mark.parametrize(
    ("budget", "message"), [(-1, "budget=-1: there are 300 rows"), (301, "there are 300 rows"), (0.1, "number of rows")]
)
def test_wrong_budgets_are_refused(budget, message):
    y = np.arange(300) % 2
    with pytest.raises((TypeError, ValueError), match=message):
        best_decision(np.linspace(-1, 1, 300), y, "f1", budget=budget)


def test_a_budget_stands_for_itself():
    y = np.arange(300) % 3
    with pytest.raises(ValueError, match="leave subject_to, confidence and prevalence out"):
        best_decision(np.linspace(-1, 1, 300), y % 2, "f1", budget=3, subject_to="recall >= 0.5")
    with pytest.raises(ValueError, match="two classes or several labels"):
        best_decision(np.eye(3)[y], y, "f1", budget=3)


@pytest.mark.parametrize(
    "metric",
    ["mcc", "accuracy", "f1[2]", lambda c: c.tp / np.maximum(c.tp + c.fp + c.fn, 1)],
    ids=["mcc", "accuracy", "f1[2]", "formula"],
)
def test_every_metric_of_counts_has_best_labels(metric):
    z, y = draw_labels()
    rows = collect_label_rows(z, y, None, None)
    goal = Goal(get_metric(metric))
    found, top = choose_top_labels(rows, goal, 3), TopLabelsDecision(np.ones(12), np.zeros(12), 3)
    p = 1 / (1 + np.exp(-z))
    values = [label_value(each.decide(z), p, None, goal.metric, "macro") for each in (found, top)]
    assert values[0] >= values[1]
    if metric != "accuracy":
        assert values[0] > values[1] + 0.005


def test_a_module_is_not_for_a_number_of_labels():
    with pytest.raises(ValueError, match="gives every row as many labels"):
        DecisionModule(torch.nn.Identity(), TopLabelsDecision([1.0, 1.0], [0.0, 0.0], 1))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 4)), columns=list("abcd"))
    return X.assign(amount=rng.integers(1, 100, 300)), (X["a"] + rng.normal(size=300) > 1).to_numpy()


def test_estimators_flag_exactly_k_rows(table):
    X, y = table
    model = TunedDecisionClassifier(LogisticRegression(max_iter=1000), "f1", cv=3, random_state=0)
    model.fit(X, np.where(y, "yes", "no"))
    flagged = model.predict(X, budget=50) == "yes"
    assert flagged.sum() == 50
    p = model.predict_proba(X)[:, list(model.classes_).index("yes")]
    assert p[flagged].min() >= p[~flagged].max()
    assert set(model.refer(max_share=0.1).predict(X, budget=50)) == {"yes", "no"}
    with pytest.raises(ValueError, match="there are 300 rows"):
        model.predict(X, budget=301)


def test_rows_with_costs_of_their_own_are_flagged_by_what_they_are_expected_to_save(table):
    X, y = table
    model = TunedDecisionClassifier(LogisticRegression(max_iter=1000), "cost(fp=5, fn='amount')", cv=3, random_state=0)
    flagged = model.fit(X, y).predict(X, budget=30)
    p = model.predict_proba(X)[:, 1]
    saved = p * X["amount"] - (1 - p) * 5
    assert flagged.sum() == 30
    assert saved[flagged].min() >= saved[~flagged].max()


def test_estimators_predict_exactly_k_labels(table):
    X, _ = table
    y = (X[list("abc")].to_numpy() > [0.0, 0.5, 1.0]).astype(int)
    forest = RandomForestClassifier(30, min_samples_leaf=5, random_state=0)
    model = TunedDecisionClassifier(forest, "f1", cv=3, random_state=0).fit(X, y)
    assert (model.predict(X, budget=2).sum(1) == 2).all()
    assert model.predict(X).sum(1).min() < 2
