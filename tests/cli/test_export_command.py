"""``metricfit export``: the graph on the disk, what is printed, and what is refused."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from json_validation import validate
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.cli import fit as fit_command
from metricfit.cli.app import app
from metricfit.errors import ExportError


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    r = np.random.default_rng(0)
    frame = pd.DataFrame({"a": r.normal(size=100), "kind": r.choice(["x", "y", "z"], 100)})
    frame["target"] = np.where(frame["a"] + (frame["kind"] == "x") > 0.6, "yes", "no")
    folder = tmp_path_factory.mktemp("export")
    frame.to_csv(folder / "rows.csv", index=False)
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0)
    model.fit(frame[["a", "kind"]], frame["target"]).save(folder / "model")
    return folder, frame, model


@pytest.fixture(autouse=True)
def quick_measurement(monkeypatch):
    monkeypatch.setattr("metricfit.export.onnx.ROWS_OF_LATENCY", 3)


def call(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_a_saved_model_is_exported_and_checked_on_a_table(saved, tmp_path):
    folder, frame, model = saved
    path = tmp_path / "model.onnx"
    ended = call(folder / "model", "--onnx", path, "--data", folder / "rows.csv", "--json")
    assert ended.exit_code == 0, ended.output
    printed = validate("export", json.loads(ended.stdout))
    assert (printed["checked_rows"], printed["different_labels"], printed["made_up"]) == (100, 0, False)
    assert printed["rows_from"] == "rows of rows.csv"
    assert printed["bytes"] == path.stat().st_size
    assert printed["latency"].keys() == {"one_row", "thousand_rows"}
    inputs = {"a": frame[["a"]].to_numpy(), "kind": frame[["kind"]].to_numpy(object)}
    label, _ = onnxruntime.InferenceSession(path).run(None, inputs)
    assert label.tolist() == model.predict(frame[["a", "kind"]]).tolist()


def test_the_size_the_check_and_the_latency_are_printed(saved, tmp_path):
    folder, _, _ = saved
    ended = call(folder / "model", "--onnx", tmp_path / "model.onnx")
    size, check, latency, hint = ended.stdout.splitlines()
    assert "KB, 2 inputs; outputs label and probability" in size
    assert check.startswith("Checked on 512 made-up rows: all labels equal")
    assert latency.startswith("One row: ")
    assert hint.startswith("--data TABLE compares the labels on the rows of a table")


def test_bad_input_is_explained(saved, tmp_path):
    folder, _, _ = saved
    for arguments, message in (
        ((tmp_path / "nothing", "--onnx", tmp_path / "a.onnx"), "There is no model"),
        ((folder / "model", "--onnx", folder / "rows.csv"), "exists already"),
        ((folder / "model", "--onnx", tmp_path / "none" / "a.onnx"), "There is no folder"),
        ((folder / "model",), "Missing option '--onnx'"),
    ):
        ended = call(*arguments)
        assert ended.exit_code == 2, ended.output
        assert message in ended.output
    (tmp_path / "wrong.csv").write_text("a,kind\nlots,x\n")
    ended = call(folder / "model", "--onnx", tmp_path / "a.onnx", "--data", tmp_path / "wrong.csv")
    assert ended.exit_code == 2
    assert "columns that held numbers in fit hold something else now: a ('lots')" in " ".join(ended.output.split())
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    ended = call(folder / "model", "--onnx", tmp_path / "a.onnx", "--data", tmp_path / "other.csv")
    assert ended.exit_code == 2
    assert "lacks 1 of the columns" in ended.output


def test_fit_exports_and_checks_on_its_training_rows(saved, tmp_path):
    folder, frame, _ = saved
    options = ["--target", "target", "--models", "linear", "--folds", "2", "--no-insight", "--onnx"]
    ended = CliRunner().invoke(
        app, ["fit", str(folder / "rows.csv"), *options, "--out", str(tmp_path / "out"), "--json"]
    )
    assert ended.exit_code == 0, ended.output
    printed = validate("fit", json.loads(ended.stdout))["onnx"]
    assert (printed["checked_rows"], printed["rows_from"], printed["different_rows"]) == (100, "training rows", [])
    inputs = {"a": frame[["a"]].to_numpy(), "kind": frame[["kind"]].to_numpy(object)}
    label, _ = onnxruntime.InferenceSession(printed["path"]).run(None, inputs)
    loaded = MetricClassifier.load(tmp_path / "out" / "model")
    assert label.tolist() == loaded.predict(frame[["a", "kind"]]).tolist()


def test_fit_refuses_before_training_what_cannot_be_exported(tmp_path, monkeypatch):
    r = np.random.default_rng(0)
    words = [" ".join(r.choice(["late", "paid", "new", "old", "call", "mail"], 5)) for _ in range(120)]
    frame = pd.DataFrame({"a": r.normal(size=120), "note": words})
    frame["y"] = np.where(frame["a"] > 0.5, "yes", "no")
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "y", "--models", "linear", "--folds", "2", "--no-insight", "--onnx"]
    call_fit = ["fit", str(tmp_path / "t.csv"), *options, "--out", str(tmp_path / "out")]
    ended = CliRunner().invoke(app, [*call_fit, "--json"])
    assert ended.exit_code == 2
    said = " ".join(ended.stderr.split())
    assert "Nothing was trained, because the model could not be exported (--onnx): " in said
    assert "'note'" in said
    assert "linear" not in said
    assert not list((tmp_path / "out").glob("*"))
    doctor = json.loads(CliRunner().invoke(app, ["doctor", str(tmp_path / "t.csv"), "--target", "y", "--json"]).stdout)
    (finding,) = [finding for finding in doctor["findings"] if finding["kind"] == "free_text"]
    assert (finding["columns"], finding["severity"]) == (["note"], "note")
    assert "ONNX" in finding["message"]


def test_fit_keeps_a_model_whose_graph_fails(saved, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ExportError("the graph does not compute what the model does")

    monkeypatch.setattr("metricfit.export.onnx.export_onnx", fail)
    options = ["--target", "target", "--models", "linear", "--folds", "2", "--no-insight", "--onnx", "--json"]
    ended = CliRunner().invoke(app, ["fit", str(saved[0] / "rows.csv"), *options, "--out", str(tmp_path / "out")])
    assert ended.exit_code == 3
    assert "The model is kept, and not exported: the graph" in " ".join(ended.stderr.split())
    assert validate("fit", json.loads(ended.stdout))["onnx"] is None
    assert MetricClassifier.load(tmp_path / "out" / "model").classes_.tolist()


def test_a_sample_of_many_training_rows_is_named(saved, tmp_path, monkeypatch):
    _, frame, model = saved
    monkeypatch.setattr(fit_command, "CHECKED_ROWS", 40)
    result = fit_command.export_fitted(model, frame[["a", "kind"]], tmp_path, tmp_path)
    assert "Checked on 40 of 100 training rows, drawn at random: all labels equal" in str(result)


def test_a_tuned_estimator_is_exported_with_rows(saved, tmp_path):
    folder, frame, _ = saved
    tuned = TunedDecisionClassifier(LogisticRegression(), cv=2, random_state=0).fit(frame[["a"]], frame["target"])
    tuned.save(tmp_path / "tuned")
    refused = call(tmp_path / "tuned", "--onnx", tmp_path / "a.onnx")
    assert refused.exit_code == 2
    assert "give rows of them with --data TABLE" in " ".join(refused.output.split())
    ended = call(tmp_path / "tuned", "--onnx", tmp_path / "a.onnx", "--data", folder / "rows.csv")
    assert ended.exit_code == 0, ended.output
    label, _ = onnxruntime.InferenceSession(tmp_path / "a.onnx").run(None, {"a": frame[["a"]].to_numpy()})
    assert label.tolist() == tuned.predict(frame[["a"]]).tolist()
