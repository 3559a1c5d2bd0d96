"""``compare``: a folder per table, metric and day by default, changes in words, and folds in the order of time."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from sklearn.metrics import f1_score
from sklearn.model_selection import TimeSeriesSplit
from typer.testing import CliRunner

from metricfit.cli.app import app
from metricfit.cli.compare import _compare_in_folder
from metricfit.cli.output_paths import run_folder
from metricfit.cli.terminal import UserError
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.compare.methods import find_method
from metricfit.tabular.compare.trainings import ChangedRunError

pytestmark = pytest.mark.usefixtures("two_inner_folds")
SMALL = ("--method", "boosted trees", "--folds", "2", "--time-budget", "0.001", "--json", "--quiet")


def call(*arguments):
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return result, validate("compare", json.loads(result.stdout)) if result.exit_code == 0 else None


@pytest.fixture
def rows():
    """Rows in the order of time."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 2)).round(3), columns=["a", "b"])
    frame["when"] = pd.date_range("2024-01-01", periods=90).strftime("%Y-%m-%d")
    return frame.assign(y=(frame["a"] + 0.5 * rng.normal(size=90) > 0.4).astype(int))


def finished(folder):
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("report.json")}


def test_the_folder_of_a_table_a_metric_and_a_day(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows.drop(columns="when").to_csv("loans.csv", index=False)
    result, first = call("loans.csv", "--target", "y", *SMALL)
    assert result.exit_code == 0, result.output
    folder = run_folder([Path("loans.csv")], "f1", date.today())
    assert Path(first["folder"]) == folder
    assert folder.match(f"metricfit-runs/loans-f1-{date.today()}")
    assert Path(first["report"]).is_file()
    trained = finished(folder)
    _, again = call("loans.csv", "--target", "y", *SMALL)
    assert finished(folder) == trained
    assert again["methods"] == first["methods"]

    rows.drop(columns="when").to_csv("others.csv", index=False)
    page = Path(first["report"]).read_bytes()
    result, _ = call("others.csv", "--target", "y", "--out", folder, *SMALL)
    assert result.exit_code == 2
    assert "holds a comparison of loans.csv, and the report of others.csv would replace its report." in " ".join(
        result.stderr.split()
    )
    assert Path(first["report"]).read_bytes() == page

    rows[:80].assign(age=1).drop(columns="when").to_csv("loans.csv", index=False)
    result, _ = call("loans.csv", "--target", "y", "--out", folder, *SMALL)
    assert result.exit_code == 2
    assert "rows 90 -> 80; column 'age' is new. Give another --out to keep both" in " ".join(result.stderr.split())
    assert finished(folder) == trained


def test_a_changed_table_gets_the_next_folder_by_default(capsys):
    def compare_in(folder):
        if folder.parent.name != "loans-3":
            raise ChangedRunError("", ["rows 90 -> 80"])
        return "compared"

    folder = Path("runs") / "loans"
    assert _compare_in_folder(compare_in, folder, by_default=True) == ("compared", folder.with_name("loans-3"))
    said = " ".join(capsys.readouterr().err.split())
    assert f"{folder} holds a comparison of another table or with other options: rows 90 -> 80. This one goes" in said
    with pytest.raises(UserError, match=r"rows 90 -> 80\. Give another --out"):
        _compare_in_folder(compare_in, folder, by_default=False)


@pytest.mark.parametrize(
    ("data", "metric", "name"),
    [
        (["a b/my.loans.csv"], "f1", "my.loans-f1-2026-11-16"),
        (["parts/"], "2*tp/(2*tp + fp)", "parts-2-tp-2-tp-+-fp-2026-11-16"),
        (["-"], "mcc", "standard-input-mcc-2026-11-16"),
        (["a.parquet", "b.parquet"], "mcc", "a-and-1-more-mcc-2026-11-16"),
        (["x" * 300 + ".csv"], "mcc", "x" * 60 + "-mcc-2026-11-16"),
    ],
)
def test_names_of_folders(data, metric, name):
    assert run_folder([Path(path) for path in data], metric, date(2026, 11, 16)) == Path("metricfit-runs") / name


def test_folds_in_the_order_of_time(rows, tmp_path):
    rows.sample(frac=1, random_state=1).to_csv(tmp_path / "t.csv", index=False)
    result, compared = call(tmp_path / "t.csv", "--target", "y", "--time", "when", "--out", tmp_path / "c", *SMALL)
    assert result.exit_code == 0, result.output
    values = {row["name"]: row["values"] for row in compared["methods"]}["boosted trees"]
    X, y = rows[["a", "b"]], rows["y"]
    expected = []
    for train, test in TimeSeriesSplit(2).split(X):
        model = find_method("boosted trees").classifier("f1", cv="forward", time_budget=None, random_state=0)
        expected.append(f1_score(y[test], model.fit(X.iloc[train], y[train]).predict(X.iloc[test])))
    assert values == pytest.approx(expected)
    page = (tmp_path / "c" / "report.html").read_text()
    assert "in the order of “when”" in page
    asked = ("--subject-to", "recall >= 0.01", "--out", tmp_path / "asked")  # the reference is not chosen for it
    result, under = call(tmp_path / "t.csv", "--target", "y", "--time", "when", *asked, *SMALL)
    assert result.exit_code == 0, result.output
    assert "--time when" in under["command"]

    settings = {"folder": tmp_path / "c" / "cells", "name": "t.csv", "time_budget": 0.001, "folds": 2}
    trained = finished(tmp_path / "c")
    shuffled = rows.sample(frac=1, random_state=2)
    in_python = compare(shuffled, "y", time="when", methods=["boosted trees"], **settings)
    assert finished(tmp_path / "c") == trained
    assert {row.name: list(row.values) for row in in_python.rows}["boosted trees"] == values
    assert in_python.time == "when"
    scores = in_python.decisions["boosted trees"].scores
    assert len(in_python.labels) == len(scores) == 60
    assert in_python.labels.tolist() == y[30:].tolist()
    assert not np.isnan(scores).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time": "when", "groups": "a"}, "groups= and time= both"),
        ({"time": "then"}, "time='then' is not a column"),
        ({"time": "y"}, "target and time both name the column 'y'"),
        ({"time": [1] * 90}, "all rows have one value"),
        ({"time": "a", "folds": 20}, "folds are left out: their training or test rows lack a class, and a comparison"),
    ],
)
def test_wrong_times_are_refused(rows, settings, message):
    ordered = rows.assign(y=[0] * 45 + [1] * 45, a=range(90))
    with pytest.raises(ValueError, match=message):
        compare(ordered, "y", **settings)
