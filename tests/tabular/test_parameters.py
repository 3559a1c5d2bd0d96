"""Wrong parameters are named in words when fit begins, and nothing is checked before."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from metricfit import MetricClassifier, metrics


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is a whole number of rows per step, at least 1; got 0"),
        ({"members": 2.5}, TypeError, "members is a whole number of folds.*at least 2; got 2.5"),
        ({"members": "8"}, TypeError, "members is a whole number of folds.*got '8'"),
        ({"members": True}, TypeError, "members is a whole number of folds"),
        ({"epochs": 0}, ValueError, "epochs is a whole number.*None to choose"),
        ({"epochs": 2.0}, TypeError, "epochs is a whole number"),
        ({"patience": -1}, ValueError, "patience is a whole number.*None for a sixth"),
        ({"lr": -1}, ValueError, "lr is the learning rate, a number above 0; got -1"),
        ({"lr": "fast"}, TypeError, "lr is the learning rate, a number above 0; got 'fast'"),
        ({"lr": float("nan")}, ValueError, "lr is the learning rate"),
        ({"time_budget": -1}, ValueError, "time_budget is seconds of training, or None for no limit.*got -1"),
        ({"time_budget": 0}, ValueError, "time_budget is seconds of training"),
        ({"average": None}, ValueError, "average is one of 'macro', 'micro', 'weighted'.*got None"),
        ({"average": "mean"}, ValueError, "average is one of.*got 'mean'"),
        ({"subject_to": 5}, TypeError, "subject_to is a requirement such as 'recall >= 0.9'.*got 5"),
        ({"subject_to": ["recall >= 0.9", 5]}, TypeError, "subject_to is a requirement such as"),
        ({"subject_to": metrics.recall}, TypeError, "subject_to is a requirement such as"),
    ],
    ids=str,
)
@pytest.mark.parametrize("call", ["fit", "plan"])
def test_the_parameter_is_named_with_what_it_can_be(settings, error, message, call, quick, blobs):
    model = MetricClassifier(**{**quick, **settings})
    with pytest.raises(error, match=message):
        getattr(model, call)(*blobs)


def test_numbers_of_numpy_and_requirements_of_any_form_are_taken(quick, blobs):
    X, y = blobs
    settings = {"members": np.int64(2), "epochs": np.int32(2), "lr": np.float32(0.02), "batch_size": np.int64(256)}
    for subject_to in ("recall >= 0.1", metrics.recall >= 0.1, []):
        MetricClassifier(**{**quick, **settings, "subject_to": subject_to}).plan(X, y)
    both = (metrics.recall >= 0.1, "precision >= 0.01")
    assert MetricClassifier(**{**quick, **settings, "subject_to": both}).fit(X, y).value_ > 0


def test_two_columns_of_one_name_are_refused_by_name(quick, blobs):
    X, y = blobs
    numbers = pd.DataFrame(X, columns=["a", "b", "a", "c"])
    for frame in (numbers, numbers.assign(kind="x")):
        with pytest.raises(ValueError, match="several columns of one name, 'a': rename or drop"):
            MetricClassifier(**quick).fit(frame, y)


def test_a_query_that_was_not_run_is_named(quick, blobs):
    X, y = blobs
    lazy = pl.DataFrame(X, schema=list("abcd")).lazy()
    with pytest.raises(TypeError, match=r"X is a LazyFrame.*X\.collect\(\)"):
        MetricClassifier(**quick).fit(lazy, y)


def test_weights_that_cannot_be_written_to_are_taken(quick, blobs):
    """Those of polars; torch warns of such memory, and warnings are errors here."""
    X, y = blobs
    quick |= {"members": 2, "epochs": 2}
    weight = np.linspace(1, 2, len(y))
    wanted = MetricClassifier(**quick).fit(X, y, sample_weight=weight.copy()).predict_proba(X)
    weight.flags.writeable = False
    for given in (weight, pl.Series(weight), pd.Series(weight)):
        model = MetricClassifier(**quick).fit(X, y, sample_weight=given)
        assert np.array_equal(model.predict_proba(X), wanted)
        assert model.score(X, y, sample_weight=given) > 0
