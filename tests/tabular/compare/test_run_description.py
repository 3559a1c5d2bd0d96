"""What a comparison is about: changes of the table and of the options in words."""

import logging

import numpy as np
import pandas as pd
import pytest

from metricfit.tabular.compare.trainings import ChangedRunError, continue_run, describe_table, list_changes

CLASSES = ("no", "yes")


@pytest.fixture
def table():
    frame = pd.DataFrame({"age": np.arange(40.0), "city": ["a", "b"] * 20, "income": np.arange(40) % 7})
    return frame, (np.arange(40) % 4 == 0).astype(np.int64)


def described(frame, y, **settings):
    return describe_table(frame, y, CLASSES, None) | {"folds": 5, "seed": 0, "metric": "f1", **settings}


def longer(frame, y):
    return pd.concat([frame, frame[:10]]), np.concatenate([y, y[:10]])


CHANGES = {
    "rows 40 -> 50": longer,
    "column 'shoe' is new": lambda frame, y: (frame.assign(shoe=1), y),
    "column 'city' is gone": lambda frame, y: (frame.drop(columns="city"), y),
    "columns 'age', 'income' are gone": lambda frame, y: (frame[["city"]], y),
    "column 'age' has other values": lambda frame, y: (frame.assign(age=frame["age"] + (frame["age"] == 3)), y),
    "the same rows are in another order": lambda frame, y: (frame.iloc[::-1].reset_index(drop=True), y[::-1]),
    "the labels have changed": lambda frame, y: (frame, np.roll(y, 1)),
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_changed_table_is_explained(table, words):
    assert list_changes(described(*table), described(*CHANGES[words](*table))) == [words]


def test_an_equal_table_has_no_changes(table):
    frame, y = table
    assert list_changes(described(frame, y), described(frame.copy(), y.copy(), metric="f2")) == []


def test_several_changes_are_all_named(table):
    frame, y = table
    more, labels = longer(frame.assign(**{f"c{k}": 1 for k in range(7)}), y)
    assert list_changes(described(frame, y), described(more, labels, folds=10, seed=3)) == [
        "rows 40 -> 50",
        "columns 'c0', 'c1', 'c2', 'c3', 'c4' and 2 more are new",
        "folds 5 -> 10",
        "seed 0 -> 3",
    ]


def test_a_folder_keeps_one_table_and_any_metric(table, tmp_path, caplog):
    frame, y = table
    for metric in ("f1", "f1", "fbeta(beta=2)"):
        with caplog.at_level(logging.WARNING):
            continue_run(tmp_path, "loans.csv", described(frame, y, metric=metric))
        assert ("metric f1 -> fbeta(beta=2)" in caplog.text) == (metric != "f1")
    continue_run(tmp_path, "others.csv", described(frame[:20], y[:20]))
    with pytest.raises(ChangedRunError, match="column 'city' is gone; folds 5 -> 3") as error:
        continue_run(tmp_path, "loans.csv", described(frame.drop(columns="city"), y, folds=3))
    assert error.value.changes == ["column 'city' is gone", "folds 5 -> 3"]
    assert "another folder" in str(error.value)
