"""compare: identical folds, values recomputed, finished cells read back."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, recall_score

from metricfit.data import folds
from metricfit.experiments import compare as module
from metricfit.experiments import methods as ways
from metricfit.experiments.compare import Row, compare, verdict
from metricfit.stats import compare_splits

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
    return compare(X, y, "f1", folder, parts=2, subject_to=["recall >= 0.3"], **SMALL), folder


def test_every_method_has_a_value_a_fold(found):
    comparison, _ = found
    names = [row.name for row in comparison.rows]
    assert set(names) == {method.name for method in ways.methods(True)} | {"cross-entropy at 0.5"}
    assert all(len(row.values) == 2 for row in comparison.rows)
    means = [row.mean for row in comparison.rows]
    assert means == sorted(means, reverse=True)
    assert all(0 <= row.held <= 2 for row in comparison.rows)


def test_the_defaults_values_are_scikit_learns_of_its_scores(found):
    comparison, folder = found
    X, y = table()
    outer = folds(X, y, 2, seed=0)
    row = next(each for each in comparison.rows if each.name == ways.DEFAULT)
    cells = module.cells
    for at, (_, part) in enumerate(outer):
        path = cells.Cell(("table", ways.DEFAULT, f"fold {at}"), {}).folder(folder)
        threshold = pd.read_json(path / "report.json", typ="series")["result"]["threshold"]
        decided = comparison.scores[part] >= threshold
        assert row.values[at] == pytest.approx(f1_score(y[part], decided))
    assert 0 < recall_score(y, comparison.scores >= comparison.threshold) <= 1


def test_again_it_only_reads(found, monkeypatch):
    comparison, folder = found
    monkeypatch.setattr(module, "train", None)  # what would be called for a cell that is not there
    X, y = table()
    again = compare(X, y, "f1", folder, parts=2, subject_to=["recall >= 0.3"], **SMALL)
    assert again.rows == comparison.rows
    np.testing.assert_array_equal(again.scores, comparison.scores)


def row(name, values, reference=None):
    versus = None if reference is None else compare_splits(values, reference, test_fraction=0.2)
    return Row(name, tuple(values), 1.0, None, versus)


BASE = [0.50, 0.52, 0.48, 0.51, 0.49]


@pytest.mark.parametrize(
    ("mine", "says"),
    [
        ([0.70, 0.73, 0.68, 0.71, 0.70], "default is better"),
        ([0.30, 0.33, 0.28, 0.31, 0.30], "is better here .* use it"),
        ([0.51, 0.50, 0.49, 0.52, 0.48], "does as well here"),
    ],
)
def test_the_verdict_is_what_the_interval_says(mine, says):
    import re

    rows = sorted([row(ways.DEFAULT, mine, BASE), row(ways.REFERENCE, BASE)], key=lambda each: -each.mean)
    assert re.search(says, verdict(rows, "f1"))


def test_another_winner_is_named():
    rows = [row("boosted trees", [0.9] * 4 + [0.91], BASE), row(ways.DEFAULT, [0.5, 0.51, 0.52, 0.49, 0.5], BASE)]
    assert "boosted trees: 0.902" in verdict([*rows, row(ways.REFERENCE, BASE)], "f1")
