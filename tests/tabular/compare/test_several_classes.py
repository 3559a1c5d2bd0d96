"""compare of several classes: values of the classifiers, trivial decisions, and a page with the classes."""

import numpy as np
import pytest
from compare_tables import make_table
from sklearn.dummy import DummyClassifier
from sklearn.metrics import f1_score, matthews_corrcoef

from metricfit.data import folds
from metricfit.tabular.compare.comparison import compare
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE, find_method, methods

NAMES = np.array(["low", "middle", "high"])


@pytest.fixture(scope="module")
def comparison():
    X, y = make_table(150, classes=3)
    return compare(X, NAMES[y], "f1", methods=[DEFAULT, "logistic regression"], folds=2)


def labels():
    X, y = make_table(150, classes=3)
    return X, NAMES[y]


def test_values_are_those_of_the_classifiers(comparison):
    X, y = labels()
    assert {row.name for row in comparison.rows} == {
        DEFAULT,
        REFERENCE,
        "logistic regression",
        "largest class",
        "at random",
    }
    assert comparison.classes == ("high", "low", "middle")
    for name in (DEFAULT, "logistic regression"):
        row = next(row for row in comparison.rows if row.name == name)
        numbers = np.searchsorted(comparison.classes, y)
        for value, (train, test) in zip(row.values, folds(X, numbers, 2, seed=0), strict=True):
            model = find_method(name).classifier("f1", random_state=0).fit(X.iloc[train], y[train])
            assert value == pytest.approx(model.score(X.iloc[test], y[test]))


def test_decisions_and_probabilities_of_the_default_cover_all_rows(comparison):
    _, y = labels()
    kept = comparison.decisions[DEFAULT]
    assert kept.scores.shape == (150, 3)
    np.testing.assert_allclose(kept.scores.sum(1), 1.0)
    decided = np.array(comparison.classes)[kept.decided]
    row = next(row for row in comparison.rows if row.name == DEFAULT)
    assert f1_score(y, decided, average="macro") == pytest.approx(row.mean, abs=0.05)
    assert kept.threshold is None


def test_the_largest_class_is_scikit_learns_dummy(comparison):
    X, y = labels()
    numbers = np.searchsorted(comparison.classes, y)
    row = next(row for row in comparison.rows if row.name == "largest class")
    for value, (train, test) in zip(row.values, folds(X, numbers, 2, seed=0), strict=True):
        decided = DummyClassifier(strategy="most_frequent").fit(X.iloc[train], y[train]).predict(X.iloc[test])
        assert value == pytest.approx(f1_score(y[test], decided, average="macro"))


def test_metrics_of_the_whole_matrix_and_other_averages():
    X, y = labels()
    for metric, average, score in (
        ("mcc", "macro", matthews_corrcoef),
        ("f1", "weighted", lambda true, decided: f1_score(true, decided, average="weighted")),
    ):
        comparison = compare(X, y, metric, methods=[DEFAULT], folds=2, average=average)
        row = next(row for row in comparison.rows if row.name == DEFAULT)
        numbers = np.searchsorted(comparison.classes, y)
        for value, (_, test) in zip(row.values, folds(X, numbers, 2, seed=0), strict=True):
            assert value == pytest.approx(score(numbers[test], comparison.decisions[DEFAULT].decided[test]))
        assert comparison.classifier(DEFAULT).average == average


def test_the_page_names_the_classes(comparison, tmp_path):
    page = comparison.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Decisions by class" in page
    for name, count in zip(*np.unique(labels()[1], return_counts=True), strict=True):
        assert f"{count} “{name}”" in page


def test_losses_for_two_classes_are_not_compared_for_several():
    two, several = ({method.name for method in methods(classes=classes)} for classes in (2, 3))
    assert two - several == {"network (focal loss)"}


def test_networks_of_several_classes(quick_networks):
    X, y = labels()
    wanted = ["network (cross-entropy)", "network (metric loss)"]
    comparison = compare(X, y, "f1", methods=wanted, folds=2)
    means = {row.name: row.mean for row in comparison.rows}
    assert set(wanted) <= set(means)
