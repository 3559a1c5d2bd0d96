"""The commands, run as a user would, on a small table."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.tabular.families.choice import DEFAULT, NAMES

SMALL = ["--models", "linear,extra_trees", "--folds", "2", "--seed", "1"]
SMALL_COMPARISON = ["--method", "logistic regression"]


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
    found = call("fit", data, "--target", "fraud", "--out", data.parent / "fitted", "--json", *SMALL)
    assert found.exit_code == 0, found.output
    assert found.stderr == ""
    return validate("fit", json.loads(found.stdout))


def test_fit_writes_a_model_and_a_report(model, data):
    assert 0 < model["out_of_fold"] <= 1
    low, high = model["value_interval"]
    assert low <= model["value"] <= high
    low, high = model["threshold_interval"]
    assert low <= model["threshold"] <= high
    page = (data.parent / "fitted" / "report.html").read_text(encoding="utf-8")
    assert "# Model card: " in (data.parent / "fitted" / "model" / "model_card.md").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page


def test_the_json_of_fit_is_what_the_model_says_of_itself(model):
    loaded = MetricClassifier.load(model["model"])
    assert model["models"] == [vars(row) for row in loaded.models_]
    assert {row["name"] for row in model["models"]} == {"linear", "extra_trees"}
    assert model["value"] == loaded.value_
    assert model["out_of_fold"] == loaded.decision_.evidence.value
    assert model["threshold"] == loaded.threshold_


def test_fit_prints_each_family_when_it_ends_and_a_table_of_them(model, data, tmp_path):
    found = call("fit", data, "--target", "fraud", "--out", tmp_path / "m", *SMALL)
    assert found.exit_code == 0, found.output
    ended = (
        r"^linear: [\d.]+ out of fold, [\d.]+ s \(1 of 2.*\)\nextra_trees: [\d.]+ out of fold, [\d.]+ s \(2 of 2.*\)$"
    )
    assert re.search(ended, found.stderr, re.MULTILINE)
    for row in model["models"]:
        weight = f"{row['weight']:.2f}" if row["weight"] else "not used"
        assert re.search(rf"{row['name']} +│ {row['value']:.3f} +│ {weight} +│ [\d.]+ ", found.stdout)
    low, high = model["value_interval"]
    assert (
        f"f1 {model['value']:.3f} (95 % interval {low:.3f} to {high:.3f}), estimated for new rows: "
        "the value on held-out rows." in found.stdout
    )
    assert model["value"] == model["out_of_fold"]
    low, high = model["threshold_interval"]
    shown = re.search(r"Threshold ([\d.]+) \(95 % interval (.*)\)\.", found.stdout)
    assert float(shown[1]) == pytest.approx(model["threshold"], abs=1e-4)
    assert shown[2] == f"{low:.3f} to {high:.3f}"
    quiet = call("fit", data, "--target", "fraud", "--out", tmp_path / "quiet", "--quiet", *SMALL)
    assert quiet.stderr == ""


def test_weights_and_the_average_are_those_of_the_classifier(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(150, 2)), columns=["a", "b"])
    label = np.digitize(frame["a"] + 0.5 * rng.normal(size=150), [-0.5, 0.8])
    weight = rng.integers(1, 5, 150)
    frame.assign(label=label, importance=weight).to_csv(tmp_path / "rows.csv", index=False)
    options = ["--target", "label", "--weight", "importance", "--average", "weighted", "--models", "linear"]
    found = call("fit", tmp_path / "rows.csv", *options, "--folds", 2, "--out", tmp_path / "m", "--json")
    assert found.exit_code == 0, found.output
    settings = {"models": ["linear"], "members": 2, "average": "weighted", "random_state": 0}
    model = MetricClassifier("f1", **settings).fit(frame, label, sample_weight=weight)
    assert json.loads(found.stdout)["value"] == pytest.approx(model.value_)
    assert MetricClassifier.load(tmp_path / "m" / "model").feature_names_in_.tolist() == ["a", "b"]


def test_a_model_is_replaced_on_request_and_other_folders_are_not(data, tmp_path):
    fit = ["fit", data, "--target", "fraud", "--models", "linear", "--folds", "2"]
    out = tmp_path / "m"
    (out / "model").mkdir(parents=True)
    (out / "old").write_text("old")
    refused = call(*fit, "--out", out)
    assert refused.exit_code == 2
    assert "--overwrite replaces the model" in " ".join(refused.stderr.split())
    assert call(*fit, "--out", out, "--overwrite").exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == ["model", "report.html"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    refused = call(*fit, "--out", other, "--overwrite")
    assert refused.exit_code == 2
    assert "holds no model to replace" in " ".join(refused.stderr.split())
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]


def test_a_family_that_was_left_out_is_named_with_the_reason(data, tmp_path):
    options = ["--models", "linear,boosting", "--folds", "2", "--time-budget", "0.001"]
    found = call("fit", data, "--target", "fraud", "--out", tmp_path / "m", *options)
    assert found.exit_code == 0, found.output
    assert re.search(r"^boosting is left out: .*\.$", found.stdout, re.MULTILINE)
    assert "boosting is left out: " in found.stderr
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "<strong>boosting</strong>: " in page


def test_the_help_names_every_family_and_the_default():
    text = " ".join(call("fit", "--help").stdout.split())
    assert f"separated by commas: {', '.join(NAMES)}." in text
    assert f"By default {', '.join(DEFAULT[:-1])} and {DEFAULT[-1]}; text only for tables with free text." in text


def test_evaluate_counts_what_predict_writes(model, data, tmp_path):
    found = call("evaluate", model["model"], data, "--target", "fraud", "--json", "--report", tmp_path / "r.html")
    assert found.exit_code == 0, found.output
    values = validate("evaluate", json.loads(found.stdout))
    assert (tmp_path / "r.html").exists()
    written = call("predict", model["model"], data, "--out", tmp_path / "p.csv")
    assert written.exit_code == 0, written.output
    predicted, truth = pd.read_csv(tmp_path / "p.csv")["predicted"], pd.read_csv(data)["fraud"]
    positive = 'say "yes"'
    assert values["tp"] == int(((predicted == positive) & (truth == positive)).sum())
    assert values["fp"] == int(((predicted == positive) & (truth != positive)).sum())
    assert values["metrics"]["recall"]["value"] == pytest.approx(values["tp"] / (values["tp"] + values["fn"]))


def test_another_threshold_is_counted(model, data):
    found = call("evaluate", model["model"], data, "--target", "fraud", "--json", "--threshold", "0.999999")
    assert json.loads(found.stdout)["tp"] + json.loads(found.stdout)["fp"] <= 200
    assert json.loads(found.stdout)["threshold"] == 0.999999


@pytest.mark.usefixtures("two_inner_folds")
def test_compare_prints_a_table_and_a_verdict(data, tmp_path):
    found = call(
        "compare",
        data,
        "--target",
        "fraud",
        "--out",
        tmp_path / "c",
        "--folds",
        "2",
        "--quiet",
        "--jobs",
        "1",
        "--subject-to",
        "recall >= 0.1",
        *SMALL_COMPARISON,
    )
    assert found.exit_code == 0, found.output
    for text in (
        "LightGBM as it comes",
        "at random",
        f"To fit it on all rows: metricfit fit {data} --target fraud --metric f1 --subject-to 'recall >= 0.1'",
    ):
        assert text in found.stdout
    assert str(tmp_path / "c" / "report.html") in found.stdout.replace("\n", "")


def test_the_list_of_metrics():
    assert json.loads(call("metrics", "--json").stdout)["metrics"]
    assert call("metrics").stdout.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none.csv", "--target", "y", "--out", "x"], "There is no file none.csv"),
        (["fit", "DATA", "--target", "Fraud", "--out", "x"], "Did you mean 'fraud'?"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--metric", "f3"], "f3"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--models", "linear,trees"], "no family of models 'trees'"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--models", ""], "no family of models ''"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--jobs", "0"], "-1 for one per core; got 0"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--subject-to", "recall"], "cannot read the requirement"),
        (["fit", "DATA", "--target", "fraud", "--out", "x", "--positive", "maybe"], "No row has the label 'maybe'"),
        (["compare", "DATA", "--target", "fraud", "--out", "x", "--group", "site"], "no column 'site' for --group"),
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
