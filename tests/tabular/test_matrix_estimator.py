"""MetricClassifier, compare and the command line for metrics of the whole confusion matrix."""

import copy
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import cohen_kappa_score, confusion_matrix
from sklearn.neighbors import KNeighborsClassifier
from typer.testing import CliRunner

from metricfit import MetricClassifier, TunedDecisionClassifier, compare
from metricfit.cli.app import app
from metricfit.decide import CostDecision

COSTS = [[0, 1, 4], [1, 0, 1], [20, 5, 0]]
KAPPA = "weighted_kappa(power=2)"
COST = f"cost_matrix(costs={COSTS})"


@pytest.fixture(scope="module")
def grades():
    """Three ordered classes, the last one rare."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    latent = X["a"] + 0.5 * X["b"] + 0.7 * rng.normal(size=300)
    return X, pd.Series(np.digitize(latent, [-0.3, 1.2]), name="grade")


@pytest.fixture(scope="module")
def for_kappa(grades, quick_settings):
    return MetricClassifier(KAPPA, **quick_settings).fit(*grades)


def quadratic_kappa(y, called):
    return cohen_kappa_score(y, called, weights="quadratic")


def test_the_estimator_decides_for_quadratic_kappa(grades, for_kappa):
    X, y = grades
    value = quadratic_kappa(y, for_kappa.predict(X))
    assert for_kappa.score(X, y) == pytest.approx(value)
    held_out = for_kappa.held_out_
    plain = quadratic_kappa(held_out.y, held_out.logits.argmax(1))
    assert for_kappa.decision_.evidence.value == pytest.approx(
        quadratic_kappa(held_out.y, for_kappa.decision_.decide(held_out.logits))
    )
    assert for_kappa.decision_.evidence.value >= plain - 0.02
    low, high = for_kappa.value_interval_
    assert low <= for_kappa.value_ <= high
    assert high < 1


def test_families_are_judged_by_the_decision_of_the_ensemble(grades, quick_settings):
    model = MetricClassifier(COST, **quick_settings | {"models": ["linear"]}).fit(*grades)
    assert isinstance(model.decision_, CostDecision)
    assert model.models_[0].value == pytest.approx(model.decision_.evidence.value)


def test_costs_move_decisions_to_the_class_that_is_dear_to_miss(grades, quick_settings):
    X, y = grades
    dear = MetricClassifier(COST, **quick_settings).fit(X, y)
    equal = MetricClassifier("accuracy", **quick_settings).fit(X, y)
    assert (dear.predict(X) == 2).sum() > (equal.predict(X) == 2).sum()
    matrix = confusion_matrix(y, dear.predict(X))
    assert dear.score(X, y) == pytest.approx(-(matrix * np.array(COSTS)).sum() / len(y))


@pytest.mark.parametrize("costs", [None, COSTS])
def test_saved_and_loaded(grades, for_kappa, tmp_path, costs):
    model = copy.copy(for_kappa)
    if costs is not None:
        by_costs = CostDecision(model.decision_.offsets, costs, evidence=model.decision_.evidence)
        model._show(replace(model.chosen_, decision=by_costs))
    model.save(tmp_path / "model")
    loaded = MetricClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(grades[0]), model.predict(grades[0]))
    np.testing.assert_array_equal(loaded.decision_function(grades[0]), model.decision_function(grades[0]))
    assert loaded.score(*grades) == model.score(*grades)
    assert type(loaded.decision_) is type(model.decision_)


def test_the_costs_of_other_classes_are_refused_before_training(grades, quick_settings):
    with pytest.raises(ValueError, match="costs is for 2 classes, but the confusion matrix has 3"):
        MetricClassifier("cost_matrix(costs=[[0, 1], [10, 0]])", **quick_settings).fit(*grades)


def test_two_classes_have_a_threshold_and_requirements(grades, quick_settings):
    X, y = grades[0], (grades[1] == 2).astype(int)
    two, one = (
        MetricClassifier(metric, **quick_settings).fit(X, y)
        for metric in ("cost_matrix(costs=[[0, 1], [10, 0]])", "cost(fp=1, fn=10)")
    )
    assert two.threshold_ == pytest.approx(one.threshold_)
    assert two.value_ == pytest.approx(one.value_)
    required = "cost_matrix(costs=[[0, 1], [10, 0]]) <= 0.9"
    model = MetricClassifier("precision", subject_to=[required], **quick_settings).fit(X, y)
    assert model.decision_.evidence.requirements[required].met


def test_the_report_names_the_metric_and_its_value(grades, for_kappa, tmp_path):
    page = for_kappa.report(tmp_path / "page.html", *grades).read_text(encoding="utf-8")
    assert f"{KAPPA} is {for_kappa.score(*grades):.3f} (95 % interval" in page
    assert KAPPA in for_kappa.report(tmp_path / "fit.html").read_text(encoding="utf-8")


def test_compare_judges_by_the_metric(grades):
    X, y = grades
    found = compare(X, y.to_numpy(), KAPPA, methods=["logistic regression"], folds=2)
    rows = {row.name: row for row in found.rows}
    assert rows["largest class"].mean == 0.0
    assert abs(rows["at random"].mean) < 1e-9
    assert 0.3 < rows["logistic regression"].mean < 1


def test_the_command_line(grades, tmp_path):
    X, y = grades
    X.assign(grade=y).to_csv(tmp_path / "grades.csv", index=False)
    arguments = [tmp_path / "grades.csv", "--target", "grade", "--metric", KAPPA, "--models", "linear"]
    run = CliRunner().invoke(app, ["fit", *map(str, arguments), "--out", str(tmp_path / "model"), "--json"])
    assert run.exit_code == 0, run.output
    folder = next(path for path in (tmp_path / "model" / "model", tmp_path / "model") if path.is_dir())
    run = CliRunner().invoke(app, ["evaluate", *map(str, (folder, arguments[0])), "--target", "grade", "--json"])
    assert run.exit_code == 0, run.output
    printed = json.loads(run.stdout)
    called = MetricClassifier.load(folder).predict(X)
    assert printed["value"] == pytest.approx(quadratic_kappa(y, called))
    assert printed["metrics"][KAPPA]["value"] == printed["value"]
    low, high = printed["value_interval"]
    assert low < printed["value"] < high


def test_any_model_is_decided_for_the_metric(grades):
    X, y = grades
    model = TunedDecisionClassifier(LogisticRegression(), KAPPA, cv=3, random_state=0).fit(X, y)
    assert model.score(X, y) == pytest.approx(quadratic_kappa(y, model.predict(X)))


def test_several_labels_are_refused(grades):
    X, y = grades
    labels = np.column_stack([y > 0, y > 1]).astype(int)
    with pytest.raises(ValueError, match=r"independent labels \(multilabel\)"):
        TunedDecisionClassifier(KNeighborsClassifier(), KAPPA, cv=3, random_state=0).fit(X, labels)


class NeverFitted(LogisticRegression):
    def fit(self, *arguments, **settings):
        raise AssertionError("trained before the metric was checked")


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("recall.gap(2)", "limit the gap with decide.best_group_thresholds"),
        ("cost_matrix(costs=[[0, 1, 2], [1, 0, 1], [1, 1, 0]])", "costs is for 3 classes"),
    ],
)
def test_metrics_that_decide_nothing_here_are_refused_before_training(metric, message):
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    for model in (MetricClassifier(metric, models=[NeverFitted()]), TunedDecisionClassifier(NeverFitted(), metric)):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
