"""Categories that training did not have: said once, with the column and the share of the rows."""

import json
import logging

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.tabular.encoding.encoder import TableEncoder


@pytest.fixture(scope="module")
def fitted():
    r = np.random.default_rng(0)
    X = pd.DataFrame({"x": r.normal(size=400), "carrier": r.choice(["AA", "DL", "UA"], 400)})
    X["tail"] = np.char.add("N", r.integers(0, 100, 400).astype(str))
    X.loc[::50, "carrier"] = None
    y = np.where(X["x"] + r.normal(size=400) > 0.8, "late", "on time")
    return X, MetricClassifier(models=["linear"], members=2, random_state=0).fit(X, y)


def changed(X):
    """Give 30 rows a new carrier and two a new tail number."""
    return X.assign(
        carrier=np.where(np.arange(400) < 30, "WN", X["carrier"]), tail=np.where(np.arange(400) < 2, "Z9", X["tail"])
    )


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_predict_logs_columns_and_shares(fitted, caplog, kind):
    X, model = fitted
    with caplog.at_level(logging.WARNING, "metricfit.tabular"):
        model.predict(kind(X))
        assert caplog.messages == []
        model.predict_proba(kind(changed(X)))
    (line,) = caplog.messages
    assert "'carrier' in 30 of 400 rows (7.5 %)" in line
    assert "'tail' in 2 of 400 rows (0.5 %)" in line


def test_the_count_is_a_naive_one(fitted):
    X, model = fitted
    table = changed(X).astype({"carrier": "category"})
    assert model.encoder_.count_unseen(table) == {
        name: int((~table[name].astype(object).isin(X[name]) & table[name].notna()).sum())
        for name in ("carrier", "tail")
    }


def test_commands_print_one_line_for_all_batches(fitted, tmp_path, monkeypatch):
    X, model = fitted
    monkeypatch.setattr("metricfit.data.reading.BATCH_ROWS", 100)
    model.save(tmp_path / "model")
    changed(X).to_csv(tmp_path / "new.csv", index=False)
    arguments = [str(tmp_path / "model"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv"), "--json"]
    ended = CliRunner().invoke(app, ["predict", *arguments])
    assert ended.exit_code == 0, ended.output
    assert ended.stderr.count("New categories") == 1
    assert "'carrier' in 30 of 400 rows (7.5 %)" in " ".join(ended.stderr.split())
    assert json.loads(ended.stdout)["new_categories"] == {"carrier": 30, "tail": 2}


def test_2000_tail_numbers_are_a_category_of_many_values():
    r = np.random.default_rng(0)
    tails = pd.Series(np.char.add("N", r.integers(0, 2000, 24_000).astype(str)))
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"x": r.normal(size=24_000), "tail": tails}))
    assert encoder.columns[1].categories == sorted(tails.unique())
