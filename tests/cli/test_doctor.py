"""The command doctor: what a person reads, what a script reads, and how it ends."""

import json
import logging
import sys

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from typer.testing import CliRunner

from metricfit.cli.app import app


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("doctor")
    train = pd.DataFrame({"x": rng.normal(size=300), "town": rng.choice(["Ulm", "Bonn"], 300), "id": range(300)})
    train["y"] = np.where(rng.random(300) < 0.3, "yes", "no")
    train["answer"] = train["y"].map({"yes": 1, "no": 2})
    train.to_csv(folder / "train.csv", index=False)
    train[:50].assign(town="Rome", x=rng.normal(size=50)).to_csv(folder / "test.csv", index=False)
    return folder


def test_findings_are_numbered_and_say_what_to_do_in_80_columns(files):
    found = call("doctor", files / "train.csv", files / "test.csv", "--target", "y")
    assert found.exit_code == 0, found.output
    assert max(len(line) for line in found.stdout.splitlines()[2:]) <= 80
    text = " ".join(found.stdout.split())
    assert f"{files / 'train.csv'}: 300 rows, 4 columns to learn from. Classes: 'no' (" in text
    assert "1. SERIOUS: 'answer' alone tells the classes apart almost perfectly" in text
    assert "What to do: Check that it is known when the decision is made" in text
    assert "2. WARNING: The column 'id' has a different whole number in every row" in text
    assert "3. WARNING: 'town' has 1 category in" in text
    assert text.endswith("1 serious, 2 warnings.")


def test_the_json_has_the_same_findings(files):
    found = json.loads(call("doctor", files / "train.csv", "--target", "y", "--json").stdout)
    validate("doctor", found)
    assert [each["kind"] for each in found["findings"]] == ["leak", "identifier"]
    assert found["findings"][0]["columns"] == ["answer"]
    assert (found["rows"], found["columns"], found["positive"], found["further"]) == (300, 4, "yes", [])


def test_what_cannot_be_examined_ends_with_2(files):
    for words, arguments in {
        "There is no file": ["none.csv", "--target", "y"],
        "Did you mean 'y'?": [files / "train.csv", "--target", "Y"],
        "has no column 'day' for --time": [files / "train.csv", "--target", "y", "--time", "day"],
        "--group and --target both name 'y'": [files / "train.csv", "--target", "y", "--group", "y"],
        "--confidence is about requirements": [files / "train.csv", "--target", "y", "--confidence", "0.9"],
        "No row has the label 'maybe'": [files / "train.csv", "--target", "y", "--positive", "maybe"],
        "Standard input (-) is one table": ["-", "-", "--target", "y"],
    }.items():
        found = call("doctor", *arguments)
        assert found.exit_code == 2, found.output
        assert words in " ".join(found.stderr.split())


@pytest.fixture(params=[None, "", "metricfit.tabular"], ids=["", "root logger at INFO", "logger of tables at INFO"])
def other_logging(request):
    """Other code may have given a logger a handler and a level of its own; commands print their own messages."""

    class Handler(logging.Handler):
        def emit(self, record):
            print(record.getMessage(), file=sys.stderr)

    if request.param is None:
        yield
        return
    logging.root.addHandler(handler := Handler())
    log = logging.getLogger(request.param)
    level = log.level
    log.setLevel(logging.INFO)
    yield
    log.setLevel(level)
    logging.root.removeHandler(handler)


@pytest.mark.usefixtures("other_logging")
def test_fit_prints_the_two_most_serious_and_names_the_command_for_the_rest(files, tmp_path):
    table = pd.read_csv(files / "train.csv").assign(number=[f"n{each}" for each in range(300)])
    table.to_csv(tmp_path / "t.csv", index=False)
    small = ["--models", "linear", "--folds", "2", "--no-insight", "--quiet"]
    found = call("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", *small)
    assert found.exit_code == 0, found.output
    lines = found.stderr.splitlines()
    assert lines[0].startswith("Warning: 'answer' alone tells the classes apart")
    assert lines[1].startswith("Warning: The column 'id' has a different whole number")
    assert lines[2] == (f"Warning: 1 more in the table; metricfit doctor {tmp_path / 't.csv'} --target y lists all.")
    assert len(lines) == 3
