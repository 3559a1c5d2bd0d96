"""compare with models of the user's: importable ones, also from the current folder, and files of predictions."""

import json
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import TimeSeriesSplit, cross_val_predict
from typer.testing import CliRunner

from metricfit.cli.app import app
from metricfit.data import folds

MODULE = textwrap.dedent(
    """
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    class Scale(TransformerMixin, BaseEstimator):  # a class that only this file has
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X * 2.0

    ready = LogisticRegression(C=0.5)

    def pipeline():
        return make_pipeline(Scale(), LogisticRegression(C=0.5 / 4))

    number = 3
    """
)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A table and a module in the current folder."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame["a"] + 0.5 * rng.normal(size=120) > 0.6, "late", "on time")
    frame.to_csv(tmp_path / "t.csv", index=False)
    name = f"mine_{tmp_path.name.replace('-', '_')}"  # modules stay imported
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # is taken out again
    return frame, name


def call(*arguments):
    result = CliRunner().invoke(app, ["compare", "t.csv", "--target", "y", "--folds", "2", *map(str, arguments)])
    return result, validate(
        "compare", json.loads(result.stdout)
    ) if "--json" in arguments and not result.exit_code else None


def values_of(found, name):
    return next(each["values"] for each in found["methods"] if each["name"] == name)


@pytest.mark.parametrize("jobs", [1, 2])
def test_models_of_the_current_folder_have_the_values_of_cross_val_predict(rows, jobs):
    frame, name = rows
    methods = ["--method", f"{name}:pipeline", "--method", f"{name}:ready"]
    result, found = call(*methods, "--jobs", jobs, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    X, y = frame[["a", "b"]], frame["y"].to_numpy()
    splits = list(folds(X, (y == "late").astype(np.int64), 2, seed=0))
    decided = cross_val_predict(LogisticRegression(C=0.5), X, y, cv=splits)
    expected = [f1_score(y[test], decided[test], pos_label="late") for _, test in splits]
    for function in ("pipeline", "ready"):
        assert values_of(found, f"{name}:{function}") == pytest.approx(expected)
    named = {f"{name}:{function}{end}" for function in ("pipeline", "ready") for end in ("", ", tuned")}
    without = {"all positive", "none positive", "at random"}
    assert {each["name"] for each in found["methods"]} == named | without | {"LightGBM as it comes"}
    assert found["recommended"] in named | {"LightGBM as it comes"}
    assert found["command"] is None
    assert found["python"].endswith(".fit(X, y)")


def test_the_table_marks_the_recommended_row_below_the_reference(rows):
    _, name = rows
    result, _ = call("--method", f"{name}:ready", "--subject-to", "recall >= 0.6", "--positive", "late", "--quiet")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    table = [line for line in lines if "\N{BOX DRAWINGS LIGHT VERTICAL}" in line]
    assert "LightGBM as it comes" in table[0]
    (marked,) = (line for line in table if "\N{BLACK RIGHT-POINTING TRIANGLE}" in line)
    assert f"{name}:ready, tuned" in marked
    text = " ".join(result.stdout.split())
    assert f"the best is '{name}:ready, tuned', mean F1 " in text
    said = f"metricfit.TunedDecisionClassifier({name}.ready, 'f1', subject_to=['recall >= 0.6'], pos_label='late')"
    assert f"{said}.fit(X, y)" in " ".join(lines)
    assert "The rule:" not in text


def test_a_changed_file_is_trained_again(rows):
    _, name = rows
    arguments = ["--method", f"{name}:ready", "--out", "o", "--json", "--quiet"]
    _, first = call(*arguments)
    with open(f"{name}.py", "a") as file:
        file.write("# a change that no parameter shows\n")
    before = len(list((folder := Path("o")).rglob("report.json")))
    _, again = call(*arguments)
    assert len(list(folder.rglob("report.json"))) == before + 2
    assert values_of(again, f"{name}:ready") == values_of(first, f"{name}:ready")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("NAME:gone", "cannot be imported: AttributeError"),
        ("nowhere_at_all:model", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("NAME:number", "cannot be imported: TypeError: 'int' object is not callable"),
        ("json:dumps", "cannot be imported"),
        ("collections:Counter", "is a Counter, and no classifier"),
    ],
)
def test_what_is_no_model_is_refused(rows, method, message):
    result, _ = call("--method", method.replace("NAME", rows[1]))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_predictions_keep_to_their_rows(rows):
    """Rows without a label are left out, and the others are sorted by time."""
    frame, _ = rows
    rng = np.random.default_rng(1)
    probabilities = 1 / (1 + np.exp(-2 * (frame["a"] - 0.6)))
    pd.DataFrame({"p": probabilities}).to_csv("theirs.csv", index=False)
    pd.DataFrame({"label": np.where(probabilities > 0.4, "late", "on time")}).to_csv("today.csv", index=False)
    frame["when"] = rng.permutation(120)
    labelled = frame["y"].where(rng.random(120) > 0.2)
    frame.assign(y=labelled).to_csv("t.csv", index=False)
    method = ("--method", "logistic regression")
    result, found = call(
        *method,
        "--predictions",
        "theirs.csv",
        "--predictions",
        "today.csv",
        "--skip-unlabelled",
        "--time",
        "when",
        "--json",
    )
    assert result.exit_code == 0, result.output
    order = frame[labelled.notna()].sort_values("when").index
    y = frame.loc[order, "y"].to_numpy()
    for name, threshold in (("theirs", 0.5), ("today", 0.4)):
        decided = np.where(probabilities[order] >= threshold, "late", "on time")
        expected = [f1_score(y[test], decided[test], pos_label="late") for _, test in TimeSeriesSplit(2).split(y)]
        assert values_of(found, name) == pytest.approx(expected)
    assert {each["name"] for each in found["methods"] if not each["plain"]} == {"theirs, tuned", method[1]}


def test_predictions_of_fewer_rows_are_refused(rows):
    pd.DataFrame({"p": [0.5] * 100}).to_csv("theirs.csv", index=False)
    result, _ = call("--predictions", "theirs.csv")
    assert result.exit_code == 2
    assert "theirs.csv has 100 rows, fewer than the table" in " ".join(result.stderr.split())


def test_the_order_of_classes_is_in_the_line_for_python(rows):
    frame, name = rows
    frame.assign(y=np.digitize(frame["a"], [-0.5, 0.5])).replace({"y": {0: "low", 1: "mid", 2: "high"}}).to_csv(
        "t.csv", index=False
    )
    metric = ["--metric", "weighted_kappa(power=2)", "--order", "low,mid,high"]
    _, found = call("--method", f"{name}:pipeline", *metric, "--json", "--quiet")
    assert "y, ['low', 'mid', 'high'], ordered=True)" in found["python"] or "LGBM" in found["python"]
