"""compare: every method is what MetricClassifier fits, models are trained once per fold, cells are read back."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from compare_tables import make_table
from sklearn.metrics import f1_score

from metricfit.data import folds
from metricfit.errors import InvalidValueError
from metricfit.metrics import get_metric
from metricfit.tabular.compare import methods as module
from metricfit.tabular.compare import trainings
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.compare.methods import BASELINES, DEFAULT, REFERENCE, find_method, methods
from metricfit.tabular.compare.verdict import interval_of_mean
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families.choice import DEFAULT as DEFAULT_FAMILIES

SINGLE = ["logistic regression", "small boosted trees", "boosted trees on the metric", "extra trees", "support vectors"]


@pytest.fixture(scope="module")
def everything(tmp_path_factory, quick_networks):
    folder = tmp_path_factory.mktemp("cells")
    X, y = make_table()
    return compare(X, y, "f1", networks=True, folder=folder, folds=2, subject_to=["recall >= 0.3"]), folder


def test_every_method_has_a_value_per_fold(everything):
    comparison, _ = everything
    names = [row.name for row in comparison.rows]
    without_model = set(BASELINES) - {"largest class"}
    assert set(names) == {method.name for method in methods(constrained=True)} | without_model | {REFERENCE}
    assert all(len(row.values) == 2 for row in comparison.rows)
    means = [row.mean for row in comparison.rows if not row.not_reachable]
    assert means == sorted(means, reverse=True)
    assert all(0 <= row.held <= 2 for row in comparison.rows)
    assert comparison.requirements_reachable


def test_again_it_only_reads(everything, fitted):
    comparison, folder = everything
    X, y = make_table()
    again = compare(X, y, "f1", networks=True, folder=folder, folds=2, subject_to=["recall >= 0.3"])
    assert fitted == []
    assert again.rows == comparison.rows
    np.testing.assert_array_equal(again.decisions[DEFAULT].scores, comparison.decisions[DEFAULT].scores)


def test_methods_have_the_values_of_the_classifiers_that_fit_them():
    X, y = make_table()
    comparison = compare(X, y, "f1", methods=[DEFAULT, "boosted trees", *SINGLE], folds=2, seed=3)
    assert {row.name for row in comparison.rows} >= {DEFAULT, "boosted trees", *SINGLE}
    for row in comparison.rows:
        if row.name not in {REFERENCE, *BASELINES}:
            for value, (train, test) in zip(row.values, folds(X, y, 2, seed=3), strict=True):
                model = find_method(row.name).classifier("f1", random_state=3).fit(X.iloc[train], y[train])
                assert value == pytest.approx(model.score(X.iloc[test], y[test])), row.name


def test_methods_share_their_models(fitted):
    X, y = make_table()
    compare(X, y, "f1", methods=[DEFAULT, "boosted trees", *SINGLE], folds=2)
    names = [name for name, _, _ in fitted]
    assert sorted(names) == sorted([*DEFAULT_FAMILIES, "boosting_metric"] * 2)


def test_every_fold_is_encoded_once(monkeypatch):
    tables = []
    fit = TableEncoder.fit

    def record(encoder, X):
        tables.append(X)
        return fit(encoder, X)

    monkeypatch.setattr(TableEncoder, "fit", record)
    X, y = make_table()
    compare(X, y, "f1", methods=["logistic regression"], folds=3)
    assert len(tables) == 3
    assert len({tuple(table.index) for table in tables}) == 3
    assert not trainings._latest


def test_a_second_metric_trains_only_what_depends_on_it(tmp_path, fitted):
    X, y = make_table()
    compare(X, y, "f1", methods=SINGLE, folds=2, folder=tmp_path)
    fitted.clear()
    second = compare(X, y, "mcc", methods=SINGLE, folds=2, folder=tmp_path)
    assert [name for name, _, _ in fitted] == ["boosting_metric"] * 2
    fitted.clear()
    assert compare(X, y, "mcc", methods=SINGLE, folds=2).rows[0].values == second.rows[0].values


def test_only_unfinished_trainings_are_repeated(tmp_path, fitted):
    X, y = make_table()
    first = compare(X, y, "f1", methods=[DEFAULT, "support vectors"], folds=2, folder=tmp_path)
    markers = sorted(path for path in tmp_path.rglob("finished") if REFERENCE not in str(path))
    assert len(markers) == 2 * len(DEFAULT_FAMILIES)  # on two folds
    for path in markers[::2]:
        path.unlink()
    fitted.clear()
    again = compare(X, y, "f1", methods=[DEFAULT, "support vectors"], folds=2, folder=tmp_path)
    assert len(fitted) == len(DEFAULT_FAMILIES)
    assert [(row.name, row.values) for row in again.rows] == [(row.name, row.values) for row in first.rows]


def test_a_damaged_result_is_refused(tmp_path):
    X, y = make_table()
    compare(X, y, "f1", methods=["boosted trees"], folds=2, folder=tmp_path)
    path = next(tmp_path.rglob("boosting/fold 0/report.json"))
    report = json.loads(path.read_text())
    report["result"]["new"] = [[0.0, 1.0]]
    path.write_text(json.dumps(report))
    with pytest.raises(InvalidValueError, match=r"boosting / fold 0 is damaged .* remove its folder"):
        compare(X, y, "f1", methods=["boosted trees"], folds=2, folder=tmp_path)


def test_the_scores_and_the_threshold_are_those_of_the_default():
    X, y = make_table()
    comparison = compare(X, y, "f1", methods=[DEFAULT], folds=2)
    row = next(each for each in comparison.rows if each.name == DEFAULT)
    kept = comparison.decisions[DEFAULT]
    for value, (train, test) in zip(row.values, folds(X, y, 2, seed=0), strict=True):
        assert value == pytest.approx(f1_score(y[test], kept.decided[test]))
        model = find_method(DEFAULT).classifier("f1", random_state=0).fit(X.iloc[train], y[train])
        np.testing.assert_allclose(kept.scores[test], model.predict_proba(X.iloc[test])[:, 1])
    assert 0 < kept.threshold < 1


def test_every_method_keeps_its_decisions(everything):
    (comparison, _), (X, y) = everything, make_table()
    rows = {row.name: row for row in comparison.rows}
    for name, decisions in comparison.decisions.items():
        for value, (_, test) in zip(rows[name].values, folds(X, y, 2, seed=0), strict=True):
            assert value == pytest.approx(f1_score(comparison.labels[test], decisions.decided[test]))
    assert {*rows} - {*comparison.decisions} == {*BASELINES} & {*rows}


def test_the_recommended_method_can_be_fitted():
    X, y = make_table()
    comparison = compare(X, y, "f1", methods=["support vectors"], folds=2, subject_to="recall >= 0.3")
    model = comparison.classifier("support vectors", random_state=0)
    assert (model.models, model.subject_to, model.metric) == (["kernel"], ["recall >= 0.3"], "f1")
    assert comparison.recommended == "support vectors"  # the reference was not chosen for the requirement
    assert comparison.classifier().models == ["kernel"]


def test_groups_and_copies_stay_on_one_side(fitted):
    X, y = make_table()
    X = X[["a", "b", "c"]].assign(row=np.arange(120.0))
    X = pd.concat([X, X.iloc[:40]], ignore_index=True)
    y = np.concatenate([y, 1 - y[:40]])  # copies, though their labels differ
    groups = np.resize(np.repeat(np.arange(40), 3), 160)
    compare(X, y, "f1", methods=[DEFAULT], folds=3, groups=groups)
    assert len(fitted) == 3 * len(DEFAULT_FAMILIES)
    for _, rows, _ in fitted:
        held_out = X.index.difference(rows.features.table.index)
        assert 0 < len(held_out) < 160
        assert not set(groups[held_out]) & set(groups[rows.features.table.index])
        assert not set(X.loc[held_out, "row"]) & set(rows.features.table["row"])


def test_a_model_that_is_not_ready_in_time_is_left_out():
    X, y = make_table()
    comparison = compare(X, y, "f1", methods=[DEFAULT, "boosted trees", "extra trees"], folds=2, time_budget=1e-9)
    compared = {row.name for row in comparison.rows if row.name not in BASELINES}
    assert compared == {DEFAULT, "boosted trees", REFERENCE}
    assert len(comparison.notes) == len(DEFAULT_FAMILIES)
    assert any(note.startswith("extra trees is left out: ") for note in comparison.notes)
    assert any(note.startswith("metricfit does without kernel: ") for note in comparison.notes)
    rows = {row.name: row for row in comparison.rows}
    assert rows[DEFAULT].values == rows["boosted trees"].values  # boosted trees are all that is left
    assert comparison.to_dict()["notes"] == list(comparison.notes)


@pytest.mark.parametrize("name", [method.name for method in module.METHODS])
def test_every_method_makes_a_classifier(name):
    method = next(method for method in module.METHODS if method.name == name)
    model = find_method(method.name).classifier("f1", time_budget=7.0)
    assert model.models == ("auto" if method.name == DEFAULT else list(method.models))
    assert (model.class_weight, model.time_budget) == (method.class_weight, 7.0)


def test_rows_that_are_no_methods_are_refused():
    with pytest.raises(InvalidValueError, match="there is no method 'all positive'; the methods are 'metricfit'"):
        find_method("all positive")


def test_the_interval_of_a_mean_is_that_of_nadeau_and_bengio():
    values = np.array([0.70, 0.74, 0.69, 0.72, 0.75])
    error = math.sqrt(values.var(ddof=1) * (1 / 5 + 0.2 / 0.8))
    low, high = scipy.stats.t.interval(0.95, 4, loc=values.mean(), scale=error)
    assert interval_of_mean(values.tolist(), get_metric("f1")) == pytest.approx((low, high))


def test_the_interval_of_a_mean_stays_within_the_metrics_bounds():
    assert interval_of_mean([0.2, 0.9], get_metric("f1")) == (0.0, 1.0)
    low, high = interval_of_mean([0.2, 0.9], get_metric("cost(fp=1, fn=10)"))
    assert low == 0.0
    assert 1 < high <= 10
    assert interval_of_mean([1.0, 1.0, 1.0], get_metric("f1")) is None
