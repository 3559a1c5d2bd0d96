"""compare with weights, with rows kept apart, and by period: as scikit-learn's metrics and MetricClassifier have it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, recall_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import metricfit
from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.data import folds as split_rows
from metricfit.errors import InvalidValueError
from metricfit.metrics import get_metric
from metricfit.stats import bootstrap_difference
from metricfit.tabular.compare.judging import MethodDecisions
from metricfit.tabular.compare.methods import REFERENCE
from metricfit.tabular.compare.paired_rows import FoldTest, RowTest

N = 240


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"])
    X["w"] = rng.integers(0, 4, N).astype(float)
    X["y"] = np.where(X["a"] + rng.normal(size=N) > 0.6, "bad", "good")
    return X


def row_of(comparison, name):
    return next(row for row in comparison.rows if row.name == name)


def test_values_and_trainings_are_weighted(table):
    mine = ("mine", LogisticRegression())
    found = metricfit.compare(table, "y", "f1", methods=[mine], folds=3, sample_weight="w")
    there = table[table["w"] > 0].reset_index(drop=True)
    X, y, w = there[["a", "b", "c"]], there["y"], there["w"]
    truth = (y == "bad").astype(int)
    splits = list(split_rows(X, truth.to_numpy(), 3, seed=0))
    expected = []
    for train, test in splits:
        model = LogisticRegression().fit(X.iloc[train], y[train], sample_weight=w[train])
        decided = model.predict(X.iloc[test])
        expected.append(f1_score(y[test], decided, pos_label="bad", sample_weight=w[test]))
    assert row_of(found, "mine").values == pytest.approx(expected)
    tuned = []
    for train, test in splits:
        model = TunedDecisionClassifier(LogisticRegression(), "f1", pos_label="bad", random_state=0)
        model.fit(X.iloc[train], y[train], sample_weight=w[train])
        tuned.append(f1_score(y[test], model.predict(X.iloc[test]), pos_label="bad", sample_weight=w[test]))
    assert row_of(found, "mine, tuned").values == pytest.approx(tuned)
    everyone = [f1_score(truth[test], np.ones(len(test)), sample_weight=w[test]) for _, test in splits]
    assert row_of(found, "all positive").values == pytest.approx(everyone)
    assert len(found.labels) == len(there) < N
    plain = metricfit.compare(there.drop(columns="w"), "y", "f1", methods=[mine], folds=3, sample_weight=w)
    assert row_of(plain, REFERENCE).values == row_of(found, REFERENCE).values


def test_whole_weights_are_copies_of_rows_for_requirements(table):
    there = table[table["w"] > 0]
    found = metricfit.compare(
        there, "y", "precision", methods=["logistic regression"], folds=2, sample_weight="w", subject_to="recall >= 0.8"
    )
    row = row_of(found, "logistic regression")
    decided = found.decisions["logistic regression"].decided
    (requirement,) = row.requirements
    expected = recall_score(found.labels, decided, sample_weight=found.weight)
    assert requirement.value == pytest.approx(expected)
    low, high = requirement.interval
    assert low < expected < high


def test_a_model_without_weights_is_named(table):
    found = metricfit.compare(table, "y", "f1", methods=[("near", KNeighborsClassifier())], folds=2, sample_weight="w")
    assert any("near takes no weights in training" in note for note in found.notes)


@pytest.mark.parametrize(
    ("weight", "message"),
    [(-1.0, "Negative values"), (np.nan, "missing in 1 of 240"), (0.0, None)],
)
def test_wrong_weights_are_refused(table, weight, message):
    frame = table.copy()
    frame["w"] = 1.0
    frame.loc[3, "w"] = weight
    if message is None:
        assert len(metricfit.compare(frame, "y", methods=[], folds=2, sample_weight="w").labels) == N - 1
        return
    with pytest.raises(ValueError, match=message):
        metricfit.compare(frame, "y", methods=[], folds=2, sample_weight="w")


def test_a_column_is_named_once(table):
    with pytest.raises(InvalidValueError, match="groups and sample_weight both name the column 'w'"):
        metricfit.compare(table, "y", methods=[], sample_weight="w", groups="w")


def test_the_weighted_test_of_rows_agrees_with_a_bootstrap_of_the_rows():
    rng = np.random.default_rng(1)
    labels = (rng.random(600) < 0.3).astype(np.int64)
    first, second = ((labels ^ (rng.random(600) < share)).astype(np.int64) for share in (0.15, 0.2))
    weight = rng.gamma(1.0, size=600)
    one_fold = np.zeros(600, dtype=np.int64)
    decisions = {name: MethodDecisions(None, each, folds=one_fold) for name, each in (("a", first), ("b", second))}
    values = {name: [f1_score(labels, each, sample_weight=weight)] for name, each in (("a", first), ("b", second))}
    test = RowTest.of(decisions, labels, "macro", FoldTest(values, get_metric("f1")), weight)
    low, high = test("a", "b").interval
    expected = bootstrap_difference(
        first.astype(float), second.astype(float), labels, "f1", threshold=0.5, weight=weight, stratified=False
    )
    assert low == pytest.approx(expected.interval[0], abs=0.015)
    assert high == pytest.approx(expected.interval[1], abs=0.015)
    equal = RowTest.of(decisions, labels, "macro", FoldTest(values, get_metric("f1")), np.ones(600))
    plain = RowTest.of(decisions, labels, "macro", FoldTest(values, get_metric("f1")))
    assert equal("a", "b").interval == pytest.approx(plain("a", "b").interval, abs=0.01)


def test_rows_kept_apart_choose_the_decision(table):
    X = table.drop(columns=["w", "y"])
    methods = ["logistic regression", ("mine", LogisticRegression())]
    found = metricfit.compare(X, table["y"], "f1", methods=methods, folds=2, calibration=0.4, seed=3)
    plain = metricfit.compare(X, table["y"], "f1", methods=methods, folds=2, seed=3)
    assert row_of(found, "mine").values == row_of(plain, "mine").values
    assert row_of(found, "mine, tuned").values != row_of(plain, "mine, tuned").values
    model = found.classifier("logistic regression")
    assert isinstance(model, MetricClassifier)
    assert model.calibration == 0.4
    truth = (table["y"] == "bad").to_numpy().astype(np.int64)
    train, test = next(iter(split_rows(X, truth, 2, seed=3)))
    model = MetricClassifier(
        "f1", models=["linear"], calibration=0.4, pos_label="bad", random_state=3, time_budget=None
    )
    model.fit(X.iloc[train], table["y"].iloc[train])
    value = f1_score(table["y"].iloc[test], model.predict(X.iloc[test]), pos_label="bad")
    assert row_of(found, "logistic regression").values[0] == pytest.approx(value, abs=0.1)  # other rows are drawn


def test_a_confidence_is_guaranteed_on_rows_kept_apart(table):
    found = metricfit.compare(
        table.drop(columns="w"),
        "y",
        "precision",
        methods=["logistic regression"],
        folds=2,
        calibration=0.5,
        subject_to="recall >= 0.5",
        confidence=0.8,
    )
    assert row_of(found, "logistic regression").requirements[0].held


@pytest.mark.parametrize(
    ("calibration", "error", "message"),
    [
        (1.2, InvalidValueError, "calibration is a share of the rows below 1"),
        ("x", TypeError, "calibration"),
        (0.001, InvalidValueError, "leaves no row"),
    ],
)
def test_wrong_shares_are_refused(table, calibration, error, message):
    with pytest.raises(error, match=message):
        metricfit.compare(table, "y", methods=[], folds=2, calibration=calibration)


def test_values_by_period(table):
    X = table.drop(columns="w").assign(day=pd.date_range("2024-01-01", periods=N)).sample(frac=1, random_state=0)
    found = metricfit.compare(X, "y", "f1", methods=[("mine", GaussianNB())], folds=3, time="day")
    assert [(each.first, each.last, each.rows) for each in found.periods] == [
        ("2024-03-01", "2024-04-29", 60),
        ("2024-04-30", "2024-06-28", 60),
        ("2024-06-29", "2024-08-27", 60),
    ]
    assert tuple(each.values["mine"] for each in found.periods) == row_of(found, "mine").values
    assert found.over_time[:2] == [REFERENCE, "mine"]
    assert found.to_dict()["periods"][0]["values"][REFERENCE] == row_of(found, REFERENCE).values[0]
