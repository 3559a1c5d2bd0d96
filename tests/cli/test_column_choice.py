"""``--drop``, ``--category`` and ``--skip-unlabelled``: a table is used as it is, without being written again."""

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
    """Rows whose class depends on a code that looks like a number, with an identifier and missing labels."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, 240)
    frame = pd.DataFrame({"id": rng.permutation(240) + 900, "code": [f"0{each * 1013 % 977:03d}" for each in codes]})
    frame["size"] = rng.normal(size=240).round(3)
    labels = np.where((codes % 2 == 0) ^ (rng.random(240) < 0.05), "yes", "no").astype(object)
    labels[::20] = None
    return frame.assign(y=labels)


@pytest.fixture(scope="module")
def fitted(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("choice")
    rows.to_csv(folder / "t.csv", index=False)
    choice = ("--drop", "id", "--category", "code", "--skip-unlabelled")
    result = call("fit", folder / "t.csv", "--target", "y", *choice, "--out", folder / "m", *SMALL)
    assert result.exit_code == 0, result.output
    return folder, result


def test_what_is_dropped_is_not_learned_from_and_codes_are_categories(rows, fitted):
    folder, result = fitted
    assert "12 of 240 rows" in result.stderr
    assert "identifier" not in result.stderr
    model = MetricClassifier.load(folder / "m" / "model")
    assert list(model.feature_names_in_) == ["code", "size"]
    assert [column.kind for column in model.encoder_.columns] == ["category", "number"]
    labelled = rows.dropna(subset="y")
    expected = MetricClassifier("f1", models=["linear"], members=3, random_state=0, pos_label=model.pos_label_)
    expected.fit(labelled[["code", "size"]].astype({"code": "category"}), labelled["y"])
    assert json.loads(result.stdout)["out_of_fold"] == pytest.approx(expected.decision_.evidence.value, abs=1e-9)
    assert expected.decision_.evidence.value > 0.85


def test_evaluate_leaves_out_the_same_rows_and_reads_codes_as_they_are_written(rows, fitted):
    folder, _ = fitted
    refused = call("evaluate", folder / "m", folder / "t.csv", "--target", "y")
    assert refused.exit_code == 2
    assert "leave them out: --skip-unlabelled" in " ".join(refused.stderr.split())
    result = call("evaluate", folder / "m", folder / "t.csv", "--target", "y", "--skip-unlabelled", "--json")
    assert result.exit_code == 0, result.output
    assert "12 rows have no label" in result.stderr
    found = json.loads(result.stdout)
    labelled = rows.dropna(subset="y").astype({"code": "category"})
    assert found["rows"] == 228
    model = MetricClassifier.load(folder / "m" / "model")
    assert found["value"] == pytest.approx(model.score(labelled[["code", "size"]], labelled["y"]))
    assert call("predict", folder / "m", folder / "t.csv", "--id", "id", "--out", folder / "p.csv").exit_code == 0
    predicted = pd.read_csv(folder / "p.csv")["predicted"]
    assert predicted.tolist() == model.predict(rows[["code", "size"]].astype({"code": "category"})).tolist()


@pytest.mark.parametrize("command", ["fit", "compare", "doctor"])
@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (("--drop", "idd"), "has no column 'idd' for --drop. Did you mean 'id'?"),
        (("--drop", "y"), "--drop and --target both name 'y'"),
        (("--drop", "code", "--category", "code"), "--category and --drop both name 'code'"),
    ],
)
def test_wrong_columns_are_refused(fitted, command, choice, message):
    folder, _ = fitted
    out = () if command == "doctor" else ("--out", folder / command)
    result = call(command, folder / "t.csv", "--target", "y", *choice, *out)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not (folder / command).exists()


def test_doctor_names_the_options_and_is_content_with_them(fitted):
    folder, _ = fitted
    found = json.loads(call("doctor", folder / "t.csv", "--target", "y", "--json").stdout)["findings"]
    remedies = " ".join(finding["remedy"] for finding in found)
    assert "--drop id" in remedies
    assert "--skip-unlabelled" in remedies
    again = json.loads(call("doctor", folder / "t.csv", "--target", "y", "--drop", "id", "--json").stdout)["findings"]
    assert "identifier" not in {finding["kind"] for finding in again}
