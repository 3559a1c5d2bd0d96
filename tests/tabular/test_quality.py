"""``quality``: which families "auto" stands for, and the time that is kept."""

import time

import numpy as np
import pytest

from metricfit import MetricClassifier
from metricfit.metrics import f1
from metricfit.tabular import out_of_fold
from metricfit.tabular.families import choice
from metricfit.tabular.families.choice import DEFAULT, make_families
from metricfit.tabular.families.family import Deadline, Features


def names(quality, models="auto"):
    return [
        family.name for family in make_families(models, metric=f1, average="macro", requirements=(), quality=quality)
    ]


def test_each_quality_has_the_families_of_the_one_before(monkeypatch):
    monkeypatch.setattr(choice, "find_spec", lambda package: package)
    assert names("fast") == ["linear", "boosting_small"]
    assert names("default") == list(DEFAULT)
    best = names("best")
    assert best[:5] == list(DEFAULT)
    assert {"catboost", "xgboost", "in_context"} <= set(best)


def test_trees_come_before_the_kernel():
    order = names("best")
    assert order.index("boosting_small") < order.index("extra_trees") < order.index("kernel")


def test_best_has_only_what_is_installed(monkeypatch):
    monkeypatch.setattr(choice, "find_spec", lambda package: None)
    assert names("best") == [*DEFAULT, "in_context"]


def test_an_unknown_quality_is_refused(blobs):
    with pytest.raises(ValueError, match="quality is one of 'fast', 'default', 'best'"):
        MetricClassifier("f1", quality="good").fit(*blobs)


@pytest.fixture(scope="module")
def steps():
    """Rows whose class is a step of two columns, as trees see it and nobody else."""
    X = np.random.default_rng(0).normal(size=(300, 4))
    return X, ((X[:, 0] > 0.2) ^ (X[:, 1] > 0.3)).astype(int)


@pytest.fixture(scope="module")
def best(steps):
    return MetricClassifier("f1", quality="best", members=3, random_state=0, n_jobs=1).fit(*steps)


def test_a_model_of_the_best_quality_is_saved_and_loaded(best, steps, tmp_path):
    X, _ = steps
    best.save(tmp_path / "model")
    again = MetricClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), best.predict_proba(X))
    assert again.get_params()["quality"] == "best"


def test_more_time_adds_families(blobs):
    X, y = blobs
    little = MetricClassifier("f1", quality="best", members=2, time_budget=0.001, n_jobs=1, random_state=0).fit(X, y)
    assert [row.name for row in little.models_ if row.left_out is None] == ["linear"]


def test_what_comes_after_training_has_its_part_of_the_time(make_slow, rows_of_two):
    families, splits = make_slow(["first", "second", "third"], 0.05), [(np.arange(50), np.arange(50, 100))]
    asked = []

    def seconds_after(first, number):
        asked.append((first.name, number))
        return 30.0 if number > 2 else 0.0

    fitted, left_out = out_of_fold.fit_families(
        families, rows_of_two, splits, seed=0, jobs=1, deadline=Deadline.after(20.0), seconds_after=seconds_after
    )
    assert [result.name for result in fitted] == ["first", "second"]
    assert [each.name for each in left_out] == ["third"]
    assert asked == [("first", 2), ("first", 3)]


def test_a_family_that_would_take_far_too_long_is_not_begun(make_slow, rows_of_two, monkeypatch):
    monkeypatch.setitem(out_of_fold.estimate_seconds.__globals__["RELATIVE_SECONDS"], "slow", 1000.0)
    families, splits = make_slow(["first", "slow"], 0.05), [(np.arange(50), np.arange(50, 100))]
    start = time.monotonic()
    fitted, left_out = out_of_fold.fit_families(
        families, rows_of_two, splits, seed=0, jobs=1, deadline=Deadline.after(5.0)
    )
    assert [result.name for result in fitted] == ["first"]
    assert "would take about" in left_out[0].reason
    assert time.monotonic() - start < 4


@pytest.fixture
def rows_of_two():
    from metricfit.tabular.families.family import TrainingRows

    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2)).astype(np.float32)
    return TrainingRows(Features(x), (x[:, 0] > 0).astype(np.int64), None, 2)


@pytest.fixture
def make_slow():
    from metricfit.tabular.families.linear import Linear

    class Slow(Linear):
        def __init__(self, name, seconds):
            self.name, self.seconds = name, seconds

        def fit(self, *arguments, **keywords):
            time.sleep(self.seconds)
            return super().fit(*arguments, **keywords)

    return lambda each, seconds: [Slow(name, seconds) for name in each]
