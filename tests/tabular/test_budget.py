"""The time budget: cheap families first, and a family that would not be ready in time is left out."""

import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from metricfit import MetricClassifier
from metricfit.tabular import out_of_fold
from metricfit.tabular.families.choice import DEFAULT, NAMES
from metricfit.tabular.families.family import Deadline, Family, Features, TrainingRows
from metricfit.tabular.out_of_fold import fit_families


@dataclass(frozen=True)
class Constant:
    """A model with the same logit for every row."""

    def logits(self, features):
        return np.zeros((len(features), 1))


@dataclass
class Slow(Family):
    """A family that takes this many seconds per fold."""

    name: str
    seconds: float
    can_be_stopped: bool = True
    fits: list = field(default_factory=list)

    def fit(self, train, held_out, *, seed, deadline):
        self.fits.append(len(train))
        end = time.monotonic() + self.seconds * len(train) / 5000
        while time.monotonic() < end:
            if self.can_be_stopped:
                deadline.check()
            time.sleep(0.001)
        return Constant()


@pytest.fixture
def rows():
    x = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
    return TrainingRows(Features(x), (x[:, 0] > 1).astype(np.int64), None, 2)


def halves(rows, number=4):
    folds = np.array_split(np.arange(len(rows)), number)
    return [(np.setdiff1d(np.arange(len(rows)), fold), fold) for fold in folds]


def fit(families, rows, seconds):
    return fit_families(families, rows, halves(rows), seed=0, jobs=1, deadline=Deadline.after(seconds))


def test_without_a_budget_every_family_is_fitted(rows):
    results, left_out = fit([Slow("a", 0.0), Slow("b", 0.0)], rows, None)
    assert [result.name for result in results] == ["a", "b"]
    assert not left_out


def test_the_first_folds_tell_that_a_family_would_take_too_long(rows):
    slow = Slow("slow", 1.6)
    results, left_out = fit([Slow("quick", 0.0), slow], rows, 2.0)
    assert [result.name for result in results] == ["quick"]
    assert "s are left" in left_out[0].reason
    assert len(slow.fits) < 4


def test_a_family_is_stopped_at_the_deadline(rows):
    start = time.monotonic()
    results, left_out = fit([Slow("quick", 0.0), Slow("endless", 1e6)], rows, 1.0)
    assert time.monotonic() - start < 30
    assert "the time budget ended" in left_out[0].reason
    assert len(results) == 1


def test_a_family_that_cannot_be_stopped_is_timed_on_a_sample(rows):
    unstoppable = Slow("unstoppable", 5.0, can_be_stopped=False)
    _, left_out = fit([Slow("quick", 0.0), unstoppable], rows, 2.5)
    assert unstoppable.fits == [out_of_fold.SAMPLE_ROWS]
    assert left_out[0].reason.startswith("would take about")


def test_the_first_family_is_fitted_whatever_the_budget(rows):
    results, left_out = fit([Slow("first", 0.1), Slow("second", 0.1)], rows, 1e-6)
    assert [result.name for result in results] == ["first"]
    assert [family.name for family in left_out] == ["second"]


def test_what_was_left_out_is_in_models_and_in_the_log(blobs, caplog):
    model = MetricClassifier(models=["linear", "extra_trees"], members=2, time_budget=1e-6, random_state=0).fit(*blobs)
    used, left_out = model.models_
    assert (used.name, used.weight) == ("linear", 1.0)
    assert (left_out.name, left_out.weight, left_out.value) == ("extra_trees", 0.0, None)
    assert f"extra_trees is left out: {left_out.left_out}" in caplog.text


def test_the_number_of_jobs_does_not_change_the_model(blobs):
    X, y = blobs
    one, two = (
        MetricClassifier(models=list(DEFAULT), members=3, time_budget=None, n_jobs=jobs, random_state=0).fit(X, y)
        for jobs in (1, 2)
    )
    assert np.array_equal(one.predict_proba(X), two.predict_proba(X))


def test_cheap_families_come_first():
    assert NAMES.index("linear") < NAMES.index("boosting") < NAMES.index("network")
