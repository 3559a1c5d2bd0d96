"""compare as a user runs it, on files that fit takes and that used to end it."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app

pytestmark = pytest.mark.slow

SMALL = [
    "--method",
    "metricfit",
    "--method",
    "support vectors",
    "--method",
    "boosted trees on the metric",
    "--quiet",
    "--json",
]


def frame(n=60):
    rng = np.random.default_rng(0)
    found = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    return found.assign(y=(found["b"] + 0.5 * rng.normal(size=n) > 0.3).astype(int))


def compared(path, *more, codes=(0,)):
    result = CliRunner().invoke(
        app, ["compare", str(path), "--target", "y", "--out", str(path.parent / "o"), *more, *SMALL]
    )
    assert result.exit_code in codes, result.output
    return json.loads(result.stdout)


def mixed(path):
    flags = [None if at % 3 == 0 else at % 2 == 0 for at in range(60)]
    frame().assign(flag=flags, sure=[True, False] * 30, empty=None).to_csv(path, index=False)


def dated(path):
    frame().assign(date=pd.date_range("2020-01-01", periods=60).astype(str)).to_json(path, orient="records", lines=True)


def nullable(path):
    whole = pd.array([None, 1, 2] * 20, dtype="Int64")
    words = pd.array([None, "u", "v"] * 20, dtype="string")
    when = pd.date_range("2020-01-01", periods=60)
    frame().assign(whole=whole, words=words, when=when).to_parquet(path)


def rare(path):
    frame().assign(y=(np.arange(60) < 4).astype(int)).to_csv(path, index=False)


@pytest.mark.parametrize(
    ("write", "name", "folds"),
    [(mixed, "t.csv", 2), (dated, "t.jsonl", 2), (nullable, "t.parquet", 2), (rare, "t.csv", 3)],
)
def test_every_method_has_a_value(write, name, folds, tmp_path):
    write(tmp_path / name)
    found = compared(tmp_path / name, "--folds", str(folds))
    wanted = {"metricfit", "LightGBM as it comes", "boosted trees on the metric", "support vectors", "at random"}
    assert {each["name"] for each in found["methods"]} >= wanted
    assert all(len(each["values"]) == folds and each["mean"] is not None for each in found["methods"])


def test_requirements_out_of_reach_are_marked_by_method(tmp_path):
    rng = np.random.default_rng(0)
    frame(90).assign(y=rng.integers(0, 2, 90)).to_csv(tmp_path / "t.csv", index=False)  # nothing to learn
    asked = ["--folds", "2", "--metric", "recall", "--subject-to", "precision >= 0.95"]
    found = compared(tmp_path / "t.csv", *asked, codes=(0, 3))
    marked = [each for each in found["methods"] if each["not_reachable"]]
    assert marked
    assert all(
        "the highest precision that is reachable is" in text for each in marked for text in each["not_reachable"]
    )
    assert all(None not in each["values"] for each in found["methods"])
    assert (tmp_path / "o" / "report.html").exists()
