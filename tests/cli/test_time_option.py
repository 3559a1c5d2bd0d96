"""``fit --time``: folds in the order of time, as ``MetricClassifier(cv="forward")`` makes them of sorted rows."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app

SMALL = ("--models", "linear", "--folds", "3", "--quiet", "--json")


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def rows():
    """Rows in the order of time, with the day as date, as number of the day, and as text."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 2)).round(3), columns=["a", "b"])
    frame["y"] = (frame["a"] + 0.5 * rng.normal(size=120) > 0.5).astype(int)
    days = pd.date_range("2023-09-01", periods=120)
    return frame, {
        "date": days,
        "number": np.arange(120) - 7,
        "text": days.strftime("%Y-%m-%d"),
        "written": days.strftime("%d/%m/%Y"),
    }


@pytest.mark.parametrize("kind", ["date", "number", "text", "written"])
def test_shuffled_rows_give_the_model_of_sorted_ones(rows, tmp_path, kind):
    frame, times = rows
    expected = MetricClassifier("f1", models=["linear"], members=3, cv="forward", random_state=0)
    expected.fit(frame[["a", "b"]], frame["y"])
    shuffled = frame.assign(when=times[kind]).sample(frac=1, random_state=1)
    shuffled.to_parquet(tmp_path / "t.parquet")
    result = call("fit", tmp_path / "t.parquet", "--target", "y", "--time", "when", "--out", tmp_path / "m", *SMALL)
    assert result.exit_code == 0, result.output
    fitted = json.loads(result.stdout)
    assert fitted["threshold"] == pytest.approx(expected.threshold_, rel=1e-6)
    assert fitted["out_of_fold"] == pytest.approx(expected.decision_.evidence.value, abs=1e-9)
    named = {"number": "'when', from -7 to 112", "written": "'when', which is read with the day first, from 01/09/2023"}
    said = " ".join(result.stderr.split())
    assert "in the order of " + named.get(kind, "'when', from 2023-09-01 to 2023-12-29") in said
    assert "not learned from" in said
    model = MetricClassifier.load(tmp_path / "m" / "model")
    assert list(model.feature_names_in_) == ["a", "b"]
    assert call("evaluate", tmp_path / "m", tmp_path / "t.parquet", "--target", "y", "--json").exit_code == 0


@pytest.mark.parametrize(
    ("when", "options", "message"),
    [
        (None, ("--time", "wen"), "no column 'wen' for --time. Did you mean 'when'"),
        ("01/02/2023", ("--time", "when"), "holds '01/02/2023', which is no number and no date of the form 2024-12-31"),
        (5, ("--time", "when"), "all rows have one value of 'when'"),
        ([np.nan, 1.0] * 60, ("--time", "when"), "'when' is missing in 60 of 120 rows"),
        ([True, False] * 60, ("--time", "when"), "true and false, which are no times"),
        (None, ("--time", "when", "--group", "a"), "--group and --time both"),
    ],
)
def test_wrong_times_are_reported(rows, tmp_path, when, options, message):
    frame, times = rows
    frame.assign(when=times["text"] if when is None else when).to_csv(tmp_path / "t.csv", index=False)
    result = call("fit", tmp_path / "t.csv", "--target", "y", *options, "--out", tmp_path / "m", *SMALL)
    assert result.exit_code == 2
    assert pd.Series(" ".join(result.stderr.split())).str.contains(message).all(), result.stderr
    assert not (tmp_path / "m").exists()


def test_numbers_of_text_files_are_times_of_evaluate(rows, tmp_path):
    frame, _ = rows
    model = MetricClassifier("f1", models=["linear"], members=3, random_state=0).fit(frame[["a", "b"]], frame["y"])
    model.save(tmp_path / "m")
    frame.assign(when=np.arange(120) * 9.5).sample(frac=1, random_state=0).to_csv(tmp_path / "t.csv", index=False)
    result = call("evaluate", tmp_path / "m", tmp_path / "t.csv", "--target", "y", "--time", "when", "--json")
    assert result.exit_code == 0, result.output
    assert [(each["first"], each["last"]) for each in json.loads(result.stdout)["periods"]] == [
        ("0.0", "560.5"),
        ("570.0", "1130.5"),
    ]
