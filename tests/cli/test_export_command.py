"""``metricfit export``: the graph on the disk, what is printed, and what is refused."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from json_validation import validate
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.export import runtime_check


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
    monkeypatch.setattr(runtime_check, "ROWS_OF_LATENCY", 3)


def call(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_a_saved_model_is_exported_and_checked_on_a_table(saved, tmp_path):
    folder, frame, model = saved
    path = tmp_path / "model.onnx"
    ended = call(folder / "model", "--onnx", path, "--data", folder / "rows.csv", "--json")
    assert ended.exit_code == 0, ended.output
    printed = validate("export", json.loads(ended.stdout))
    assert (printed["checked_rows"], printed["different_labels"], printed["made_up"]) == (100, 0, False)
    assert printed["bytes"] == path.stat().st_size
    assert printed["latency"].keys() == {"one_row", "thousand_rows"}
    inputs = {"a": frame[["a"]].to_numpy(), "kind": frame[["kind"]].to_numpy(object)}
    label, _ = onnxruntime.InferenceSession(path).run(None, inputs)
    assert label.tolist() == model.predict(frame[["a", "kind"]]).tolist()


def test_the_size_the_check_and_the_latency_are_printed(saved, tmp_path):
    folder, _, _ = saved
    ended = call(folder / "model", "--onnx", tmp_path / "model.onnx")
    size, check, latency = ended.stdout.splitlines()
    assert "MB, 2 inputs; outputs label and probability" in size
    assert check.startswith("Checked on 512 made-up rows: all labels equal")
    assert latency.startswith("One row: ")


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
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    ended = call(folder / "model", "--onnx", tmp_path / "a.onnx", "--data", tmp_path / "other.csv")
    assert ended.exit_code == 2
    assert "lacks 1 of the columns" in ended.output
