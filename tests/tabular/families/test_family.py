"""What all families share: deadlines, folds in threads, rows, logits of shares."""

import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from metricfit.boosting import prior_logits
from metricfit.tabular.families.arithmetic import to_logits
from metricfit.tabular.families.family import Deadline, Family, Features, MeanOfFolds, OutOfTime, TrainingRows
from metricfit.tabular.out_of_fold import fit_family


class Constant:
    """A model of one number."""

    def __init__(self, value):
        self.value = value

    def logits(self, features):
        return np.full((len(features), 1), self.value)


class Recorder(Family):
    """Remembers what it was fitted on; one fold may fail."""

    name = "recorder"

    def __init__(self, failing=None):
        self.failing, self.threads, self.stopped = failing, set(), []

    def fit(self, train, held_out, *, seed, deadline):
        self.threads.add(threading.get_ident())
        if seed == self.failing:
            raise ZeroDivisionError
        for _ in range(2000 if self.failing is not None else 1):
            time.sleep(0.005)
            try:
                deadline.check()
            except OutOfTime:
                self.stopped.append(seed)
                raise
        return Constant(float(train.y.sum() * 1000 + held_out.y.sum() + seed / 10))


def splits_of(n, folds):
    fold = np.arange(n) % folds
    return [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in range(folds)]


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_fold_gets_its_rows_and_a_seed_of_its_own(make_rows, jobs):
    rows, family = make_rows(2), Recorder()
    splits = splits_of(len(rows), 4)
    result = fit_family(family, rows, splits, seed=5, jobs=jobs, deadline=Deadline())
    models = result.fold_models
    expected = [
        rows.y[train].sum() * 1000 + rows.y[held_out].sum() + (5 + fold) / 10
        for fold, (train, held_out) in enumerate(splits)
    ]
    assert [model.value for model in models] == pytest.approx(expected)
    assert (len(family.threads) > 1) == (jobs > 1)
    assert isinstance(result.model, MeanOfFolds)
    np.testing.assert_allclose(result.model.logits(rows.features), np.full((len(rows), 1), np.mean(expected)))


def test_a_fold_that_fails_ends_the_others(make_rows):
    rows, family, deadline = make_rows(2), Recorder(failing=0), Deadline()
    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        fit_family(family, rows, splits_of(len(rows), 6), seed=0, jobs=2, deadline=deadline)
    assert time.monotonic() - started < 5
    assert deadline.cancelled.is_set()
    assert len(family.stopped) <= 2


class TestDeadline:
    """When training ends."""

    def test_without_a_limit(self):
        deadline = Deadline.after(None)
        assert deadline.seconds_left == float("inf")
        deadline.check()

    def test_with_a_limit(self):
        assert 99 < Deadline.after(100.0).seconds_left <= 100
        Deadline.after(100.0).check()
        with pytest.raises(OutOfTime, match="time budget is used up"):
            Deadline.after(-0.1).check()

    @pytest.mark.parametrize("seconds", [None, 100.0])
    def test_cancelled(self, seconds):
        deadline = Deadline.after(seconds)
        deadline.cancelled.set()
        with pytest.raises(OutOfTime):
            deadline.check()


def test_rows_are_taken_with_their_table_and_weights():
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    index = np.array([3, 1])
    for table in (pd.DataFrame(x, index=list("abcd")), x):
        rows = TrainingRows(Features(x, table), np.array([0, 1, 0, 1]), np.arange(4.0), 2).take(index)
        np.testing.assert_array_equal(np.asarray(rows.features.table), x[index])
        np.testing.assert_array_equal(rows.x, x[index])
        assert rows.y.tolist() == [1, 1]
        assert rows.weight.tolist() == [3.0, 1.0]
    assert TrainingRows(Features(x), np.zeros(4, int), None, 3).take(index).features.table is None


@pytest.mark.parametrize("weight", [None, np.array([1.0, 2.0, 3.0, 4.0, 5.0])])
def test_prior_logits_are_those_of_the_shares(weight):
    w = np.ones(5) if weight is None else weight
    y = np.array([0, 1, 1, 2, 2])
    shares = np.array([w[y == number].sum() for number in range(3)]) / w.sum()
    np.testing.assert_allclose(prior_logits(y, weight, classes=3), np.log(shares))
    two = (y == 2).astype(int)
    np.testing.assert_allclose(prior_logits(two, weight, classes=2), [np.log(shares[2] / (1 - shares[2]))])


def test_prior_logits_of_classes_without_rows_are_finite():
    assert np.isfinite(prior_logits(np.zeros(5, int), classes=2)).all()
    assert np.isfinite(prior_logits(np.zeros(5, int), classes=4)).all()


def test_logits_give_the_probabilities_back():
    p = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    np.testing.assert_allclose(np.exp(to_logits(p, 3)), p)
    two = np.stack([1 - p[:, 0], p[:, 0]], axis=1)
    np.testing.assert_allclose(1 / (1 + np.exp(-to_logits(two, 2)[:, 0])), p[:, 0])


class Unsettled(Recorder):
    """The first fold ends, and takes its filter of warnings away, before the second one warns."""

    entered, left = threading.Barrier(2), threading.Event()

    def fit(self, train, held_out, *, seed, deadline):
        if seed == 1:
            self.entered.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if seed == 0:
                self.entered.wait()
                time.sleep(0.1)
            else:
                time.sleep(0.05)  # enters after the first fold, and leaves after it
                self.left.wait()
                warnings.warn("not converged", ConvergenceWarning, stacklevel=1)
        self.left.set()
        return Constant(float(seed))


def test_folds_that_do_not_converge_are_no_warnings_in_threads(make_rows):
    rows = make_rows(2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fit_family(Unsettled(), rows, splits_of(len(rows), 2), seed=0, jobs=2, deadline=Deadline())
    assert not [each for each in seen if each.category is ConvergenceWarning]
