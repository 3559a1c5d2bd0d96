"""Which of two classes is the positive one: one rule for estimators, for the command line and for saved models."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score
from typer.testing import CliRunner

from metricfit import MetricClassifier
from metricfit.cli.app import app

#: The negative and the positive label.
CASES = {
    "0/1, 1 in the majority": (0, 1),
    "0.0/1.0": (0.0, 1.0),
    "-1/1": (-1, 1),
    "booleans": (False, True),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, X[:, 0] + 0.4 * rng.normal(size=120) > 0.8  # a fifth of the rows


def small(**settings):
    quick = {"models": "linear", "members": 2, "time_budget": None, "random_state": 0}
    return MetricClassifier(**quick, **settings)


@pytest.mark.parametrize("case", CASES)
def test_of_0_and_1_the_one_is_positive_even_in_the_majority(case, rows, caplog):
    X, rare = rows
    labels = np.array(CASES[case])[(~rare).astype(int)]  # the rare rows have the lower label
    caplog.set_level(logging.INFO, logger="metricfit")
    model = small().fit(X, labels)
    assert model.pos_label_ == CASES[case][1]
    assert model.score(X, labels) == pytest.approx(f1_score(labels, model.predict(X), pos_label=CASES[case][1]))
    assert "positive class" not in caplog.text


@pytest.mark.parametrize(("rare_label", "other"), [("fast", "slower"), ("slower", "fast"), (2, 3), (3, 2)])
def test_of_other_labels_the_rarer_is_positive_and_logged(rare_label, other, rows, caplog):
    X, rare = rows
    labels = np.where(rare, rare_label, other)
    caplog.set_level(logging.INFO, logger="metricfit")
    model = small().fit(X, labels)
    assert model.score(X, labels) == pytest.approx(f1_score(labels, model.predict(X), pos_label=rare_label))
    assert model.pos_label_ == rare_label
    assert model.classes_.tolist() == sorted([rare_label, other])
    assert np.array_equal(model.predict(X) == model.classes_[1], model.decision_function(X) > 0)
    said = [each.getMessage() for each in caplog.records if "positive class" in each.getMessage()]
    assert said == [
        f"The positive class is {rare_label!r}, because it has {rare.sum()} rows and {other!r} has "
        f"{(~rare).sum()}; pos_label= chooses another."
    ]


def test_columns_of_probabilities_follow_the_sorted_classes(rows):
    X, rare = rows
    model = small().fit(X, np.where(rare, "fast", "slower"))
    of_fast = model.predict_proba(X)[:, 0]
    assert of_fast[rare].mean() > of_fast[~rare].mean() + 0.2
    assert np.array_equal(model.predict(X) == "fast", of_fast >= model.threshold_)


def test_equally_many_rows_make_the_later_label_positive(rows, caplog):
    X, _ = rows
    labels = np.where(np.argsort(np.argsort(X[:, 0])) < 60, "up", "down")
    caplog.set_level(logging.INFO, logger="metricfit")
    assert small().fit(X, labels).pos_label_ == "up"
    assert "both classes have 60 rows and it is the later in sorted order" in caplog.text


def test_pos_label_decides_otherwise_and_several_classes_have_none(rows):
    X, rare = rows
    assert small(pos_label="slower").fit(X, np.where(rare, "fast", "slower")).pos_label_ == "slower"
    assert small().fit(X, np.digitize(X[:, 0], [-0.5, 0.5])).pos_label_ is None


def test_a_saved_model_knows_its_positive_class(rows, tmp_path):
    X, rare = rows
    small().fit(X, np.where(rare, "fast", "slower")).save(tmp_path / "model")
    assert MetricClassifier.load(tmp_path / "model").pos_label_ == "fast"


@pytest.mark.parametrize(
    ("labels", "positive"), [((0, 1), 1), (("no", "zz rare"), "no"), ((False, True), True), ((4, 7), 4)]
)
def test_the_command_line_and_the_estimator_agree(labels, positive, rows, tmp_path):
    """The label of the rare rows is the lower one: 0/1 and booleans are not judged by rarity, others are."""
    X, rare = rows
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=np.array(labels)[(~rare).astype(int)])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    options = ["--quiet", "--json"]
    target = ["fit", str(tmp_path / "rows.csv"), "--target", "y", "--out", str(tmp_path / "fitted")]
    result = CliRunner().invoke(app, [*target, *options])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["positive"] == positive
    assert small().fit(X, frame["y"]).pos_label_ == positive
    page = (tmp_path / "fitted" / "report.html").read_text(encoding="utf-8")
    assert f"Positive class</dt><dd>“{positive}”" in page
