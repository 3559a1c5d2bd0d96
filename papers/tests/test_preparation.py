"""Preparation against scikit-learn's encoder and scaler, and its files."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from metricfit_papers.datasets import Preparation


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "number": rng.standard_t(2, 200),
            "whole": rng.integers(0, 5, 200),
            "same": np.ones(200),
            "flag": rng.random(200) < 0.3,
            "kind": rng.choice(["red", "green", "blue"], 200),
        }
    )


def test_preparation_equals_the_encoder_and_scaler_of_scikit_learn(frame):
    train, test = frame[:150], frame[150:].assign(kind=["unseen", *frame["kind"][151:]])
    expected = make_pipeline(
        make_column_transformer(
            ("passthrough", ["number", "whole", "flag"]),
            (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["kind"]),
        ),
        StandardScaler(),
    ).fit(train)
    preparation = Preparation().fit(train)
    assert preparation.columns == ["number", "whole", "flag", "kind=blue", "kind=green", "kind=red"]
    for part in (train, test):
        np.testing.assert_allclose(preparation.transform(part), expected.transform(part).clip(-5, 5), atol=1e-5)
    assert np.abs(expected.transform(frame[:150])).max() > 5


def test_columns_that_vary_only_in_the_test_part_are_dropped():
    preparation = Preparation().fit(np.array([[1.0, 2.0], [3.0, 2.0]]))
    assert preparation.columns == ["0"]
    assert preparation.transform(np.array([[1.0, 9.0]])).tolist() == [[-1.0]]


def test_missing_numbers_are_the_mean_and_missing_text_a_category():
    train = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": ["x", None, "y"]})
    preparation = Preparation().fit(train)
    assert preparation.columns == ["a", "b=missing", "b=x", "b=y"]
    out = preparation.transform(train)
    assert out[:, 0].tolist() == [-1.0, 0.0, 1.0]
    assert (out[:, 1] > 0).tolist() == [False, True, False]


def test_a_column_without_any_number_is_dropped():
    train = pd.DataFrame({"a": [1.0, 2.0], "b": [np.nan, np.nan]})
    assert Preparation().fit(train).columns == ["a"]


def test_infinity_after_fit_is_clipped():
    assert Preparation(clip=3).fit([[0.0], [2.0]]).transform([[np.inf], [-np.inf]]).tolist() == [[3.0], [-3.0]]


def test_the_training_rows_are_not_changed(frame):
    before = frame.copy()
    out = Preparation().fit(frame).transform(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert out.dtype == np.float32


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (pd.DataFrame({"a": []}), "needs rows and columns"),
        (pd.DataFrame({"a": [1, 1]}), "every column is constant"),
        (pd.DataFrame({"a": [1.0, np.inf], "b": [1, 2]}), "infinite values in a;"),
        (pd.DataFrame({"a": [1, 2], "b": pd.to_datetime(["2020-01-01", "2020-01-02"])}), "dates and times in b;"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "column names must differ, a repeat"),
    ],
)
def test_tables_without_information_are_refused(train, message):
    with pytest.raises(ValueError, match=message):
        Preparation().fit(train)


def test_other_columns_than_in_fit_are_refused():
    preparation = Preparation().fit(pd.DataFrame({"a": [1, 2], "b": [3, 4]}))
    with pytest.raises(ValueError, match="missing: b"):
        preparation.transform(pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="'b' held numbers in fit and holds"):
        preparation.transform(pd.DataFrame({"a": [1], "b": ["text"]}))


def test_fit_comes_first():
    with pytest.raises(RuntimeError, match="fit the Preparation"):
        Preparation().transform([[1.0]])


def test_a_clip_of_zero_is_refused():
    with pytest.raises(ValueError, match="clip must be above 0"):
        Preparation(clip=0)
