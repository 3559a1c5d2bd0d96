"""The datasets as the papers prepare or define them."""

import numpy as np
import pandas as pd
import pytest

from metricfit_papers.datasets import Table
from metricfit_papers.datasets.published_sets import breast_cancer, bridging_the_gap, two_blobs


def table(name, frame):
    return Table(name, frame, np.arange(len(frame)) % 2, "", "")


def test_adult_is_used_without_fnlwgt_and_with_text_as_ranks():
    frame = pd.DataFrame({"age": [30, 40, 50], "workclass": ["Private", None, "Never-worked"], "fnlwgt": [1, 2, 3]})
    adult = table("adult", frame)
    prepared = bridging_the_gap(adult)
    assert prepared.X.to_dict("list") == {"age": [30, 40, 50], "workclass": [1, -1, 0]}
    assert prepared.y is adult.y


def test_the_amount_of_credit_card_becomes_its_logarithm():
    frame = pd.DataFrame({"Time": [0, 9], "V1": [0.1, 0.2], "Amount": [0.0, 99.999]})
    prepared = bridging_the_gap(table("creditcard", frame)).X
    assert prepared.columns.tolist() == ["V1", "log Amount"]
    np.testing.assert_allclose(prepared["log Amount"], [np.log(0.001), np.log(100)])


@pytest.mark.parametrize("name", ["cocktailparty", "mammography"])
def test_the_other_sets_are_left_as_they_are(name):
    frame = pd.DataFrame({"x": [0.1, 0.2]})
    assert bridging_the_gap(table(name, frame)).X is frame


def test_a_set_that_the_paper_does_not_use_is_refused():
    with pytest.raises(ValueError, match="not phoneme"):
        bridging_the_gap(table("phoneme", pd.DataFrame({"V1": [1]})))


def test_malignant_is_the_positive_class_of_breast_cancer():
    found = breast_cancer()
    assert (len(found.y), found.y.sum()) == (569, 212)
    assert found.X.loc[found.y == 1, "mean radius"].mean() > found.X.loc[found.y == 0, "mean radius"].mean()


@pytest.mark.parametrize(("keep", "rows", "positives"), [(0.5, 7500, 2500), (0.05, 5250, 250)])
def test_two_blobs_have_the_published_balance(keep, rows, positives):
    table = two_blobs(keep)
    assert (len(table.y), table.y.sum(), table.X.shape[1]) == (rows, positives, 3)
    assert two_blobs(keep).X.equals(table.X)
    assert table.X[table.y == 0].std().to_numpy() == pytest.approx([10, 10, 10], rel=0.05)


def test_two_blobs_keep_a_share():
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        two_blobs(1.5)
