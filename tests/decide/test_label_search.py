"""Thresholds of several labels against scikit-learn's averages and brute force."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import f1_score, fbeta_score, jaccard_score

from metricfit.decide.calibration import POSITIVES_OF_ALL, fit_calibration, fit_label_calibration
from metricfit.decide.labels import choose_label_thresholds, label_value
from metricfit.errors import InvalidValueError
from metricfit.metrics import cost, f1, fbeta, get_metric, jaccard

AVERAGES = ("macro", "micro", "weighted", "samples")


def draw(rows, labels, seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, labels)).round(1)  # with ties
    y = (z + rng.normal(size=(rows, labels)) > 0.5).astype(int)
    y[:, 0] = np.arange(rows) % 7 == 0
    return z, y


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_scikit_learn(average, weighted):
    z, y = draw(60, 4, 0)
    decided = (z > 0).astype(int)
    decided[:5] = y[:5] = 0  # rows without a label and without a decision
    weight = np.linspace(0.5, 2, 60) if weighted else None
    settings = {"average": average, "zero_division": 0, "sample_weight": weight}
    for metric, oracle in ((f1, f1_score), (jaccard, jaccard_score)):
        assert label_value(decided, y, weight, metric, average) == pytest.approx(oracle(y, decided, **settings))
    two = fbeta_score(y, decided, beta=2, **settings)
    assert label_value(decided, y, weight, fbeta(beta=2), average) == pytest.approx(two)


def best_by_brute_force(z, y, weight, average, metric=f1):
    """Try every combination of thresholds between the logits of each label."""
    cuts = [[-10.0, *(np.unique(column)[:-1] + np.unique(column)[1:]) / 2, 10.0] for column in z.T]
    values = [label_value(z >= np.array(each), y, weight, metric, average) for each in product(*cuts)]
    return min(values) if metric.minimize else max(values)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("metric", [f1, cost(fp=1, fn=3)], ids=str)
def test_the_empirical_search_against_every_combination_of_thresholds(seed, average, metric):
    """Macro and weighted are exact. Changing one label at a time can stop early, so the others come close."""
    z, y = draw(9, 2, seed)
    weight = np.linspace(1, 2, 9) if seed % 2 else None
    thresholds = choose_label_thresholds(z, y, weight, metric, average, rule="empirical")
    value = label_value(z >= thresholds, y, weight, metric, average)
    best = best_by_brute_force(z, y, weight, average, metric)
    if average in ("macro", "weighted"):
        assert value == pytest.approx(best)
    else:
        assert abs(value - best) < 0.06 * max(1.0, abs(best))


@pytest.mark.parametrize("average", ["micro", "samples"])
def test_the_search_is_mostly_exact_and_no_change_of_one_label_improves_it(average):
    exact = 0
    for seed in range(20):
        z, y = draw(9, 2, seed)
        thresholds = choose_label_thresholds(z, y, None, f1, average, rule="empirical")
        value = label_value(z >= thresholds, y, None, f1, average)
        exact += value == pytest.approx(best_by_brute_force(z, y, None, average))
        for label in range(2):
            for cut in np.unique(z[:, label]):
                moved = thresholds.copy()
                moved[label] = cut
                assert label_value(z >= moved, y, None, f1, average) <= value + 1e-9
    assert exact >= 16


@pytest.mark.parametrize("average", ["micro", "samples"])
def test_the_plugin_rule_takes_the_best_threshold_for_all_labels(average):
    z, y = draw(40, 3, 1)
    thresholds = choose_label_thresholds(z, y, None, f1, average, rule="plugin")
    assert len(set(thresholds.tolist())) == 1
    p = expit(z)

    def value(cut):
        decided = z >= cut
        if average == "samples":
            return f1_score(y, decided, average="samples", zero_division=0)
        return float(2 * (p * decided).sum() / (decided.sum() + p.sum()))

    assert value(thresholds[0]) == pytest.approx(max(value(cut) for cut in np.unique(z)))


def test_the_calibration_of_a_rare_label_is_mostly_that_of_all_labels():
    z, y = draw(400, 3, 2)
    y[:, 0] = 0
    y[:2, 0] = 1
    calibration = fit_label_calibration(z, y, None)
    of_all = fit_calibration(z.reshape(-1, 1), y.reshape(-1), None)
    for label in range(3):
        each = fit_calibration(z[:, [label]], y[:, label], None)
        own = float(y[:, label].sum()) / (float(y[:, label].sum()) + POSITIVES_OF_ALL)
        expected = own * each(z[:, [label]]) + (1 - own) * of_all(z[:, [label]])
        assert np.allclose(calibration(z)[:, [label]], expected)
    assert own > 0.9


def test_metrics_of_one_label_have_no_micro_average():
    z, y = draw(20, 3, 0)
    for average in ("micro", "samples"):
        with pytest.raises(InvalidValueError, match="which average='micro'"):
            choose_label_thresholds(z, y, None, get_metric("fbeta(beta=[1, 1, 5])"), average, rule="plugin")
    thresholds = choose_label_thresholds(z, y, None, get_metric("fbeta(beta=[1, 1, 5])"), "macro", rule="plugin")
    assert thresholds[2] < choose_label_thresholds(z, y, None, f1, "macro", rule="plugin")[2]


@pytest.mark.parametrize("name", ["f1", "recall", "accuracy"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_label_that_no_row_has_is_never_called(name, weighted):
    z = np.random.default_rng(0).normal(size=(50, 2)) - 5
    y = np.stack([np.arange(50) % 2, np.zeros(50, dtype=int)], 1)
    weight = np.ones(50)
    if weighted:
        y[0, 1], weight[0] = 1, 0.0
    thresholds = choose_label_thresholds(z, y, weight, get_metric(name), "macro", rule="plugin")
    assert not (z[:, 1] >= thresholds[1])[weight > 0].any()
