"""Intervals of the metrics of each class."""

import numpy as np
import pytest
from scipy.stats import beta

from metricfit.metrics import f1, precision, recall
from metricfit.tabular.insight.value_intervals import class_intervals


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    truth = rng.choice(3, size=300, p=[0.5, 0.4, 0.1])
    return np.where(rng.random(300) < 0.8, truth, rng.integers(3, size=300)), truth


def test_intervals_of_recall_are_those_of_jeffreys(labels):
    guess, truth = labels
    for label, (low, high) in enumerate(class_intervals(guess, truth, 3, [recall])[0]):
        right, rows = ((guess == truth) & (truth == label)).sum(), (truth == label).sum()
        expected = beta.ppf([0.025, 0.975], right + 0.5, rows - right + 0.5)
        assert (low, high) == pytest.approx(expected, abs=0.03)


def test_drawn_rows_give_similar_intervals_and_copies_do_not_narrow_them(labels):
    guess, truth = labels
    plain = np.array(class_intervals(guess, truth, 3, [precision, f1]))
    weighted = np.array(class_intervals(guess, truth, 3, [precision, f1], weight=np.full(300, 2.0)))
    np.testing.assert_allclose(weighted, plain, atol=0.06)
    copies = np.tile(np.arange(300), 4)
    grouped = np.array(class_intervals(guess[copies], truth[copies], 3, [precision, f1], groups=copies))
    np.testing.assert_allclose(grouped, plain, atol=0.06)


def test_nothing_wrong_has_an_interval_and_absent_classes_have_none(labels):
    _, truth = labels
    right = class_intervals(truth, truth, 4, [recall, precision])
    for metric in right:
        assert metric[3] is None
        assert all(low < 0.999 and high == 1.0 for low, high in metric[:3])
