"""The commands, run as a user would, on a small table."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app

SMALL = ["--network", "mlp", "--members", "2", "--time-budget", "1"]


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "<script>alert(1)</script>"])
    frame["fraud"] = np.where(frame["b"] + 0.3 * rng.normal(size=200) > 0.8, 'say "yes"', "no")
    path = tmp_path_factory.mktemp("data") / "cases.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(data):
    found = call("fit", data, "--target", "fraud", "--out", data.parent / "fitted", "--json", "--quiet", *SMALL)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_fit_writes_a_model_and_a_report(model, data):
    assert 0 < model["out_of_fold"] <= 1
    page = (data.parent / "fitted" / "report.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page


def test_evaluate_counts_what_predict_writes(model, data, tmp_path):
    found = call("evaluate", model["model"], data, "--target", "fraud", "--json", "--report", tmp_path / "r.html")
    assert found.exit_code == 0, found.output
    values = json.loads(found.stdout)
    assert (tmp_path / "r.html").exists()
    written = call("predict", model["model"], data, "--out", tmp_path / "p.csv")
    assert written.exit_code == 0, written.output
    predicted, truth = pd.read_csv(tmp_path / "p.csv")["predicted"], pd.read_csv(data)["fraud"]
    positive = 'say "yes"'
    assert values["tp"] == int(((predicted == positive) & (truth == positive)).sum())
    assert values["fp"] == int(((predicted == positive) & (truth != positive)).sum())
    assert values["recall"] == pytest.approx(values["tp"] / (values["tp"] + values["fn"]))


def test_another_threshold_is_counted(model, data):
    found = call("evaluate", model["model"], data, "--target", "fraud", "--json", "--threshold", "0.999999")
    assert json.loads(found.stdout)["tp"] + json.loads(found.stdout)["fp"] <= 200
    assert json.loads(found.stdout)["threshold"] == 0.999999


def test_compare_prints_a_table_and_a_verdict(data, tmp_path):
    found = call(
        "compare", data, "--target", "fraud", "--out", tmp_path / "c", "--folds", "2", "--quiet", "--jobs", "1", *SMALL
    )
    assert found.exit_code == 0, found.output
    assert "boosted trees" in found.stdout
    assert str(tmp_path / "c" / "report.html") in found.stdout.replace("\n", "")


@pytest.mark.parametrize("command", ["metrics", "datasets"])
def test_lists(command):
    assert json.loads(call(command, "--json").stdout)[command]
    assert call(command).stdout.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none.csv", "--target", "y", "--out", "x"], "There is no file none.csv"),
        (["fit", "DATA", "--target", "Fraud", "--out", "x"], "Did you mean 'fraud'?"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--metric", "f3"], "f3"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--subject-to", "recall"], "cannot read the requirement"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--positive", "maybe"], "No row has the label 'maybe'"),
        (["compare", "DATA", "--target", "fraud", "--out", "x", "--group", "site"], "no column 'site' to group by"),
        (["evaluate", "nowhere", "DATA", "--target", "fraud"], "There is no model nowhere"),
    ],
)
def test_a_users_mistake_is_one_paragraph_and_exit_code_2(arguments, message, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = call(*[data if each == "DATA" else each for each in arguments])
    assert found.exit_code == 2
    assert message in " ".join(found.stderr.split())
    assert "Traceback" not in found.output
    assert not (tmp_path / "x").exists()
