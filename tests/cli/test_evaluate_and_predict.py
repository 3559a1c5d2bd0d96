"""What evaluate prints: the judged metric first, short numbers for people, all digits for scripts."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    confusion_matrix,
    f1_score,
    fbeta_score,
    precision_recall_fscore_support,
    roc_auc_score,
)
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.report import evaluation_result

TINY = {"models": ["linear"], "members": 2, "time_budget": None, "random_state": 0}


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    r = np.random.default_rng(0)
    frame = pd.DataFrame(r.normal(size=(120, 2)), columns=["a", "b"])
    frame["two"] = np.where(frame["a"] + 0.5 * r.normal(size=120) > 0.7, "yes", "no")
    frame["three"] = np.select([frame["a"] > 0.5, frame["b"] > 0.5], ["x", "y"], "z")
    path = tmp_path_factory.mktemp("judging") / "rows.csv"
    frame.to_csv(path, index=False)
    return path, frame


@pytest.mark.parametrize("metric", ["fbeta(beta=2)", "cost(fp=1, fn=5)"])
def test_the_judged_metric_comes_first(table, tmp_path, metric):
    path, frame = table
    model = MetricClassifier(metric, **TINY).fit(frame[["a", "b"]], frame["two"])
    model.save(tmp_path / "model")
    printed = json.loads(call("evaluate", tmp_path / "model", path, "--target", "two", "--json").stdout)
    assert list(printed["metrics"])[:3] == [metric, "auroc", "average_precision"]
    called = model.predict(frame[["a", "b"]])
    expected = (
        fbeta_score(frame["two"], called, beta=2, pos_label="yes")
        if metric.startswith("fbeta")
        else (printed["fp"] + 5 * printed["fn"]) / 120
    )
    assert printed["value"] == pytest.approx(expected)
    assert printed["metrics"][metric] == {"value": printed["value"], "interval": printed["value_interval"]}
    lines = call("evaluate", tmp_path / "model", path, "--target", "two").stdout.splitlines()
    low, high = printed["value_interval"]
    assert low <= expected <= high
    assert f"{metric}: {expected:.4g} (95 % interval {low:.4g} to {high:.4g})" in lines


def test_the_terminal_names_the_classes_and_says_whether_requirements_held(table, tmp_path):
    path, frame = table
    model = MetricClassifier("precision", subject_to=["recall >= 0.6", "fpr <= 0.9"], **TINY)
    model.fit(frame[["a", "b"]], frame["two"]).save(tmp_path / "model")
    call_it = "evaluate", tmp_path / "model", path, "--target", "two"
    for threshold, held in (("0", ("held", "NOT held")), ("1", ("NOT held", "held"))):
        text = " ".join(call(*call_it, "--threshold", threshold).stdout.split())
        positives = (frame["two"] == "yes").sum()
        assert f"120 rows: {positives} are 'yes' (the positive class), {120 - positives} are 'no'." in text
        assert "predicted 'yes' ┃ predicted 'no'" in text
        for name, each in zip(("recall >= 0.6", "fpr <= 0.9"), held, strict=True):
            assert f"Requirement {name}: {each} ({int(threshold == '0')}, 95 % interval" in text
    printed = json.loads(call(*call_it, "--json", "--threshold", "0").stdout)
    held = {text: (each["value"], each["held"]) for text, each in printed["requirements"].items()}
    assert held == {"recall >= 0.6": (1.0, True), "fpr <= 0.9": (1.0, False)}
    assert (printed["positive"], printed["negative"]) == ("yes", "no")


def test_several_classes_are_averaged_and_have_no_threshold(table, tmp_path):
    path, frame = table
    model = MetricClassifier("f1", subject_to="recall[x] >= 0.1", **TINY).fit(frame[["a", "b"]], frame["three"])
    model.save(tmp_path / "model")
    printed = json.loads(call("evaluate", tmp_path / "model", path, "--target", "three", "--json").stdout)
    called = model.predict(frame[["a", "b"]])
    validate("evaluate", printed)
    assert (printed["metric"], next(iter(printed["metrics"]))) == ("macro f1", "macro f1")
    assert printed["value"] == pytest.approx(f1_score(frame["three"], called, average="macro"))
    assert printed["metrics"]["accuracy"]["value"] == pytest.approx(accuracy_score(frame["three"], called))
    by_class = precision_recall_fscore_support(frame["three"], called, zero_division=0)
    assert [each["rows"] for each in printed["classes"].values()] == by_class[3].tolist()
    for name, values in zip(("precision", "recall", "f1"), by_class[:3], strict=True):
        measured = [each["metrics"][name] for each in printed["classes"].values()]
        assert [each["value"] for each in measured] == pytest.approx(values.tolist())
        assert all(each["interval"][0] <= each["value"] <= each["interval"][1] for each in measured)
    (requirement,) = printed["requirements"].values()
    assert requirement["held"]
    assert requirement["value"] == pytest.approx(by_class[1][0])
    assert requirement["interval"][0] <= requirement["value"] <= requirement["interval"][1]
    probabilities = model.predict_proba(frame[["a", "b"]])
    for index, label in enumerate("xyz"):
        truth, of_class = frame["three"] == label, printed["classes"][label]["metrics"]
        assert of_class["auroc"]["value"] == pytest.approx(roc_auc_score(truth, probabilities[:, index]))
        assert of_class["average_precision"]["value"] == pytest.approx(
            average_precision_score(truth, probabilities[:, index])
        )
    matrix = [[printed["confusion"][true][given] for given in "xyz"] for true in "xyz"]
    assert matrix == confusion_matrix(frame["three"], called, labels=list("xyz")).tolist()
    lines = call("evaluate", tmp_path / "model", path, "--target", "three").stdout
    low, high = printed["metrics"]["accuracy"]["interval"]
    accuracy = printed["metrics"]["accuracy"]["value"]
    assert low < accuracy < high
    assert f"accuracy: {accuracy:.4g} (95 % interval {low:.4g} to {high:.4g})" in lines
    assert "true / predicted" in lines
    assert max(len(line) for line in lines.splitlines() if line[:1] in "│┃") <= 80
    refused = call("evaluate", tmp_path / "model", path, "--target", "three", "--threshold", "0.5")
    assert refused.exit_code == 2
    assert "--threshold is for two classes; of several, the largest sum of a class's log-probability and its" in (
        " ".join(refused.stderr.split())
    )


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    """As fit leaves it: the model in a folder of the folder."""
    frame, folder = table[1], tmp_path_factory.mktemp("fitted")
    MetricClassifier("f1", **TINY).fit(frame[["a", "b"]], frame["two"]).save(folder / "model")
    return folder


def test_the_folder_that_fit_was_given_is_a_model_too(fitted, table, tmp_path):
    for folder, name in ((fitted, "a.csv"), (fitted / "model", "b.csv")):
        assert call("predict", folder, table[0], "--out", tmp_path / name).exit_code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    outer, inner = (
        call("evaluate", each, table[0], "--target", "two", "--json") for each in (fitted, fitted / "model")
    )
    assert outer.exit_code == 0
    assert outer.stdout == inner.stdout


def test_a_sample_of_the_ranked_rows_is_said(fitted, table, monkeypatch):
    arguments = ("evaluate", fitted, table[0], "--target", "two")
    assert "random sample" not in call(*arguments).stdout
    monkeypatch.setattr(evaluation_result, "MOST_ROWS", 100)
    assert "measured on a random sample of 100 of the 120 rows" in " ".join(call(*arguments).stdout.split())
    assert validate("evaluate", json.loads(call(*arguments, "--json").stdout))["ranking_rows"] == 100


def test_predictions_are_of_the_kind_their_name_says(fitted, table, tmp_path):
    for name in ("p.csv", "p.parquet"):
        assert call("predict", fitted, table[0], "--out", tmp_path / name).exit_code == 0
    parquet, csv = pd.read_parquet(tmp_path / "p.parquet"), pd.read_csv(tmp_path / "p.csv")
    pd.testing.assert_frame_equal(parquet, csv, check_dtype=False)
    refused = call("predict", fitted, table[0], "--out", tmp_path / "p.feather")
    assert refused.exit_code == 2
    assert "written as .csv or .parquet; 'p.feather' ends in neither" in refused.stderr


def test_six_more_metrics_are_printed_and_all_on_request(fitted, table):
    arguments = ("evaluate", fitted, table[0], "--target", "two")
    known = json.loads(call(*arguments, "--json").stdout)["metrics"]
    usual, everything = (call(*arguments, *more).stdout.splitlines() for more in ([], ["--all"]))
    printed = [name for name in known if any(line.startswith(f"{name}: ") for line in usual)]
    usual_names = {"f1", "auroc", "average_precision", "precision", "recall", "accuracy", "balanced_accuracy"}
    assert set(printed) == usual_names
    assert f"{len(known) - 7} more metrics with --all." in usual
    assert all(any(line.startswith(f"{name}: ") for line in everything) for name in known)


def test_no_file_is_overwritten(fitted, table, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_bytes(table[0].read_bytes())
    for arguments in (["predict", "--out", rows], ["evaluate", "--target", "two", "--report", rows]):
        refused = call(arguments[0], fitted, rows, *arguments[1:])
        assert refused.exit_code == 2
        assert "exists already" in " ".join(refused.stderr.split())
    assert rows.read_bytes() == table[0].read_bytes()


def test_a_file_is_overwritten_on_request(fitted, table, tmp_path):
    for file, *arguments in (
        (tmp_path / "labels.csv", "predict", "--out"),
        (tmp_path / "page.html", "evaluate", "--target", "two", "--report"),
    ):
        file.write_text("old")
        done = call(arguments[0], fitted, table[0], *arguments[1:], file, "--overwrite")
        assert done.exit_code == 0, done.output
        assert file.read_text() != "old"


def test_a_class_without_rows_is_told(fitted, table, tmp_path):
    whole = call("evaluate", fitted, table[0], "--target", "two", "--json")
    assert whole.stderr == ""
    table[1].query("two == 'no'").to_csv(tmp_path / "one.csv", index=False)
    found = call("evaluate", fitted, tmp_path / "one.csv", "--target", "two", "--json", "--report", tmp_path / "r.html")
    assert found.exit_code == 0
    assert validate("evaluate", json.loads(found.stdout))["training"]["verdict"] == "not comparable"
    assert "no row has the class 'yes'" in found.stderr
    measured = json.loads(found.stdout)["metrics"]
    for name in ("recall", "fnr", "gmean", "auroc"):  # 0/0
        assert measured[name]["value"] is None, name
    assert measured["specificity"]["value"] is not None
    assert "recall: not known\n" in call("evaluate", fitted, tmp_path / "one.csv", "--target", "two").stdout
    assert "all of one class" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("swapped", "verdict"), [(False, "as expected"), (True, "worse than expected")])
def test_the_page_and_the_terminal_say_whether_the_model_does_as_in_training(fitted, table, tmp_path, swapped, verdict):
    frame = table[1].copy()
    if swapped:
        frame["two"] = frame["two"].map({"yes": "no", "no": "yes"})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    page = tmp_path / "r.html"
    found = call("evaluate", fitted, tmp_path / "rows.csv", "--target", "two", "--report", page)
    assert found.exit_code == 0, found.output
    assert verdict in page.read_text(encoding="utf-8")
    assert re.search(
        rf"^f1 is 0[.\d]+ here \(95 % .*\), 0[.\d]+ at training time \(.*\): {verdict}", found.stdout, re.MULTILINE
    )


def test_fit_names_the_classes_and_the_metric_as_evaluate_does(table, tmp_path):
    small = ("--models", "linear", "--folds", "2", "--quiet")
    three = call("fit", table[0], "--target", "three", "--out", tmp_path / "three", *small)
    assert three.exit_code == 0, three.output
    lines = three.stdout.splitlines()
    assert any(line.startswith("macro f1 ") for line in lines)
    for label, rows in table[1]["three"].value_counts().items():
        assert f"'{label}' ({rows} rows)" in lines[0]
    two = json.loads(call("fit", table[0], "--target", "two", "--out", tmp_path / "two", "--json", *small).stdout)
    assert two["classes"] == dict(table[1]["two"].value_counts())
    assert two["positive"] == "yes"


def test_evaluate_has_values_by_group_in_its_report(table, tmp_path):
    path, frame = table
    model = MetricClassifier("f1", **TINY).fit(frame[["a", "b"]], frame["three"])
    model.save(tmp_path / "model")
    found = call(
        "evaluate", tmp_path / "model", path, "--target", "three", "--group", "two", "--report", tmp_path / "page.html"
    )
    assert found.exit_code == 0, found.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Values by “two”" in page
    part = frame[frame["two"] == "yes"]
    expected = f1_score(part["three"], model.predict(part[["a", "b"]]), average="macro")
    assert f">{expected:.3f}</data>" in page
    alone = call("evaluate", tmp_path / "model", path, "--target", "three", "--group", "two")
    assert (alone.exit_code, "give --report too" in alone.output) == (2, True)
    missing = call(
        "evaluate", tmp_path / "model", path, "--target", "three", "--group", "tow", "--report", tmp_path / "p.html"
    )
    assert (missing.exit_code, "Did you mean 'two'" in missing.output) == (2, True)


def test_a_requirement_about_absent_rows_is_not_known(tmp_path):
    r = np.random.default_rng(0)
    rows = pd.DataFrame({"a": r.normal(size=200)}).assign(y=lambda table: (table["a"] > 0.5).astype(int))
    model = MetricClassifier("precision", subject_to=["recall >= 0.8", "fpr <= 0.5"], models=["linear"], random_state=0)
    model.fit(rows[["a"]], rows["y"]).save(tmp_path / "model")
    rows[rows["y"] == 0].to_csv(tmp_path / "none.csv", index=False)
    command = ["evaluate", tmp_path / "model", tmp_path / "none.csv", "--target", "y"]
    said = call(*command, "--report", tmp_path / "page.html").stdout
    assert "Requirement recall >= 0.8: not known.\n" in said
    assert "Requirement fpr <= 0.5: held (" in said
    page = (tmp_path / "page.html").read_text()
    assert "The requirement recall &gt;= 0.8 is not known here." in page
    assert "not known on these rows" in page
    unknown = json.loads(call(*command, "--json").stdout)["requirements"]["recall >= 0.8"]
    assert unknown == {"value": None, "interval": None, "held": None, "readiness": None}
