"""The command watch: exit codes for cron, JSON, the order of time, and a picture."""

import json

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from typer.testing import CliRunner

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.cli.app import app


def call(*arguments):
    return CliRunner().invoke(app, ["watch", *map(str, arguments), "--target", "y"])


def rows(n, noise, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return frame.assign(y=np.where(frame["a"] + noise * rng.normal(size=n) > 0.5, "yes", "no"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    model = MetricClassifier("precision", subject_to="recall >= 0.85", models=["linear"], random_state=0)
    train = rows(600, 0.4, 0)
    model.fit(train[["a", "b"]], train["y"]).save(folder / "model")
    table = pd.concat([rows(1000, 0.4, 1), rows(1000, 1.5, 2)])
    table["day"] = pd.date_range("2026-01-01", periods=2000, freq="h").strftime("%Y-%m-%d %H:%M")
    table[:1000].to_csv(folder / "good.csv", index=False)
    table.sample(frac=1, random_state=0).to_csv(folder / "all.csv", index=False)
    return folder


def test_the_exit_code_says_whether_there_is_an_alarm(folder):
    quiet = call(folder / "model", folder / "good.csv")
    assert quiet.exit_code == 0
    assert "No alarm" in quiet.stdout
    alarm = call(folder / "model", folder / "all.csv", "--time", "day", "--picture", folder / "watch.svg")
    assert alarm.exit_code == 3
    assert "ALARM" in alarm.stdout
    assert "2026-01-01" in (folder / "watch.svg").read_text()


def test_json_has_the_rows_in_the_order_of_time(folder):
    result = call(folder / "model", folder / "all.csv", "--time", "day", "--json")
    found = json.loads(result.stdout)
    validate("watch", found)
    assert found["alarm"]
    assert 900 < found["requirements"][0]["begins_row"] < found["requirements"][0]["alarm_row"]
    loose = call(folder / "model", folder / "all.csv", "--subject-to", "recall >= 0.2", "--json", "--confidence", "0.9")
    assert loose.exit_code == 0
    assert [each["text"] for each in json.loads(loose.stdout)["requirements"]] == ["recall >= 0.2"]


def test_mistakes_name_the_remedy(folder):
    wrong = call(folder / "model", folder / "good.csv", "--picture", folder / "watch.txt")
    assert wrong.exit_code == 2
    assert ".svg" in wrong.stderr
    wrong = call(folder / "model", folder / "good.csv", "--subject-to", "mcc >= 0.5")
    assert wrong.exit_code == 2
    assert "cannot be watched" in wrong.stderr


@pytest.fixture(scope="module")
def tuned(folder):
    train = rows(600, 0.4, 0)
    model = TunedDecisionClassifier(LogisticRegression(), "precision", subject_to="recall >= 0.85", random_state=0)
    model.fit(train[["a", "b"]], train["y"]).save(folder / "tuned")
    return model


def test_a_tuned_decision_is_watched(folder, tuned):
    found = json.loads(call(folder / "tuned", folder / "good.csv", "--json").stdout)
    table = pd.read_csv(folder / "good.csv")
    expected = recall_score(table["y"], tuned.predict(table[["a", "b"]]), pos_label="yes")
    assert found["requirements"][0]["value"] == pytest.approx(expected)
    alarm = call(folder / "tuned", folder / "all.csv", "--time", "day")
    assert alarm.exit_code == 3
    wrong = call(folder / "tuned", folder / "all.csv", "--time", "dya")
    assert "has no column 'dya'. Did you mean 'day'?" in wrong.stderr


@pytest.mark.parametrize("name", ["model", "tuned"])
def test_decisions_that_were_made_are_watched_without_the_other_columns(folder, tuned, name):
    table = pd.read_csv(folder / "all.csv").sort_values("day")
    flags = (table["a"] > 0.5).astype(int)
    pd.DataFrame({"y": table["y"], "flag": flags, "day": range(len(table))}).sample(frac=1, random_state=0).to_csv(
        folder / "made.csv", index=False
    )
    made = json.loads(call(folder / name, folder / "made.csv", "--today", "flag", "--time", "day", "--json").stdout)
    model = tuned if name == "tuned" else MetricClassifier.load(folder / "model")
    watch = model.watch(None, table["y"], predicted=np.where(flags == 1, "yes", "no"))
    assert made["requirements"][0]["value"] == pytest.approx(recall_score(table["y"] == "yes", flags))
    assert made["requirements"][0]["alarm_row"] == watch.requirements[0].alarm_row is not None
    twice = call(folder / name, folder / "made.csv", "--today", "y")
    assert twice.exit_code == 2
    assert "--today and --target both name 'y'" in twice.stderr


def test_a_picture_that_cannot_be_written_is_refused_first(folder):
    wrong = call(folder / "model", folder / "good.csv", "--picture", folder / "none" / "watch.svg")
    assert wrong.exit_code == 2
    assert "There is no folder" in wrong.stderr
