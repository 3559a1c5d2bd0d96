"""History: rows, columns, equality, print."""

import math

import pytest

from metricfit.train import History

ROWS = [
    {"stage": "bce", "epoch": 0, "train_loss": 0.5},
    {"stage": "metric", "epoch": 0, "train_loss": 0.123456, "value": 0.75},
]


def test_rows_by_number_and_slice_and_columns_by_name():
    history = History(ROWS)
    assert len(history) == 2
    assert list(history) == ROWS
    assert history[1] == ROWS[1]
    assert history[:1] == ROWS[:1]
    assert history[-1]["value"] == 0.75
    assert history["value"] == [None, 0.75]
    assert history.columns == ["stage", "epoch", "train_loss", "value"]


def test_an_unknown_column_is_answered_with_the_known_ones():
    with pytest.raises(KeyError, match="no column 'loss'; there are stage, epoch, train_loss, value"):
        History(ROWS)["loss"]


def test_it_prints_as_a_table():
    assert str(History(ROWS)).splitlines() == [
        " stage  epoch  train_loss  value",
        "   bce      0         0.5       ",
        "metric      0      0.1235   0.75",
    ]
    assert str(History()) == ""
    assert repr(History(ROWS)) == "History(2 epochs: stage, epoch, train_loss, value)"


def test_histories_are_equal_where_all_numbers_are_nan_being_nan():
    def one(threshold):
        return History([{"epoch": 0, "threshold": threshold}])

    assert one(float("nan")) == one(math.nan)
    assert one(0.5) == one(0.5)
    assert one(0.5) != one(math.nan)
    assert one(0.5) != History()
    assert History() != []


def test_pandas():
    table = History(ROWS).to_pandas()
    assert list(table.columns) == ["stage", "epoch", "train_loss", "value"]
    assert table["train_loss"].tolist() == [0.5, 0.123456]


def test_columns_are_found_by_aliases_of_metrics():
    history = History([{"epoch": 0, "f1": 0.5, "best f1": 0.6, "jaccard per image": 0.4, "tpr": 0.1, "recall": 0.2}])
    assert history["dice"] == [0.5]
    assert history["best dice"] == [0.6]
    assert history["iou per image"] == [0.4]
    assert history["tpr"] == [0.1]  # a column of exactly this name
    with pytest.raises(KeyError, match="no column 'youden'"):
        history["youden"]
