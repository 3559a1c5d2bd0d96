"""Columns that alone decide: their AUC against scikit-learn's, the bound against scipy's, and what chance gives."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score

from metricfit.tabular.doctor import column_checks as leaks
from metricfit.tabular.doctor.column_checks import check_leaks, column_aucs

rng = np.random.default_rng(0)


def by_name(X, y, **options):
    return {each.column: each for each in column_aucs(X, pd.Series(y), **options)}


def test_the_auc_of_numbers_is_that_of_scikit_learn_in_either_direction():
    y = rng.integers(0, 2, 300)
    X = pd.DataFrame({"up": y + rng.normal(size=300), "down": -2 * y + rng.normal(size=300)})
    found = by_name(X, y, positive=1)
    for name, column in X.items():
        auc = roc_auc_score(y, column)
        assert found[name].auc >= max(auc, 1 - auc) - 1e-12
        numbers = column.to_numpy()
        assert leaks._rank_auc(numbers, y, [1])[0] == pytest.approx(max(auc, 1 - auc))


def test_the_auc_of_categories_is_that_of_shares_in_the_other_folds():
    y, words = rng.integers(0, 3, 200), rng.integers(0, 6, 200)
    folds = rng.permutation(200) % leaks.FOLDS
    ours = leaks._binned_auc(words, y, folds, [0, 1, 2])
    for label in range(3):
        values, weights = [], []
        for fold in range(leaks.FOLDS):
            inside, outside = folds == fold, folds != fold
            prior = (y == label).mean()
            share = {
                word: ((y[outside & (words == word)] == label).sum() + prior) / ((outside & (words == word)).sum() + 1)
                for word in range(6)
            }
            truth = y[inside] == label
            values.append(roc_auc_score(truth, [share[word] for word in words[inside]]))
            weights.append(truth.sum())
        assert ours[label] == pytest.approx(np.average(values, weights=weights), abs=1e-6)


@pytest.mark.parametrize(("auc", "rows"), [(1.0, 40), (0.97, 200), (0.5, 9)])
def test_the_bound_is_that_of_wilson(auc, rows):
    z = norm.isf(0.05)
    expected = binomtest(round(auc * rows), rows, alternative="greater").proportion_ci(0.95, method="wilson").low
    assert leaks._wilson_bound(round(auc * rows) / rows, rows, z) == pytest.approx(expected)


def leaky(kind, y):
    noise = rng.normal(size=len(y))
    return {
        "a copy": y,
        "other words": np.where(y == 1, "paid", "open"),
        "in the middle": np.where(y == 1, 0.05, 1.0) * noise,
        "missing": np.where(y == 1, np.nan, noise),
        "dates": np.where(y == 1, "2024-05-01", "2024-06-01"),
        "true": y == 1,
    }[kind]


@pytest.mark.parametrize("kind", ["a copy", "other words", "missing", "dates", "true"])
@pytest.mark.parametrize("share", [0.3, 0.03])
def test_a_column_that_decides_is_serious(kind, share):
    y = (np.arange(3000) < share * 3000).astype(int)
    X = pd.DataFrame({"noise": rng.normal(size=3000), "leak": leaky(kind, y)})
    (finding,) = check_leaks(X, pd.Series(y), positive=1)
    assert (finding.severity, finding.columns) == ("serious", ("leak",))
    assert "'leak' alone tells the classes apart almost perfectly (AUC" in finding.message


def test_a_column_that_is_not_monotone_is_found_too():
    y = np.repeat([0, 1], [2000, 1000])
    assert by_name(pd.DataFrame({"x": leaky("in the middle", y)}), y, positive=1)["x"].auc > 0.93


def test_of_several_classes_the_one_that_is_revealed_is_named():
    y = pd.Series(np.repeat(["a", "b", "c"], 200))
    X = pd.DataFrame({"noise": rng.normal(size=600), "closed": np.where(y == "c", "2024", None)})
    (finding,) = check_leaks(X, y)
    assert finding.severity == "serious"
    assert "'closed' alone tells 'c' from the other classes almost perfectly" in finding.message


def test_chance_on_small_tables_is_never_serious_and_seldom_a_warning():
    warned = 0
    for seed in range(25):
        noise = np.random.default_rng(seed)
        X = pd.DataFrame(noise.normal(size=(24, 30)), columns=[f"x{i}" for i in range(30)])
        found = list(check_leaks(X, pd.Series(np.arange(24) < 3), positive=True))
        assert all(finding.severity == "note" for finding in found)
        warned += bool(found)
    assert warned  # three positives are told apart by one of 30 columns now and then, and the note says why
    (finding,) = check_leaks(pd.DataFrame({"x": np.arange(24)}), pd.Series(np.arange(24) < 3))
    assert "may be chance" in finding.message


def test_many_rows_and_columns_are_sampled():
    y = pd.Series(np.arange(60_000) < 300)
    X = pd.DataFrame({"x": rng.normal(size=60_000), "leak": y.astype(int)})
    found = by_name(X, y, positive=True)
    assert found["leak"].auc == 1
    assert found["leak"].rows == 300  # every row of the rare class is looked at
