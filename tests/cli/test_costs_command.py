"""fit, evaluate, predict and compare with a cost for each row."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app

METRIC = "cost(fp=5, fn='amount')"


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(150, 2)), columns=["a", "b"])
    frame["amount"] = np.exp(rng.normal(3, 1, 150)).round(2)
    frame["fraud"] = (frame["a"] + 0.5 * rng.normal(size=150) > 1).astype(int)
    frame.to_csv(folder / "rows.csv", index=False)
    data, out = folder / "rows.csv", folder / "out"
    result = call(
        *("fit", data, "--target", "fraud", "--metric", METRIC, "--models", "linear", "--folds", 2, "--out", out)
    )
    assert result.exit_code == 0, result.output
    return folder, frame, result


def test_fit_says_what_the_decisions_cost(fitted):
    folder, _, result = fitted
    assert METRIC in result.output
    assert "Every row has a threshold of its own" in result.output
    assert "What the decisions cost" in (folder / "out" / "report.html").read_text()


def test_evaluate_and_predict_agree_with_sums_of_money(fitted):
    folder, frame, _ = fitted
    model, data = folder / "out" / "model", folder / "rows.csv"
    assert call("predict", model, data, "--out", folder / "predicted.csv").exit_code == 0
    predicted = pd.read_csv(folder / "predicted.csv")
    p, called = predicted["probability of 1"], predicted["predicted"]
    assert (called == (p * frame["amount"] >= (1 - p) * 5)).all()
    paid = np.where(frame["fraud"] == 1, (called == 0) * frame["amount"], (called == 1) * 5.0)
    printed = json.loads(call("evaluate", model, data, "--target", "fraud", "--json").stdout)
    assert printed["value"] == pytest.approx(paid.mean())
    low, high = printed["metrics"][METRIC]["interval"]
    assert low <= paid.mean() <= high
    assert printed["tp"] == int(((called == 1) & (frame["fraud"] == 1)).sum())
    text = call("evaluate", model, data, "--target", "fraud", "--report", folder / "page.html")
    assert text.exit_code == 0, text.output
    assert "of its own for each row" in text.stdout


def test_what_cannot_be_done_is_said(fitted):
    folder, frame, _ = fitted
    model, data = folder / "out" / "model", folder / "rows.csv"
    refused = call("evaluate", model, data, "--target", "fraud", "--threshold", 0.3)
    assert refused.exit_code != 0
    assert "every row has a threshold of its own" in " ".join(refused.output.split())
    frame.assign(amount=-1).to_csv(folder / "negative.csv", index=False)
    refused = call("predict", model, folder / "negative.csv", "--out", folder / "other.csv")
    assert refused.exit_code != 0
    assert "are negative" in refused.output
    refused = call("fit", data, "--target", "fraud", "--metric", "cost(fp=5, fn='price')", "--out", folder / "other")
    assert refused.exit_code != 0
    assert "'price'" in refused.output
