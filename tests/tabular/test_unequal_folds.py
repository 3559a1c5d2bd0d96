"""The rows that judge weights where one fold holds many copies of a row."""

import numpy as np
import pandas as pd

from metricfit import MetricClassifier
from metricfit.decide.held_out import collect_held_out
from metricfit.tabular.ensemble_fit import parts_of


def held_out(n, groups=None):
    y = (np.arange(n) % 10 == 0).astype(np.int64)
    return collect_held_out(np.linspace(-1, 1, n)[:, None], y, None, groups)


def test_a_large_fold_is_divided_into_all_parts():
    folds = np.repeat(np.arange(8), [400, *[100] * 7])
    parts = parts_of(held_out(1100), folds)
    assert len(np.unique(parts)) >= 4
    for part in np.unique(parts):
        assert 0.2 < (folds[parts == part] == 0).mean() < 0.5
        assert (np.arange(1100)[parts == part] % 10 == 0).mean() > 0.05
    equal = np.repeat(np.arange(8), 100)
    assert (parts_of(held_out(800), equal) == equal).all()
    groups = np.arange(1100) // 5  # rows of a group stay in one part, which is the fold
    assert (parts_of(held_out(1100, groups), folds) == folds).all()


def test_copies_are_judged_by_weights_that_know_them():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(600, 3)), columns=list("abc"))
    y = (X["a"] + rng.normal(size=600) > 1).to_numpy().astype(int)
    copies = np.repeat([5], 300)
    X, y = pd.concat([X, X.iloc[copies]], ignore_index=True), np.concatenate([y, y[copies]])
    model = MetricClassifier(
        "precision", subject_to="recall >= 0.8", models=["linear", "boosting_small"], random_state=0
    )
    model.fit(X, y)
    by_copy = model.held_out_.logits[np.isin(model.chosen_.basis.places.rows, np.arange(600, 900)), 0]
    assert len(np.unique(by_copy)) > 1  # several weights and calibrations judge them, by the parts they are in
    assert by_copy.std() < 0.5
