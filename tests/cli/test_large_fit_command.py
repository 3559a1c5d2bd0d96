"""fit on a Parquet table of many rows: it is read in batches, and families on a sample say so."""

import json

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from typer.testing import CliRunner

from metricfit.cli.app import app
from metricfit.cli.command_rows import read_compared_rows, sample_of_groups
from metricfit.cli.options import TableOptions
from metricfit.data import reading
from metricfit.tabular import large_rows


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(large_rows, "LARGE_ROWS", 400)
    monkeypatch.setattr(large_rows, "FITTED_ROWS", 200)
    r = np.random.default_rng(0)
    frame = pd.DataFrame({"a": r.normal(size=600), "b": r.choice(["x", "y"], 600), "who": np.arange(600) // 3})
    frame["late"] = np.where(frame["a"] + 0.5 * r.normal(size=600) > 0.7, "yes", "no")
    for part in range(2):
        frame[300 * part : 300 * (part + 1)].to_parquet(tmp_path / f"part-{part}.parquet", row_group_size=100)
    return tmp_path


def test_a_large_table_is_fitted_in_batches(table, monkeypatch):
    monkeypatch.setattr(reading, "read_file", lambda *_, **__: pytest.fail("the table was read at once"))
    options = ("--target", "late", "--group", "who", "--models", "linear", "--out", table / "out")
    result = call("fit", table / "part-*.parquet", *options)
    assert result.exit_code == 0, result.output
    assert "600 rows: it is read in batches" in " ".join(result.stderr.split())
    assert "linear was fitted on 200 of 600 rows." in result.stdout
    report = (table / "out" / "report.html").read_text()
    assert "fitted on 200 of 600 rows" in report
    assert "Which columns matter" in report
    assert "Rows that are most wrong" in report
    predicted = call("predict", table / "out", table / "part-0.parquet", "--out", table / "p.csv", "--json")
    assert json.loads(predicted.stdout)["rows"] == 300


def test_mistakes_are_reported_as_for_small_tables(table):
    for option, message in (
        (("--target", "lat"), "has no column 'lat'"),
        (("--target", "a"), "these look like numbers to predict"),
        (("--target", "late", "--group", "whom"), "no column 'whom' for --group. Did you mean 'who'?"),
        (("--target", "late", "--group", "late"), "--group and --target both name 'late'"),
    ):
        result = call("fit", table / "part-*.parquet", *option, "--out", table / "out")
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())


@pytest.mark.usefixtures("two_inner_folds")
def test_compare_takes_a_sample_and_says_so(table):
    options = (
        "--target",
        "late",
        "--method",
        "logistic regression",
        "--folds",
        "2",
        "--time-budget",
        "0.001",
        "--json",
    )
    out = table / "compared"
    result = call("compare", table / "part-*.parquet", *options, "--max-rows", "300", "--out", out)
    assert result.exit_code == 0, result.output
    printed = validate("compare", json.loads(result.stdout))
    assert (printed["table_rows"], printed["compared_rows"]) == (600, 300)
    assert "a random sample of 300 of 600 rows; --max-rows" in printed["notes"][0]
    assert "a random sample of 300 of 600 rows" in (out / "report.html").read_text()


def test_samples_of_files_and_of_text_are_the_same(table):
    files, text = sorted(table.glob("*.parquet")), table / "t.csv"
    pd.concat([pd.read_parquet(path) for path in files]).to_csv(text, index=False)
    read = [
        read_compared_rows(TableOptions(data=tuple(data), target="late", group="who"), most=301)
        for data in (files, [text])
    ]
    for rows, table_rows, _ in read:
        assert (table_rows, len(rows.y)) == (600, 300)
        assert rows.groups.value_counts().unique().tolist() == [3]
    (first, *_), (second, *_) = read
    pd.testing.assert_frame_equal(first.X, second.X, check_dtype=False)
    assert first.y.tolist() == second.y.tolist()


def test_groups_are_drawn_whole():
    groups = pd.Series(np.repeat(list("abcdefghij"), 10))
    rows = sample_of_groups(groups, 35)
    assert np.bincount(rows // 10, minlength=10).tolist().count(10) == 3
    assert len(rows) == 30


def test_large_text_tables_are_read_at_once_and_say_so(table):
    pd.concat([pd.read_parquet(path) for path in sorted(table.glob("*.parquet"))]).to_csv(table / "t.csv", index=False)
    options = ("--target", "late", "--models", "linear", "--no-insight", "--out", table / "out")
    result = call("fit", table / "t.csv", *options, "--json")
    assert "t.csv has 600 rows, which are read at once. Parquet files are read in batches" in " ".join(
        result.stderr.split()
    )
    printed = validate("fit", json.loads(result.stdout))
    assert [finding["kind"] for finding in printed["findings"]] == ["ordered_rows"]
