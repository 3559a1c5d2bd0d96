"""predict and evaluate read tables in batches: the results do not depend on the batches."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.data import reading

FEATURES = ["amount", "code", "paid", "day"]


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def table():
    r = np.random.default_rng(0)
    rows = 300
    code = np.where(r.random(rows) < 0.5, [f"{number:03d}" for number in r.integers(4, size=rows)], "B7")
    code[:20] = "001"  # batches without a letter
    frame = pd.DataFrame(
        {
            "amount": np.where(np.arange(rows) < 20, np.nan, r.lognormal(size=rows)),
            "code": code,
            "paid": np.where(r.random(rows) < 0.2, None, r.random(rows) < 0.5),
            "day": pd.date_range("2024-01-01", periods=rows, freq="h").astype(str),
        }
    )
    frame["late"] = np.where((frame["amount"].fillna(1) + (code == "B7") + r.normal(size=rows)) > 2.5, "yes", "NA")
    return frame


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches")
    table.to_csv(folder / "rows.csv", index=False)
    table.to_parquet(folder / "rows.parquet", row_group_size=100)
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0)
    model.fit(table[FEATURES], table["late"]).save(folder / "model")
    return folder


@pytest.fixture(params=[37, 1000])
def batch_rows(request, monkeypatch):
    monkeypatch.setattr(reading, "BATCH_ROWS", request.param)
    return request.param


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_are_those_of_the_whole_table(table, folder, tmp_path, batch_rows, name, ending):
    model = MetricClassifier.load(folder / "model")
    out = tmp_path / f"out.{ending}"
    result = call("predict", folder / "model", folder / name, "--out", out)
    assert result.exit_code == 0, result.output
    written = pd.read_csv(out, keep_default_na=False) if ending == "csv" else pd.read_parquet(out)
    assert written["predicted"].tolist() == model.predict(table[FEATURES]).tolist()
    probabilities = written[["probability of NA", "probability of yes"]].to_numpy()
    np.testing.assert_allclose(probabilities, model.predict_proba(table[FEATURES]), atol=1e-12)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_evaluations_are_those_of_the_whole_table(table, folder, tmp_path, batch_rows, name):
    model = MetricClassifier.load(folder / "model")
    page = tmp_path / "page.html"
    result = call("evaluate", folder / "model", folder / name, "--target", "late", "--json", "--report", page)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    called, late = model.predict(table[FEATURES]) == "yes", (table["late"] == "yes").to_numpy()
    assert printed["rows"] == 300
    assert (printed["tp"], printed["fp"]) == ((called & late).sum(), (called & ~late).sum())
    assert "<html" in page.read_text()


def test_bad_entries_are_reported_with_their_row(table, folder, tmp_path, batch_rows):
    bad = table.astype({"amount": object})
    bad.loc[140, "amount"] = "a lot"
    bad.to_csv(tmp_path / "bad.csv", index=False)
    result = call("predict", folder / "model", tmp_path / "bad.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code == 2
    text = " ".join(result.stderr.split())
    assert "bad.csv, row 141: columns that held numbers in fit hold something else now: amount ('a lot')" in text
    assert not (tmp_path / "out.csv").exists()


def test_labels_are_checked_with_their_row(table, folder, tmp_path, batch_rows):
    for wrong, message in (("maybe", "'maybe', first in row 31 of"), (None, "is missing in row 31 of")):
        bad = table.copy()
        bad.loc[30, "late"] = wrong
        bad.to_parquet(tmp_path / f"{wrong}.parquet")
        result = call("evaluate", folder / "model", tmp_path / f"{wrong}.parquet", "--target", "late")
        assert result.exit_code == 2
        assert message.replace("'", "") in " ".join(result.stderr.split()).replace("'", "")


@pytest.mark.slow
def test_a_killed_run_leaves_no_file_of_the_final_name(folder, tmp_path):
    script = (
        "import sys, time, pandas;"
        "pandas.DataFrame.to_csv = lambda self, file, **_: (file.write('begun'), file.flush(), time.sleep(60));"
        "from metricfit.cli import main; sys.argv[0] = 'metricfit'; main()"
    )
    command = [sys.executable, "-c", script, "predict", str(folder / "model"), str(folder / "rows.csv")]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "out.csv")], env=os.environ)
    try:
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size for path in tmp_path.iterdir()) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.1)
        assert [path.name for path in tmp_path.iterdir()] != ["out.csv"]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_memory_does_not_grow_with_the_table(tmp_path, command):
    r = np.random.default_rng(0)
    small = pd.DataFrame(r.normal(size=(150_000, 20)), columns=[f"x{number}" for number in range(20)])
    small["y"] = (small["x0"] + r.normal(size=len(small)) > 2).astype(int)
    model = MetricClassifier("f1", models=["linear"], members=2, random_state=0)
    model.fit(small.drop(columns="y")[:500], small["y"][:500]).save(tmp_path / "model")
    small.to_parquet(tmp_path / "small.parquet", row_group_size=50_000)
    pd.concat([small] * 10).to_parquet(tmp_path / "large.parquet", row_group_size=50_000, index=False)
    peaks = []
    for name in ("small", "large"):
        options = ["--target", "y"] if command == "evaluate" else ["--out", str(tmp_path / f"{name}-out.parquet")]
        script = "import sys; from metricfit.cli import main; sys.argv[0] = 'metricfit'; main()"
        arguments = [command, str(tmp_path / "model"), str(tmp_path / f"{name}.parquet"), *options]
        process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss * 1024)
    table = 1_500_000 * 21 * 8
    kept = 16 * 1_500_000 if command == "evaluate" else 0  # a score and a label per row, and copies of them
    assert peaks[1] - peaks[0] < table / 4 + 4 * kept
