"""The folds: as many as the rows allow, copies and groups together, rows in the order of time forward."""

import numpy as np
import pytest
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

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
    assert [(len(train), len(held_out)) for train, held_out in splits] == [(200, 50), (250, 50), (300, 50), (350, 50)]


def test_forward_folds_judge_earlier_rows_if_the_later_half_lacks_a_class():
    x = np.zeros((100, 2), dtype=np.float32)
    early = TrainingRows(Features(x, x), ((np.arange(100) < 40) & (np.arange(100) % 2 == 0)).astype(np.int64), None, 2)
    splits = folds(early, members=4, cv=TimeSeriesSplit(4))
    for mine, theirs in zip(folds(early, members=4, cv="forward"), splits, strict=True):
        assert np.array_equal(mine[1], theirs[1])


def test_forward_folds_of_a_classifier_judge_the_later_half():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0.5).astype(int)
    model = MetricClassifier(models=["linear"], members=4, cv="forward", random_state=0).fit(X, y)
    assert len(model.held_out_.y) == 148
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


@pytest.mark.parametrize("cv", [5, np.int64(5)])
def test_a_number_gives_that_many_stratified_folds(cv):
    rows = make_rows(400, 100)
    wanted = folds(rows, members=5)
    for mine, theirs in zip(folds(rows, cv=cv), wanted, strict=True):
        assert np.array_equal(mine[0], theirs[0])
        assert np.array_equal(mine[1], theirs[1])


def test_rows_of_weight_0_are_absent_from_a_number_of_folds():
    X = np.random.default_rng(0).normal(size=(100, 2))
    y = (X[:, 0] > 0).astype(int)
    weight = np.where(np.arange(100) % 4 == 0, 0.0, 1.0)
    model = MetricClassifier(models=["linear"], cv=3, random_state=0).fit(X, y, sample_weight=weight)
    assert len(model.held_out_.y) == 75
    with pytest.raises(ValueError, match="cv= counts all rows"):
        MetricClassifier(models=["linear"], cv=KFold(3)).fit(X, y, sample_weight=weight)


def test_a_time_series_split_is_forward():
    """The model of the last fold predicts new rows, as with cv="forward"."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + rng.normal(size=300) > 0.5).astype(int)
    settings = {"models": ["linear"], "random_state": 0}
    forward = MetricClassifier(cv="forward", members=4, **settings).fit(X, y)
    splitter = TimeSeriesSplit(4, test_size=37)
    model = MetricClassifier(cv=splitter, **settings).fit(X, y)
    assert np.array_equal(model.predict_proba(X), forward.predict_proba(X))
    mean_of_folds = MetricClassifier(cv=list(splitter.split(X)), **settings).fit(X, y)
    assert not np.array_equal(model.predict_proba(X), mean_of_folds.predict_proba(X))


@pytest.mark.parametrize("cv", [RepeatedKFold(n_splits=3, n_repeats=2), ShuffleSplit(9, random_state=0)], ids=str)
def test_rows_that_are_held_out_more_than_once_are_refused(cv):
    with pytest.raises(ValueError, match=r"of 400 rows are held out more than once by cv=.*such as StratifiedKFold"):
        folds(make_rows(400, 100), cv=cv)


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        ((pair for pair in ()), "cv is a generator, which can be used only once; pass cv=list"),
        ([(np.arange(50), np.arange(90, 101))], "cv names row 100 or row 90; there are 100 rows"),
        ([(np.arange(50), np.array([-1]))], "cv names row -1"),
        ([(np.arange(50), np.arange(49, 60))], "1 rows of a fold of cv are trained on and held out, such as 49"),
        ([np.arange(50)], "a fold of cv is a pair of training rows and held-out rows"),
        ([(np.arange(50), np.arange(60.0, 80))], "are whole numbers or a mask; got an array of float64"),
    ],
    ids=["generator", "no such row", "negative row", "trained and held out", "no pair", "no whole numbers"],
)
def test_folds_that_are_no_folds_of_the_rows_are_refused(cv, message):
    with pytest.raises((TypeError, ValueError), match=message):
        folds(make_rows(100, 50), cv=cv)


def test_masks_are_folds():
    rows = make_rows(400, 100)
    train, held_out = next(iter(KFold(4).split(rows.x)))
    mask = np.isin(np.arange(400), held_out)
    ((mine, theirs),) = folds(rows, cv=[(~mask, mask)])
    assert np.array_equal(mine, train)
    assert np.array_equal(theirs, held_out)
