"""--today: the rule that decides today is a row on the same rows, in fit, evaluate and compare."""

import json

import numpy as np
import pandas as pd
import pytest
from json_validation import validate
from sklearn.metrics import f1_score
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.errors import InvalidValueError
from metricfit.report.todays_rule import read_today

AIM = ("--target", "y", "--today", "flagged")


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("today")
    frame = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame["a"] + 0.5 * rng.normal(size=300) > 0.7, "left", "kept")
    frame["flagged"] = (frame["a"] > 1).astype(int)
    frame.to_csv(folder / "rows.csv", index=False)
    fitted = call("fit", folder / "rows.csv", *AIM, "--models", "linear", "--out", folder / "model", "--json")
    assert fitted.exit_code == 0, fitted.output
    return folder, frame, json.loads(fitted.stdout)


def value(frame):
    return f1_score(frame["y"] == "left", frame["flagged"])


def test_fit_judges_the_rule_on_the_held_out_rows_and_does_not_learn_from_it(files):
    folder, frame, found = files
    validate("fit", found)
    assert found["today"] == {"name": "Today's rule (flagged)", "value": pytest.approx(value(frame))}
    page = (folder / "model" / "report.html").read_text(encoding="utf-8")
    assert "Today&#39;s rule (flagged)" in page
    assert "Per 1,000 rows" in page
    names = call("predict", folder / "model", folder / "rows.csv", "--out", folder / "predicted.csv")
    assert names.exit_code == 0
    assert list(MetricClassifier.load(folder / "model" / "model").feature_names_in_) == ["a", "b"]


def test_evaluate_judges_the_rule_on_other_rows(files):
    folder, frame, _ = files
    frame[:120].to_csv(folder / "new.csv", index=False)
    result = call("evaluate", folder / "model", folder / "new.csv", *AIM, "--json", "--report", folder / "new.html")
    found = json.loads(result.stdout)
    validate("evaluate", found)
    assert found["today"]["value"] == pytest.approx(value(frame[:120]))
    assert "Today&#39;s rule (flagged)" in (folder / "new.html").read_text(encoding="utf-8")
    assert "Today's rule (flagged): f1" in call("evaluate", folder / "model", folder / "new.csv", *AIM).stdout


def test_compare_has_a_row_for_the_rule(files):
    folder, frame, _ = files
    arguments = ("--method", "logistic regression", "--folds", 3, "--out", folder / "compared", "--json")
    result = call("compare", folder / "rows.csv", *AIM, *arguments)
    rows = {row["name"]: row for row in json.loads(result.stdout)["methods"]}
    assert rows["Today's rule (flagged)"]["mean"] == pytest.approx(value(frame), abs=0.03)


def test_decisions_are_labels_or_yes_and_no_and_nothing_else(files):
    folder, frame, _ = files
    assert read_today(["kept", "left"], "x", ["kept", "left"]).decided.tolist() == [0, 1]
    assert read_today([0, 1, 2], "x", [0, 1, 2]).decided.tolist() == [0, 1, 2]
    assert read_today(["no", "yes"], "x", ["yes", "no"]).decided.tolist() == [1, 0]
    with pytest.raises(InvalidValueError, match="which is no class"):
        read_today(["maybe"], "x", ["kept", "left"])
    frame.assign(flagged="?").to_csv(folder / "bad.csv", index=False)
    wrong = call("fit", folder / "bad.csv", *AIM, "--out", folder / "bad")
    assert wrong.exit_code == 2
    assert "'flagged'" in wrong.stderr


def test_evaluate_measures_periods_in_the_order_of_time(files):
    folder, frame, _ = files
    frame["day"] = pd.date_range("2026-01-01", periods=300).strftime("%Y-%m-%d")
    frame.sample(frac=1, random_state=0).to_csv(folder / "days.csv", index=False)
    arguments = (folder / "model", folder / "days.csv", *AIM, "--time", "day")
    found = json.loads(call("evaluate", *arguments, "--json", "--report", folder / "days.html").stdout)
    validate("evaluate", found)
    periods = found["periods"]
    assert [each["rows"] for each in periods] == [60] * 5
    assert (periods[0]["first"], periods[-1]["last"]) == ("2026-01-01", frame["day"].iloc[-1])
    called = MetricClassifier.load(folder / "model" / "model").predict(frame[["a", "b"]][:60])
    assert periods[0]["value"] == pytest.approx(f1_score(frame["y"][:60], called, pos_label="left"))
    assert "Values over time" in (folder / "days.html").read_text(encoding="utf-8")
    assert "2026-01-01 to 2026-03-01" in call("evaluate", *arguments).stdout
    assert json.loads(call("evaluate", *arguments[:-2], "--json").stdout)["periods"] == []


def test_a_missing_decision_is_named_by_its_row():
    with pytest.raises(InvalidValueError, match="is missing in row 2"):
        read_today([1.0, None, 0.0], "flagged", ["kept", "left"])


def test_a_column_is_named_by_one_option(files):
    folder, _, _ = files
    result = call("evaluate", folder / "model", folder / "rows.csv", "--target", "y", "--today", "y")
    assert result.exit_code == 2
    assert "--today and --target both name 'y'" in result.stderr
