"""Wrong parameters are named in words when fit begins, and nothing is checked before."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.dataset
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from metricfit import MetricClassifier, compare, metrics
from metricfit.tabular.families.linear import Linear


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"members": 2.5}, TypeError, "members is a whole number of folds.*at least 2; got 2.5"),
        ({"members": "8"}, TypeError, "members is a whole number of folds.*got '8'"),
        ({"members": True}, TypeError, "members is a whole number of folds"),
        ({"n_jobs": 1.5}, TypeError, "n_jobs is a whole number of threads.*got 1.5"),
        ({"cv": 5}, ValueError, "members=3 and cv=5 are both numbers of folds"),
        ({"cv": 1, "members": None}, ValueError, "cv is a whole number of folds, at least 2; got 1"),
        ({"cv": True, "members": None}, TypeError, "cv is a whole number of folds"),
        ({"cv": 2.5}, TypeError, "cv is None, 'forward', a number of folds, a splitter.*got 2.5"),
        ({"cv": "backward"}, ValueError, "cv is None, 'forward'.*got 'backward'"),
        ({"cv": KFold}, TypeError, "cv is None, 'forward'.*got <class .*KFold'>"),
        ({"device": "gpu"}, ValueError, "device is a device of torch, such as 'cpu' or 'cuda:1', or None; got 'gpu'"),
        ({"class_weight": "bal"}, ValueError, "class_weight is 'balanced', a weight for each label.*got 'bal'"),
        ({"class_weight": [1, 2]}, ValueError, r"class_weight is 'balanced'.*got \[1, 2\]"),
        ({"class_weight": {0: 1, 7: 2}}, ValueError, r"class_weight names 7, which is none of \[0, 1\]"),
        ({"class_weight": {1: 0}}, ValueError, "class_weight: weights are above 0, but 1 has 0"),
        ({"class_weight": {1: "2"}}, ValueError, "class_weight: weights are above 0, but 1 has '2'"),
        ({"models": LogisticRegression}, TypeError, r"not a class: pass LogisticRegression\(\)"),
        ({"models": ["linear", GaussianNB]}, TypeError, r"not a class: pass GaussianNB\(\)"),
        ({"time_budget": -1}, ValueError, "time_budget is seconds of training, or None for no limit.*got -1"),
        ({"time_budget": 0}, ValueError, "time_budget is seconds of training"),
        ({"average": None}, ValueError, "average is one of 'macro', 'micro', 'weighted'.*got None"),
        ({"average": "mean"}, ValueError, "average is one of.*got 'mean'"),
        ({"subject_to": 5}, TypeError, "subject_to is a requirement such as 'recall >= 0.9'.*got 5"),
        ({"subject_to": ["recall >= 0.9", 5]}, TypeError, "subject_to is a requirement such as"),
        ({"subject_to": metrics.recall}, TypeError, "subject_to is a requirement such as"),
        ({"subject_to": "recall[1] >= 0.9"}, ValueError, r"recall\[1\].*leave the index out"),
        ({"metric": "recall[1]"}, ValueError, r"recall\[1\].*leave the index out"),
    ],
    ids=str,
)
def test_the_parameter_is_named_with_what_it_can_be(settings, error, message, quick, blobs, monkeypatch):
    monkeypatch.setattr(Linear, "fit", lambda *_, **__: pytest.fail("a model was trained"))
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


def test_queries_of_polars_and_datasets_of_arrow_are_read_and_others_named(quick, blobs):
    X, y = blobs
    table = pl.DataFrame(X, schema=list("abcd"))
    expected = MetricClassifier(**quick).fit(table, y).predict_proba(table)
    for same in (table.lazy(), pyarrow.dataset.dataset(table.to_arrow())):
        model = MetricClassifier(**quick).fit(same, y)
        np.testing.assert_array_equal(model.predict_proba(same), expected)
        assert compare(same, y, methods=["logistic regression"], folds=2).rows

    class Query:
        def collect(self):
            raise AssertionError

    with pytest.raises(TypeError, match="X is a Query, a query that has no rows yet"):
        MetricClassifier(**quick).fit(Query(), y)


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


@pytest.mark.parametrize("weights", ["sample_weight", "class_weight"])
def test_models_that_take_no_weights_are_refused_before_others_are_trained(weights, quick, blobs, monkeypatch):
    X, y = blobs
    monkeypatch.setattr(Linear, "fit", lambda *_, **__: pytest.fail("a model was trained"))
    quick |= {"models": ["linear", KNeighborsClassifier()]}
    quick |= {"class_weight": "balanced"} if weights == "class_weight" else {}
    with pytest.raises(ValueError, match="the model 'KNeighborsClassifier' takes no sample_weight"):
        MetricClassifier(**quick).fit(X, y, sample_weight=None if weights == "class_weight" else np.ones(len(y)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_before_training(quick, blobs, monkeypatch):
    monkeypatch.setattr(Linear, "fit", lambda *_, **__: pytest.fail("a model was trained"))
    with pytest.raises(ValueError, match="device='cuda': torch finds no GPU; use device='cpu'"):
        MetricClassifier(**quick | {"models": ["linear", "network"], "device": "cuda"}).fit(*blobs)


def test_auto_in_a_list_stands_for_its_families(quick, blobs):
    X, y = (part[:120] for part in blobs)
    model = MetricClassifier(**quick | {"models": ["auto", GaussianNB()], "members": 2}).fit(X, y)
    own = {"linear", "kernel", "boosting", "boosting_small", "extra_trees"}
    assert {row.name for row in model.models_} == own | {"GaussianNB"}


@pytest.mark.parametrize("container", [list, lambda labels: np.array(labels, dtype=object)], ids=["list", "array"])
@pytest.mark.parametrize(("labels", "types"), [([1, "a"], "int and str"), ([True, "a"], "bool and str")], ids=str)
def test_labels_of_several_types_are_refused(labels, types, container, quick, blobs):
    X, _ = blobs
    with pytest.raises(ValueError, match=f"y holds Python objects of type {types}; make them all text"):
        MetricClassifier(**quick).fit(X, container(labels * (len(X) // 2)))


@pytest.mark.parametrize("missing", [np.nan, None])
def test_rows_without_a_group_are_refused(missing, quick, blobs):
    X, y = blobs
    groups = np.arange(len(y)).astype(object)
    groups[3:8] = missing
    with pytest.raises(ValueError, match=f"groups is missing in 5 of {len(y)} rows: give every row a group"):
        MetricClassifier(**quick).fit(X, y, groups=groups)
