"""A requirement that cannot be met costs nothing that was trained: the model is saved, and the exit code tells."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app
from metricfit.decide.evidence import GUARANTEED
from metricfit.tabular.compare.methods import DEFAULT

SMALL = ["--models", "linear", "--folds", "2", "--quiet"]
SMALL_COMPARISON = ["--method", "logistic regression", "--quiet"]
NEVER = ["--subject-to", "precision >= 0.999", "--subject-to", "recall >= 0.999"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame["a"] + rng.normal(size=120) > 1, "yes", "no")
    path = tmp_path_factory.mktemp("unmet") / "rows.csv"
    frame.to_csv(path, index=False)
    return path, frame


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_fit_keeps_the_model_and_its_exit_code_is_3(data, tmp_path):
    path, frame = data
    found = call("fit", path, "--target", "y", "--out", tmp_path / "m", *NEVER, *SMALL)
    assert found.exit_code == 3, found.output
    model = MetricClassifier.load(tmp_path / "m" / "model")
    assert set(model.predict(frame[["a", "b"]])) <= {"yes", "no"}
    printed = " ".join(found.output.split())
    for text, result in model.requirements_.items():
        value = f"{result.value:.4g}"
        state = f"met on held-out rows only ({value})" if result.met else f"NOT met ({value} on held-out rows)"
        assert f"Requirement {text}: {state}." in printed
    assert "no threshold gives precision >= 0.999 and recall >= 0.999 together; each alone, precision can be" in printed
    assert ".rethreshold(subject_to='...')" in printed
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "The requirements cannot be met" in page
    model.rethreshold(subject_to="recall >= 0.5").save(tmp_path / "again")
    judged = call("evaluate", tmp_path / "again", path, "--target", "y", "--json")
    assert judged.exit_code == 0


def test_in_json_too(data, tmp_path):
    found = call("fit", data[0], "--target", "y", "--out", tmp_path / "m", "--json", *NEVER, *SMALL)
    assert found.exit_code == 3
    printed = json.loads(found.stdout)
    assert printed["requirements_met"] is False
    assert set(printed["requirements"]) == {"precision >= 0.999", "recall >= 0.999"}
    assert printed["requirements"]["recall >= 0.999"]["reachable"] == 1.0


def test_a_requirement_that_is_met_ends_with_0(data, tmp_path):
    met = ("--subject-to", "recall >= 0.3")
    found = call("fit", data[0], "--target", "y", "--out", tmp_path / "m", "--metric", "precision", *met, *SMALL)
    assert found.exit_code == 0, found.output
    assert "Requirement recall >= 0.3: met on held-out rows only (" in found.stdout


def test_a_confidence_is_printed_with_the_requirement(data, tmp_path):
    asked = ("--subject-to", "recall >= 0.3", "--confidence", "0.9", "--folds", "4")
    found = call("fit", data[0], "--target", "y", "--out", tmp_path / "m", "--metric", "precision", *SMALL, *asked)
    assert found.exit_code == 0, found.output
    words = "certified on cross-validated scores (approximate) at 90 % confidence"
    assert f"Requirement recall >= 0.3: {words} (" in found.stdout
    assert words in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")


def test_calibration_keeps_rows_apart(data, tmp_path):
    asked = ("--subject-to", "recall >= 0.3", "--confidence", "0.9", "--calibration", "0.4")
    found = call("fit", data[0], "--target", "y", "--out", tmp_path / "m", "--metric", "precision", *SMALL, *asked)
    assert found.exit_code == 0, found.output
    model = MetricClassifier.load(tmp_path / "m" / "model")
    assert (model.calibration, model.certificate_) == (0.4, GUARANTEED)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--confidence", "0.9"], "--confidence is about requirements"),
        (["--confidence", "90", "--subject-to", "recall >= 0.3"], "did you mean 0.9?"),
        (["--confidence", "0.9", "--subject-to", "f1 >= 0.3"], "f1 >= 0.3 cannot be guaranteed"),
        (["--confidence", "0.9", "--subject-to", "recall >= 0.99"], "needs at least 230 positives"),
    ],
)
def test_a_confidence_that_cannot_be_had_is_refused(data, tmp_path, asked, message):
    found = call("fit", data[0], "--target", "y", "--out", tmp_path / "m", *asked, *SMALL)
    assert found.exit_code not in (0, 3)
    assert message in " ".join(found.output.split())
    assert not (tmp_path / "m").exists()


@pytest.mark.usefixtures("two_inner_folds")
def test_compare_marks_the_rows_and_its_exit_code_is_3_if_no_method_meets_them(data, tmp_path):
    found = call(
        "compare",
        data[0],
        "--target",
        "y",
        "--out",
        tmp_path / "c",
        "--folds",
        "2",
        "--json",
        *NEVER,
        "--method",
        DEFAULT,
        *SMALL_COMPARISON,
    )
    assert found.exit_code == 3, found.output
    printed = json.loads(found.stdout)
    assert all(row["mean"] is not None for row in printed["methods"])
    marked = {row["name"] for row in printed["methods"] if row["not_reachable"]}
    assert marked == {DEFAULT, "logistic regression"}
    assert "No method could meet the requirements" in printed["verdict"]
    assert (tmp_path / "c" / "report.html").exists()
