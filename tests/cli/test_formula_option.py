"""Formulas of the user on the command line: fitted for, stored with the model, and measured later by their name."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app

F1 = "2*tp/(2*tp+fp+fn)"
SMALL = ("--models", "linear", "--folds", "2", "--quiet", "--json")


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    frame["y"] = (frame["a"] + 0.5 * rng.normal(size=120) > 0.7).astype(int)
    path = tmp_path_factory.mktemp("formula") / "rows.csv"
    frame.to_csv(path, index=False)
    return path, frame


def test_a_formula_is_fitted_for_stored_and_measured_again(rows, tmp_path):
    path, frame = rows
    fitted = {}
    for name, metric in (("formula", F1), ("f1", "f1")):
        options = ("--metric", metric, "--subject-to", "tp/(tp+fn) >= 0.5", "--out", tmp_path / name)
        result = call("fit", path, "--target", "y", *options, *SMALL)
        assert result.exit_code == 0, result.output
        fitted[name] = json.loads(result.stdout)
    assert fitted["formula"]["metric"] == "2 * tp / (2 * tp + fp + fn)"
    assert fitted["formula"]["value"] == pytest.approx(fitted["f1"]["value"], abs=1e-12)
    assert fitted["formula"]["threshold"] == fitted["f1"]["threshold"]
    assert fitted["formula"]["requirements"]["tp / (tp + fn) >= 0.5"]["met"]
    measured = call("evaluate", tmp_path / "formula", path, "--target", "y", "--report", tmp_path / "r.html", "--json")
    called = MetricClassifier.load(tmp_path / "formula" / "model").predict(frame[["a", "b"]])
    expected = f1_score(frame["y"], called)
    assert json.loads(measured.stdout)["metrics"]["2 * tp / (2 * tp + fp + fn)"]["value"] == pytest.approx(
        expected, abs=1e-12
    )
    assert "2 * tp / (2 * tp + fp + fn)" in (tmp_path / "r.html").read_text()


def test_what_lies_inside_minimize_is_minimised(rows):
    _, frame = rows
    chosen = [
        MetricClassifier(metric, models="linear", members=2, time_budget=None, random_state=0).fit(
            frame[["a", "b"]], frame["y"]
        )
        for metric in ("minimize((fp + 5*fn)/n)", "cost(fp=1, fn=5)")
    ]
    assert chosen[0].threshold_ == chosen[1].threshold_
    assert chosen[0].value_ == pytest.approx(chosen[1].value_, abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("2*tq/(tp+fp)", r"'tq' \(character 3\) is none of tp, fp, fn, tn, n; did you mean 'tp'"),
        ("tp/(fp*fn*0)", "Add a number to the denominator"),
    ],
)
def test_a_formula_that_cannot_be_used_ends_in_one_paragraph(rows, tmp_path, metric, message):
    result = call("fit", rows[0], "--target", "y", "--metric", metric, "--out", tmp_path / "out", *SMALL)
    assert result.exit_code == 2
    assert pd.Series(" ".join(result.stderr.split())).str.contains(message).all(), result.stderr
    assert not (tmp_path / "out").exists()
