"""compare: identical folds, values recomputed, finished cells read back."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.metrics import f1_score, recall_score

from metricfit.data import folds
from metricfit.metrics import get_metric
from metricfit.tabular.compare import fold_cells as module
from metricfit.tabular.compare import methods as ways
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.compare.standings import interval_of_mean

SMALL = {"network": "mlp", "members": 2, "epochs": 3, "time_budget": None}


def table(n=240):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    X["town"] = rng.choice(["Ulm", "Bonn", None], n)
    X.loc[3, "a"] = np.nan
    y = (X["b"] + 0.5 * rng.normal(size=n) > 0.7).to_numpy().astype(np.int64)
    return X, y


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    X, y = table()
    return compare(X, y, "f1", folder=folder, folds=2, subject_to=["recall >= 0.3"], **SMALL), folder


def test_every_method_has_a_value_a_fold(found):
    comparison, _ = found
    names = [row.name for row in comparison.rows]
    assert set(names) == {method.name for method in ways.methods(True)} | {"cross-entropy at 0.5"}
    assert all(len(row.values) == 2 for row in comparison.rows)
    means = [row.mean for row in comparison.rows]
    assert means == sorted(means, reverse=True)
    assert all(0 <= row.held <= 2 for row in comparison.rows)


def test_the_default_keeps_every_members_losses(found):
    histories = found[0].histories
    assert [len(each) for each in histories] == [3] * 4  # epochs, of two members in each of two folds
    assert all(row["train_loss"] > 0 and row["validation_loss"] > 0 for each in histories for row in each)
    assert module.losses_by_member([{"member": 0, "train_loss": math.nan}]) == [
        [{"train_loss": None, "validation_loss": None}]
    ]


def test_the_defaults_values_are_scikit_learns_of_its_scores(found):
    comparison, folder = found
    X, y = table()
    outer = folds(X, y, 2, seed=0)
    row = next(each for each in comparison.rows if each.name == ways.DEFAULT)
    for at, (_, part) in enumerate(outer):
        path = module.Cell(("table", ways.DEFAULT, f"fold {at}"), {}).folder(folder)
        threshold = pd.read_json(path / "report.json", typ="series")["result"]["threshold"]
        decided = comparison.scores[part] >= threshold
        assert row.values[at] == pytest.approx(f1_score(y[part], decided))
    assert 0 < recall_score(y, comparison.scores >= comparison.threshold) <= 1


def test_again_it_only_reads(found, monkeypatch):
    comparison, folder = found
    monkeypatch.setattr(module, "train", None)  # what would be called for a cell that is not there
    X, y = table()
    again = compare(X, y, "f1", folder=folder, folds=2, subject_to=["recall >= 0.3"], **SMALL)
    assert again.rows == comparison.rows
    np.testing.assert_array_equal(again.scores, comparison.scores)


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
