"""``--weight`` of compare and evaluate, ``--calibration`` and periods of compare."""

import json

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from sklearn.metrics import average_precision_score, f1_score, recall_score, roc_auc_score
from typer.testing import CliRunner

from metricfit import MetricClassifier, compare
from metricfit.cli.app import app

SETTINGS = {"models": ["linear"], "members": 2, "time_budget": None, "random_state": 0}
N = 160


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(N, 2)).round(3), columns=["a", "b"])
    frame["w"] = rng.integers(1, 5, N) / 2
    frame["day"] = pd.date_range("2024-01-01", periods=N).strftime("%Y-%m-%d")
    frame["y"] = np.where(frame["a"] + 0.5 * rng.normal(size=N) > 0.7, "yes", "no")
    frame["three"] = np.select([frame["a"] > 0.5, frame["b"] > 0.5], ["x", "y"], "z")
    path = tmp_path_factory.mktemp("weights") / "t.csv"
    frame.to_csv(path, index=False)
    return path, frame


@pytest.fixture(scope="module")
def models(rows, tmp_path_factory):
    folder, (_, frame) = tmp_path_factory.mktemp("models"), rows
    fitted = {}
    for target in ("y", "three"):
        fitted[target] = MetricClassifier("f1", subject_to="recall >= 0.1", **SETTINGS).fit(
            frame[["a", "b"]], frame[target]
        )
        fitted[target].save(folder / target)
    return folder, fitted


def test_evaluate_weighs_every_value(rows, models, tmp_path):
    (path, frame), (folder, fitted) = rows, models
    arguments = ("evaluate", folder / "y", path, "--target", "y", "--weight", "w")
    found = validate("evaluate", json.loads(call(*arguments, "--json", "--report", tmp_path / "r.html").stdout))
    decided, scores = fitted["y"].predict(frame[["a", "b"]]), fitted["y"].predict_proba(frame[["a", "b"]])[:, 1]
    truth, weight = frame["y"] == "yes", frame["w"]
    assert found["weighted"]
    assert found["value"] == pytest.approx(f1_score(truth, decided == "yes", sample_weight=weight))
    assert found["tp"] == weight[truth & (decided == "yes")].sum()
    recall = recall_score(truth, decided == "yes", sample_weight=weight)
    assert found["requirements"]["recall >= 0.1"]["value"] == pytest.approx(recall)
    assert found["metrics"]["auroc"]["value"] == pytest.approx(roc_auc_score(truth, scores, sample_weight=weight))
    precision = average_precision_score(truth, scores, sample_weight=weight)
    assert found["metrics"]["average_precision"]["value"] == pytest.approx(precision)
    for measured in found["metrics"].values():
        if measured["interval"] is not None:
            assert measured["interval"][0] <= measured["value"] <= measured["interval"][1]
    plain = json.loads(call(*arguments[:-2], "--json").stdout)
    assert not plain["weighted"]
    assert isinstance(plain["tp"], int)
    assert plain["value"] != found["value"]
    assert "Rows count by their weights" in call(*arguments).stdout
    assert "Rows count by their weights" in (tmp_path / "r.html").read_text()


def test_evaluate_weighs_several_classes(rows, models):
    (path, frame), (folder, fitted) = rows, models
    result = call("evaluate", folder / "three", path, "--target", "three", "--weight", "w", "--json")
    found = validate("evaluate", json.loads(result.stdout))
    decided = fitted["three"].predict(frame[["a", "b"]])
    expected = f1_score(frame["three"], decided, average="macro", sample_weight=frame["w"])
    assert found["value"] == pytest.approx(expected)
    assert found["confusion"]["x"]["x"] == frame["w"][(frame["three"] == "x") & (decided == "x")].sum()
    assert found["classes"]["x"]["rows"] == frame["w"][frame["three"] == "x"].sum()


@pytest.mark.parametrize(("entry", "shown"), [("-1", "'-1' in row 3"), ("much", "'much' in row 3"), ("", "in row 3")])
def test_evaluate_refuses_what_is_no_weight(rows, models, tmp_path, entry, shown):
    _, frame = rows
    frame = frame.assign(w=frame["w"].astype(str))
    frame.loc[2, "w"] = entry
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = call("evaluate", models[0] / "y", tmp_path / "t.csv", "--target", "y", "--weight", "w")
    assert result.exit_code == 2
    assert shown in " ".join(result.stderr.split())


def test_compare_weighs_keeps_apart_and_shows_periods(rows, tmp_path):
    path, frame = rows
    arguments = ["compare", path, "--target", "y", "--drop", "three", "--weight", "w", "--time", "day", "--folds", "2"]
    arguments += ["--method", "logistic regression", "--calibration", "0.4", "--out", tmp_path / "c"]
    arguments += ["--subject-to", "recall >= 0.1"]
    result = call(*arguments, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    found = validate("compare", json.loads(result.stdout))
    expected = compare(
        frame.drop(columns="three"),
        "y",
        methods=["logistic regression"],
        subject_to="recall >= 0.1",
        sample_weight="w",
        time="day",
        folds=2,
        calibration=0.4,
    )
    assert [row["mean"] for row in found["methods"]] == [row.mean for row in expected.rows]
    assert [period["first"] for period in found["periods"]] == [each.first for each in expected.periods]
    assert "--weight w" in found["command"]
    assert "--calibration 0.4" in found["command"]
    printed = call(*arguments, "--quiet").stdout
    assert f"{expected.periods[0].first} to {expected.periods[0].last}" in " ".join(printed.split())
    page = (tmp_path / "c" / "report.html").read_text()
    assert "Values over time" in page
    assert "Rows count by their weights" in page
