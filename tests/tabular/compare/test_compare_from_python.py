"""metricfit.compare as a Python user calls it: a table, the name of its target, and a page from the result."""

import numpy as np
import pandas as pd
import pytest

import metricfit
from metricfit import metrics
from metricfit.errors import InvalidValueError
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE

TINY = {"methods": ["metricfit"], "folds": 2}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    frame["site"] = np.arange(60) // 3
    return frame.assign(leaves=np.where(frame["a"] > 0.4, "yes", "no"))


def test_a_column_of_the_table_is_predicted_and_the_page_names_it(table, tmp_path):
    result = metricfit.compare(
        table, "leaves", metrics.f1, groups="site", subject_to=metrics.recall >= 0.1, name="churn", **TINY
    )
    assert {row.name for row in result.rows} == {DEFAULT, REFERENCE, "all positive", "none positive", "at random"}
    assert (result.metric, result.subject_to, result.classes) == ("f1", ("recall >= 0.1",), ("no", "yes"))
    np.testing.assert_array_equal(result.labels, table["leaves"] == "yes")
    assert result.recommended in {DEFAULT, REFERENCE}
    assert result.to_dict()["methods"][0]["name"] == result.rows[0].name
    page = result.report(tmp_path / "page.html").read_text(encoding="utf-8")
    for text in ("Predicting “leaves” in churn, judged by", "rows of one “site”", "recall &gt;= 0.1"):
        assert text in page
    assert "<dt>Command</dt>" not in page


def test_labels_may_be_given_apart_from_the_table(table):
    together = metricfit.compare(table[["a", "b", "leaves"]], "leaves", **TINY)
    apart = metricfit.compare(table[["a", "b"]], table["leaves"], **TINY)
    assert [row.values for row in apart.rows] == [row.values for row in together.rows]
    assert apart.target == "leaves"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target": "gone"}, "target='gone' is not a column of the table"),
        ({"target": "site", "folds": 4}, "has 3 rows, fewer than 4 folds; use fewer folds"),
        ({"target": "site", "subject_to": "recall['20'] >= 0.5"}, r"recall\['20'\]: there is no such class"),
        ({"subject_to": "recall[no] >= 0.5"}, r"recall\['no'\] is specificity"),
        (
            {"subject_to": "recall >= 0.9", "confidence": 0.95},
            "at 95 % confidence needs at least 29 positives; there are",
        ),
        ({"confidence": 0.95}, "confidence= is about requirements"),
        ({"target": "site", "pos_label": 1}, "pos_label is for two classes"),
        ({"groups": "leaves"}, "target and groups both name the column 'leaves'"),
        ({"methods": ["trees"]}, "there is no method 'trees'; the methods are .*'boosted trees'"),
        ({"average": "median"}, "average"),
        ({"folds": 59}, "fewer than 59 folds; use fewer folds"),
        ({"target": ["yes", "no"]}, "target has 2 values for a table of 60 rows"),
        ({"metric": metrics.metric(lambda counts: counts.tp)}, "metrics that metricfit knows by name"),
    ],
)
def test_what_cannot_be_compared_is_refused(table, changed, message):
    with pytest.raises(ValueError, match=message):
        metricfit.compare(table, **({"target": "leaves"} | TINY | changed))


def test_missing_labels_are_refused(table):
    with pytest.raises(InvalidValueError, match="target is missing in 1 of 60 rows"):
        metricfit.compare(table.assign(leaves=table["leaves"].mask(table.index == 3)), "leaves", **TINY)


def test_the_recommended_classifier_has_the_positive_class_of_the_comparison():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(90, 2)), columns=["a", "b"])
    y = np.where(X["a"] > 0.8, "rare", "usual")
    found = metricfit.compare(X, y, "f1", methods=["logistic regression"], folds=2, pos_label="usual")
    assert found.classifier("logistic regression").pos_label == "usual"
    assert found.classifier("logistic regression", pos_label="rare").pos_label == "rare"
