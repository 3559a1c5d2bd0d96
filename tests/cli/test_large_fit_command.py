"""fit on a Parquet table of many rows: it is read in batches, and families on a sample say so."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app
from metricfit.tabular.large import large_families, row_sources


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(row_sources, "LARGE_ROWS", 400)
    monkeypatch.setattr(large_families, "SAMPLE_ROWS", 200)
    r = np.random.default_rng(0)
    frame = pd.DataFrame({"a": r.normal(size=600), "b": r.choice(["x", "y"], 600), "who": np.arange(600) // 3})
    frame["late"] = np.where(frame["a"] + 0.5 * r.normal(size=600) > 0.7, "yes", "no")
    for part in range(2):
        frame[300 * part : 300 * (part + 1)].to_parquet(tmp_path / f"part-{part}.parquet", row_group_size=100)
    return tmp_path


def test_a_large_table_is_fitted_in_batches(table, monkeypatch):
    monkeypatch.setattr(pd, "read_parquet", lambda *_, **__: pytest.fail("the table was read at once"))
    options = ("--target", "late", "--group", "who", "--models", "linear", "--out", table / "out")
    result = call("fit", table / "part-*.parquet", *options)
    assert result.exit_code == 0, result.output
    assert "600 rows: it is read in batches" in " ".join(result.stderr.split())
    assert "linear was fitted on 200 of 600 rows." in result.stdout
    report = (table / "out" / "report.html").read_text()
    assert "fitted on 200 of 600 rows" in report
    predicted = call("predict", table / "out", table / "part-0.parquet", "--out", table / "p.csv", "--json")
    assert json.loads(predicted.stdout)["rows"] == 300


def test_mistakes_are_reported_as_for_small_tables(table):
    for option, message in (
        (("--target", "lat"), "has no column 'lat'"),
        (("--target", "a"), "these look like numbers to predict"),
        (("--target", "late", "--group", "whom"), "no column 'whom' to group by. Did you mean 'who'?"),
        (("--target", "late", "--group", "late"), "--group and --target both name 'late'"),
    ):
        result = call("fit", table / "part-*.parquet", *option, "--out", table / "out")
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())
