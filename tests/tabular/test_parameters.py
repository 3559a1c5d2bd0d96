"""Wrong parameters are named in words when fit begins, and nothing is checked before."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from metricfit import MetricClassifier, metrics


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"members": 2.5}, TypeError, "members is a whole number of folds.*at least 2; got 2.5"),
        ({"members": "8"}, TypeError, "members is a whole number of folds.*got '8'"),
        ({"members": True}, TypeError, "members is a whole number of folds"),
        ({"n_jobs": 1.5}, TypeError, "n_jobs is a whole number of threads.*got 1.5"),
        ({"cv": 5}, TypeError, "cv is None, 'forward' or a splitter.*got 5"),
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
def test_the_parameter_is_named_with_what_it_can_be(settings, error, message, quick, blobs):
    model = MetricClassifier(**{**quick, **settings})
    with pytest.raises(error, match=message):
        model.fit(*blobs)


def test_numbers_of_numpy_and_requirements_of_any_form_are_taken(quick, blobs):
    X, y = blobs
    settings = {"models": "linear", "members": np.int64(2), "n_jobs": np.int32(1), "time_budget": np.float32(60)}
    for subject_to in ("recall >= 0.1", metrics.recall >= 0.1, []):
        assert MetricClassifier(**{**quick, **settings, "subject_to": subject_to}).fit(X, y).requirements_met_
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
    quick |= {"members": 2}
    weight = np.linspace(1, 2, len(y))
    wanted = MetricClassifier(**quick).fit(X, y, sample_weight=weight.copy()).predict_proba(X)
    weight.flags.writeable = False
    for given in (weight, pl.Series(weight), pd.Series(weight)):
        model = MetricClassifier(**quick).fit(X, y, sample_weight=given)
        assert np.array_equal(model.predict_proba(X), wanted)
        assert model.score(X, y, sample_weight=given) > 0


@pytest.mark.parametrize("name", ["network", "recipe", "epochs", "patience", "batch_size", "lr"])
def test_parameters_that_moved_to_the_network_name_their_successor(name):
    with pytest.raises(
        TypeError, match=rf"the parameter {name} of MetricClassifier is no longer here: use .*Network\("
    ):
        MetricClassifier("f1", **{name: 1})
