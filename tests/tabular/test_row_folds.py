"""The folds: as many as the rows allow, copies and groups together, rows in the order of time forward."""

import numpy as np
import pytest
from sklearn.model_selection import KFold, TimeSeriesSplit

from metricfit import MetricClassifier
from metricfit.tabular.families.family import Features, TrainingRows
from metricfit.tabular.row_folds import choose_folds


def make_rows(n, positives):
    x = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    return TrainingRows(Features(x, x), (np.arange(n) % (n // positives) == 0).astype(np.int64), None, 2)


def folds(rows, members=None, cv=None):
    return choose_folds(rows, members, cv, None, rows.features.table, 0)


@pytest.mark.parametrize(("n", "number"), [(500, 8), (20_001, 5), (100_001, 3)])
def test_larger_tables_have_fewer_folds(n, number):
    assert len(folds(make_rows(n, 100))) == number


def test_folds_fall_to_the_rarest_class():
    assert len(folds(make_rows(60, 5), members=8)) == 5


def test_forward_folds_train_on_earlier_rows_alone():
    splits = folds(make_rows(400, 100), members=4, cv="forward")
    assert len(splits) == 4
    assert all(train.max() < held_out.min() for train, held_out in splits)


def test_forward_folds_of_a_classifier_leave_the_first_rows_unjudged():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0.5).astype(int)
    model = MetricClassifier(models=["linear"], members=4, cv="forward", random_state=0).fit(X, y)
    assert len(model.held_out_.y) == 240
    assert model.score(X, y) > 0.9


def test_a_splitter_decides_the_folds():
    rows = make_rows(400, 100)
    for cv in (KFold(3), list(KFold(3).split(rows.x))):
        for mine, theirs in zip(folds(rows, cv=cv), KFold(3).split(rows.x), strict=True):
            assert np.array_equal(mine[0], theirs[0])
            assert np.array_equal(mine[1], theirs[1])


def test_folds_that_cannot_be_learned_from_are_left_out_or_refused(caplog):
    x = np.zeros((100, 2), dtype=np.float32)
    late = TrainingRows(Features(x, x), ((np.arange(100) > 60) & (np.arange(100) % 2 == 0)).astype(np.int64), None, 2)
    splits = folds(late, cv=TimeSeriesSplit(4))
    assert len(splits) == 1
    assert "3 folds are left out" in caplog.text
    early = TrainingRows(Features(x, x), (np.arange(100) < 10).astype(np.int64), None, 2)
    with pytest.raises(ValueError, match="hold out no row of some class"):
        folds(early, cv=TimeSeriesSplit(4))
