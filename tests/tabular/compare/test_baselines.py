"""Decisions without a model have the values of scikit-learn's dummies."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, f1_score, fbeta_score

from metricfit.metrics import averaged, get_metric
from metricfit.tabular.compare.methods import baseline_shares, expected_counts

RNG = np.random.default_rng(0)


def labels(classes, rows):
    return RNG.choice(classes, rows, p=np.arange(classes, 0, -1) / np.arange(classes, 0, -1).sum())


@pytest.mark.parametrize(("name", "constant"), [("all positive", 1), ("none positive", 0)])
@pytest.mark.parametrize(("metric", "score"), [("f1", f1_score), ("fbeta(beta=2)", None), ("accuracy", accuracy_score)])
def test_constant_decisions(name, constant, metric, score):
    train, test = labels(2, 300), labels(2, 200)
    decided = DummyClassifier(strategy="constant", constant=constant).fit(train[:, None], train).predict(test[:, None])
    expected = fbeta_score(test, decided, beta=2) if score is None else score(test, decided)
    assert get_metric(metric)(expected_counts(test, baseline_shares(train, 2)[name])).item() == pytest.approx(expected)


@pytest.mark.parametrize("classes", [2, 4])
def test_decisions_at_random_are_the_mean_of_many_dummies(classes):
    train, test = labels(classes, 500), labels(classes, 4000)
    average = "binary" if classes == 2 else "macro"
    values = [
        f1_score(
            test,
            DummyClassifier(strategy="stratified", random_state=seed).fit(train[:, None], train).predict(test[:, None]),
            average=average,
        )
        for seed in range(40)
    ]
    counts = expected_counts(test, baseline_shares(train, classes)["at random"])
    value = float(averaged(get_metric("f1"), counts, "macro"))
    assert value == pytest.approx(np.mean(values), abs=4 * np.std(values) / np.sqrt(40) + 1e-3)


def test_counts_add_up():
    for classes in (2, 3):
        for shares in baseline_shares(labels(classes, 90), classes).values():
            counts = expected_counts(labels(classes, 60), shares)
            np.testing.assert_allclose(counts.n, 60.0)
