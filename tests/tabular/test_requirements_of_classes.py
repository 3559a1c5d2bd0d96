"""Estimators of several classes under requirements on each class, by name; the report and the command line."""

import json
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, recall_score
from typer.testing import CliRunner

from metricfit import MetricClassifier, TunedDecisionClassifier
from metricfit.cli.app import app
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.report.evaluation import DecidedRows
from metricfit.report.model_page import verdict_of_fit

CLASSES = ["bronze", "gold", "none"]
SETTINGS = {"models": ["linear"], "members": 3, "random_state": 0, "n_jobs": 1}


def table(n=240):
    rng = np.random.default_rng(0)
    y = rng.choice(3, n, p=[0.3, 0.2, 0.5])
    return rng.normal(size=(n, 3)) + 1.6 * np.eye(3)[y], np.array(CLASSES)[y]


@pytest.fixture(scope="module")
def model():
    X, y = table()
    return MetricClassifier("f1", subject_to=["recall[gold] >= 0.85", "precision >= 0.4"], **SETTINGS).fit(X, y)


def test_the_requirements_are_met_by_the_names_of_the_classes(model):
    names = ["recall['gold'] >= 0.85", *(f"precision['{name}'] >= 0.4" for name in CLASSES)]
    assert list(model.requirements_) == names
    assert model.requirements_met_
    decided = model.decision_.decide(model.held_out_.logits)
    matrix = confusion_matrix(model.held_out_.y, decided)
    expected = [matrix[1, 1] / matrix[1].sum(), *(matrix.diagonal() / matrix.sum(0))]
    assert [result.value for result in model.requirements_.values()] == pytest.approx(expected)


def test_it_is_saved_judged_and_described_with_them(model, tmp_path):
    X, y = table()
    model.save(tmp_path / "model")
    loaded = MetricClassifier.load(tmp_path / "model")
    assert loaded.requirements_ == model.requirements_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    on_rows = DecidedRows.of(loaded, X, y).requirement_values()
    expected = recall_score(y, model.predict(X), labels=["gold"], average=None)[0]
    assert on_rows["recall['gold'] >= 0.85"].value == pytest.approx(expected)
    assert "Met on held-out rows only: recall['gold'] >= 0.85 (" in verdict_of_fit(model)
    assert "recall[&#39;gold&#39;]" in model.report(tmp_path / "report.html").read_text()


def test_rethreshold_names_classes_and_certifies(model):
    copy = deepcopy(model)
    assert copy.rethreshold(subject_to="recall['none'] >= 0.5", confidence=0.9).confidence_ == 0.9
    shares = dict(zip(CLASSES, (0.2, 0.2, 0.6), strict=True))
    with pytest.raises(ValueError, match="require recall or fnr"):
        copy.rethreshold(shares, subject_to="fpr[gold] <= 0.9")
    with pytest.warns(
        InfeasibleWarning, match=r"no offsets of the classes .* recall\['gold'\] can be as high as 1 and"
    ):
        copy.rethreshold(subject_to="recall >= 0.99", confidence=None)
    assert copy.confidence_ is None


def test_numbers_as_labels_are_named_by_their_text():
    X, y = table()
    numbers = np.array([3, 5, 1])[np.searchsorted(CLASSES, y)]
    model = TunedDecisionClassifier(LogisticRegression(), subject_to="recall['5'] >= 0.8", cv=3, random_state=0)
    model.fit(X, numbers)
    assert model.requirements_["recall['5'] >= 0.8"].met
    with pytest.raises(ValueError, match=r"recall\[1\] could be the class 1 or class number 1, which is 3"):
        model.rethreshold(subject_to="recall[1] >= 0.8")


def test_the_positive_class_of_two_may_be_named():
    X, y = table()
    y = np.where(y == "gold", "gold", "other")
    model = TunedDecisionClassifier(LogisticRegression(), subject_to="recall[gold] >= 0.8", cv=3, random_state=0)
    assert model.fit(X, y).requirements_["recall['gold'] >= 0.8"].met
    with pytest.raises(ValueError, match=r"recall\['other'\] is specificity"):
        model.rethreshold(subject_to="recall[other] >= 0.8")


def test_the_command_takes_names_of_classes(tmp_path):
    X, y = table(120)
    pd.DataFrame(X, columns=list("abc")).assign(medal=y).to_csv(tmp_path / "t.csv", index=False)
    command = f"fit {tmp_path}/t.csv --target medal --models linear --subject-to recall[gold]>=0.5 --json --out "
    found = CliRunner().invoke(app, [*command.split(), str(tmp_path / "out")])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["requirements"]["recall['gold'] >= 0.5"]["met"]
