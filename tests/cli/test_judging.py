"""What evaluate prints: the judged metric first, short numbers for people, all digits for scripts."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, fbeta_score
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app

TINY = {"network": "mlp", "members": 2, "epochs": 3, "time_budget": None, "random_state": 0}


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    r = np.random.default_rng(0)
    frame = pd.DataFrame(r.normal(size=(120, 2)), columns=["a", "b"])
    frame["two"] = np.where(frame["a"] > 0.7, "yes", "no")
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
    assert list(printed)[:7] == ["rows", "threshold", "tp", "fp", "fn", "tn", metric]
    called = model.predict(frame[["a", "b"]])
    expected = (
        fbeta_score(frame["two"], called, beta=2, pos_label="yes")
        if metric.startswith("fbeta")
        else (printed["fp"] + 5 * printed["fn"]) / 120
    )
    assert printed[metric] == pytest.approx(expected)
    lines = call("evaluate", tmp_path / "model", path, "--target", "two").stdout.splitlines()
    assert f"{metric}: {expected:.4g}" in lines


def test_several_classes_are_averaged_and_have_no_threshold(table, tmp_path):
    path, frame = table
    model = MetricClassifier("f1", **TINY).fit(frame[["a", "b"]], frame["three"])
    model.save(tmp_path / "model")
    printed = json.loads(call("evaluate", tmp_path / "model", path, "--target", "three", "--json").stdout)
    expected = f1_score(frame["three"], model.predict(frame[["a", "b"]]), average="macro")
    assert printed == {"rows": 120, "macro f1": pytest.approx(expected)}
    refused = call("evaluate", tmp_path / "model", path, "--target", "three", "--threshold", "0.5")
    assert refused.exit_code == 2
    assert "--threshold is for two classes" in refused.stderr
