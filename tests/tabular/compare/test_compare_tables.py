"""compare takes the tables that fit takes, rare classes, and requirements that a method cannot reach."""

import json
import re
from html import unescape
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from metricfit.cli import compare as comparing
from metricfit.data import folds
from metricfit.tabular.compare import fold_cells as module
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE, methods, train
from metricfit.tabular.compare.verdict import headline

TINY = {"folds": 3, "network": "mlp", "members": 2, "epochs": 1, "time_budget": None}
N = 90


def table(n=N):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    return X, (X["b"] + 0.5 * rng.normal(size=n) > 0.3).to_numpy().astype(np.int64)


def gaps(values):
    """None for every third."""
    return [None if at % 3 == 0 else value for at, value in enumerate(values)]


YES = [at % 2 == 0 for at in range(N)]
COLUMNS = {
    "bool": YES,
    "bool with gaps": gaps(YES),
    "date": pd.date_range("2020-01-01", periods=N),
    "empty": [None] * N,
    "empty number": [np.nan] * N,
    "almost empty": [1.0, 2.0] + [np.nan] * (N - 2),
    "Int64": pd.array(gaps(range(N)), dtype="Int64"),
    "string": pd.array(gaps(["x", "y", "z"] * 30), dtype="string"),
    "boolean": pd.array(gaps(YES), dtype="boolean"),
    "category": pd.Categorical(gaps(["x", "y", "z"] * 30)),
    "duration": pd.to_timedelta(range(N), unit="h"),
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", ["logistic regression", "boosted trees"])
def test_columns_of_every_kind(name, column):
    X, y = table()
    X[column] = COLUMNS[column]
    method = next(each for each in methods(False) if each.name == name)
    rest, part = folds(X, y, 3, seed=0)[0]
    scores = train(method, X.iloc[rest], y[rest], "f1", [], members=2).scores(X.iloc[part])
    there = scores[y[part] == 1].mean() - scores[y[part] == 0].mean()
    assert there > 0.2  # the other columns are learned from


def test_trees_take_numbers_as_they_are_and_categories_as_codes():
    X, y = table()
    towns = gaps(["x", "y", "z"] * 30)
    X["town"] = towns
    X["flag"] = ["no", "yes"] * 45
    X.loc[5, "a"] = np.nan
    trees = next(each for each in methods(False) if each.trees)
    found = train(trees, X, y, "f1", [], members=2).model.numbers(X)
    np.testing.assert_array_equal(found[:, :3], X[["a", "b", "c"]].to_numpy())
    np.testing.assert_array_equal(found[:, 3], [{"y": 1, "z": 2, None: 3}[each] for each in towns])
    np.testing.assert_array_equal(found[:, 4], X["flag"] == "yes")


@pytest.mark.parametrize(("rows", "positives"), [(60, 3), (150, 2)])
def test_trees_of_few_positives(rows, positives):
    X, _ = table(rows)
    y = (np.arange(rows) < positives).astype(np.int64)
    X.loc[y == 1, "b"] += 5
    trees = next(each for each in methods(False) if each.trees)
    fitted = train(trees, X, y, "f1", [], members=4)
    assert np.isfinite(fitted.scores(X)).all()


def test_trees_of_many_positives_stop_early():
    X, y = table(400)
    trees = next(each for each in methods(False) if each.trees)
    assert train(trees, X, y, "f1", [], members=2).model.model.n_iter_ < 100


@pytest.fixture
def hard(monkeypatch):
    """In place of training: the methods named here reach no threshold, on all folds or on the first."""
    never, once = set(), set()
    X, y = table()
    first = set(X.index[folds(X, y, 3, seed=0)[0][0]])

    def fake(method, X, y, *, subject_to, **how):
        infeasible = subject_to and (method.name in never or (method.name in once and set(X.index) == first))
        model = SimpleNamespace(history_=[{"member": 0, "train_loss": 0.5, "validation_loss": 0.5}])
        return SimpleNamespace(
            threshold=0.1 + len(method.name) / 100,
            model=model,
            scores=lambda X: 1 / (1 + np.exp(-X["b"].to_numpy())),
            not_reachable="precision reaches 0.4" if infeasible else None,
        )

    monkeypatch.setattr(module, "train", fake)
    return never, once


def shown(found, tmp_path, capsys):
    """The page and the table, as text."""
    path = found.report(tmp_path / "page.html")
    comparing.print_result({}, False, [comparing.table_of(found)])
    return path.read_text(encoding="utf-8"), capsys.readouterr().out


def test_one_method_out_of_reach_on_one_fold_is_marked_and_keeps_its_values(hard, tmp_path, capsys):
    X, y = table()
    within_reach = compare(X, y, "recall", folder=tmp_path / "before", subject_to=["precision >= 0.9"], **TINY)
    hard[1].add("boosted trees")
    found = compare(X, y, "recall", folder=tmp_path / "cells", subject_to=["precision >= 0.9"], **TINY)
    trees = found.rows[-1]
    assert (trees.name, trees.not_reachable) == ("boosted trees", ("precision reaches 0.4",))
    assert trees.values == next(row for row in within_reach.rows if row.name == "boosted trees").values
    assert not any(row.not_reachable for row in found.rows[:-1])
    page, printed = shown(found, tmp_path, capsys)
    assert re.search(r"boosted trees .*│ \d of 3 \(out of reach on 1\)", printed)
    assert "With boosted trees no threshold met the requirements on the training rows of 1 of 3 folds" in page
    assert headline(found.rows, "recall") in unescape(page)
    assert trees.to_dict()["not_reachable"] == ("precision reaches 0.4",)
    again = compare(X, y, "recall", folder=tmp_path / "cells", subject_to=["precision >= 0.9"], **TINY)
    assert again.rows == found.rows


@pytest.mark.parametrize(
    ("names", "when"), [({DEFAULT}, 0), ({DEFAULT}, 1), ({REFERENCE}, 1), ({DEFAULT, REFERENCE}, 0)]
)
def test_default_and_reference_out_of_reach(hard, tmp_path, capsys, names, when):
    hard[when].update(names)
    X, y = table()
    found = compare(X, y, "recall", folder=tmp_path / "cells", subject_to=["precision >= 0.9"], **TINY)
    rows = {row.name: row for row in found.rows}
    assert {name for name, row in rows.items() if row.not_reachable} == names
    assert found.recommended not in names
    assert np.isfinite(found.scores).all()
    page, printed = shown(found, tmp_path, capsys)
    assert printed.count("(out of reach on") == len(names)
    assert "(reference)" in page


def test_every_method_out_of_reach(hard, tmp_path, capsys):
    hard[0].update(each.name for each in methods(True))
    X, y = table()
    found = compare(X, y, "recall", folder=tmp_path / "cells", subject_to=["precision >= 0.9"], **TINY)
    assert "Loosen the requirements" in found.verdict
    assert found.recommended is not None
    page, printed = shown(found, tmp_path, capsys)
    assert "No method could meet the requirements everywhere" in page
    assert printed.count("(out of reach on 3)") == 8


def test_the_threshold_of_trees_out_of_reach_is_the_nearest():
    X, y = table()
    for name in ("logistic regression", "boosted trees", REFERENCE):
        method = next(each for each in methods(True) if each.name == name)
        how = {"network": "mlp", "members": 2, "epochs": 1, "time_budget": None}
        fitted = train(method, X, y, "recall", ["precision >= 1", "recall >= 1"], **how)
        assert "no threshold gives precision >= 1 and recall >= 1 together" in fitted.not_reachable
        assert np.isfinite(fitted.scores(X)).all()
        assert 0 < fitted.threshold < 1


def test_a_default_that_calls_nothing_positive_has_no_threshold(tmp_path, monkeypatch, capsys):
    model = SimpleNamespace(history_=[])
    nothing = SimpleNamespace(
        threshold=float("inf"), model=model, scores=lambda X: np.zeros(len(X)), not_reachable=None
    )
    monkeypatch.setattr(module, "train", lambda *given, **how: nothing)
    found = compare(*table(), "specificity", folder=tmp_path / "cells", **TINY)
    assert found.threshold is None
    shown(found, tmp_path, capsys)


def test_the_same_difference_on_every_fold_shows_neither_interval_nor_p(tmp_path, capsys, monkeypatch):
    def fake(method, X, y, **how):
        always = np.ones if method.name == REFERENCE else np.zeros
        model = SimpleNamespace(history_=[])
        return SimpleNamespace(threshold=0.5, model=model, scores=lambda X: always(len(X)), not_reachable=None)

    monkeypatch.setattr(module, "train", fake)
    found = compare(*table(), "recall", folder=tmp_path / "cells", **TINY)
    _, printed = shown(found, tmp_path, capsys)
    line = next(each for each in printed.splitlines() if "boosted trees" in each)
    assert re.search(r"│ -1\.000 +│ +│", line), line
    beside = next(row for row in found.rows if row.name == "boosted trees").to_dict()["versus_reference"]
    assert json.loads(json.dumps(beside)) == {"difference": -1.0, "interval": None, "p_value": None}
