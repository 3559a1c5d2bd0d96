"""One threshold per group, against every combination of thresholds by scikit-learn's values."""

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import accuracy_score, f1_score, recall_score

from metricfit import metrics
from metricfit.core.group_labels import number_groups
from metricfit.decide import best_group_thresholds
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import InfeasibleError

SCORES = {"accuracy": accuracy_score, "f1": f1_score}


def rows(seed, n=16, groups=2):
    rng = np.random.default_rng(seed)
    group, target = np.arange(n) % groups, rng.integers(0, 2, n)
    return np.round(rng.normal(size=n) + target + group, 1), target, group


def brute_force(scores, target, group, score, allowed):
    """The best value of all combinations of thresholds whose group recalls are allowed."""
    best = -np.inf
    candidates = [[np.inf, *np.unique(scores[group == k])] for k in range(group.max() + 1)]
    for thresholds in itertools.product(*candidates):
        predicted = scores >= np.array(thresholds)[group]
        recalls = [recall_score(target[group == k], predicted[group == k]) for k in range(group.max() + 1)]
        if allowed(recalls):
            best = max(best, score(target, predicted))
    return best


@pytest.mark.parametrize("seed", range(4))
def test_accuracy_under_a_floor_is_the_best_of_all_combinations(seed):
    scores, target, group = rows(seed)
    found = best_group_thresholds(scores, target, group, "accuracy", "recall >= 0.7")
    predicted = found.decide(scores, group)
    assert found.value == pytest.approx(accuracy_score(target, predicted))
    assert all(recall_score(target[group == k], predicted[group == k]) >= 0.7 for k in (0, 1))
    expected = brute_force(scores, target, group, accuracy_score, lambda recalls: min(recalls) >= 0.7)
    assert found.value == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(4))
def test_accuracy_within_a_gap_is_the_best_of_all_combinations(seed):
    scores, target, group = rows(seed)
    found = best_group_thresholds(scores, target, group, "accuracy", metrics.recall.gap(2) <= 0.1)
    predicted = found.decide(scores, group)
    recalls = [recall_score(target[group == k], predicted[group == k]) for k in (0, 1)]
    assert abs(recalls[0] - recalls[1]) <= 0.1 + 1e-9
    expected = brute_force(scores, target, group, accuracy_score, lambda each: np.ptp(each) <= 0.1 + 1e-9)
    assert found.value == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_f1_is_improved_by_no_single_threshold(seed):
    scores, target, group = rows(seed, n=36, groups=3)
    found = best_group_thresholds(scores, target, group, "f1")
    thresholds = np.array([found.thresholds[k] for k in range(3)])
    for k in range(3):
        for threshold in [np.inf, *np.unique(scores[group == k])]:
            other = thresholds.copy()
            other[k] = threshold
            assert f1_score(target, scores >= other[group]) <= found.value + 1e-12


def test_weights_count_rows_several_times():
    scores, target, group = rows(5)
    weight = np.random.default_rng(0).integers(0, 4, len(scores))
    weighted = best_group_thresholds(scores, target, group, "accuracy", "recall >= 0.7", weight=weight)
    repeated = [np.repeat(values, weight) for values in (scores, target, group)]
    assert weighted.value == pytest.approx(best_group_thresholds(*repeated, "accuracy", "recall >= 0.7").value)


def test_a_metric_to_be_minimised_and_labels_of_text():
    scores, target, group = rows(6)
    names = np.array(["women", "men"])[group]
    cost = best_group_thresholds(scores, target, names, "cost(fp=1, fn=1)")
    assert list(cost.thresholds) == ["men", "women"]
    assert cost.value == pytest.approx(1 - best_group_thresholds(scores, target, group, "accuracy").value)


def test_wrong_use_says_what_to_do():
    scores, target, group = rows(0)
    only_negatives = np.where(group == 1, 0, target)
    for settings, message in [
        ((target, group, "recall.gap(2)"), "make it a requirement"),
        ((target, group, "f1", "recall.gap(3) <= 0.1"), "between 3 groups, but the rows are in 2"),
        ((target, group, "f1", ["recall.gap(2) <= 0.1", "fpr.gap(2) <= 0.1"]), "take one gap"),
        ((target, group, "f1", "recall.gap(2) >= 0.1"), "take one gap"),
        ((target, group[:-1], "f1"), "one label per row, 16; got 15"),
        ((only_negatives, group, "f1", "recall >= 0.5"), "no threshold of group 1 gives recall >= 0.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            best_group_thresholds(scores, *settings)
    found = best_group_thresholds(scores, target, group, "f1")
    with pytest.raises(ValueError, match="which is not one of the groups"):
        found.decide([0.5], [7])


def test_groups_are_numbered_from_any_labels():
    pandas = pytest.importorskip("pandas")
    assert number_groups(pandas.Series(["b", "a"]), 2).names == ("a", "b")
    assert number_groups(np.array([3, 1, 3]), 3).numbers.tolist() == [1, 0, 1]
    assert number_groups(["b", "a"], 2, names=["b", "a"]).numbers.tolist() == [0, 1]
    for labels, error, message in [
        (["a", None], ValueError, "rows without a group"),
        ([1.0, float("nan")], ValueError, "rows without a group"),
        ([0.5, 1.0], TypeError, "integers or texts"),
        ([[1], [2]], ValueError, "of shape"),
        ("ab", TypeError, "one label per row"),
        (3, TypeError, "one label per row"),
    ]:
        with pytest.raises(error, match=message):
            number_groups(labels, 2)


def population(seed, n=400):
    rng = np.random.default_rng((seed, 3))
    target, group = (rng.random(n) < 0.4).astype(int), rng.integers(0, 2, n)
    return rng.normal(size=n) + (1.0 + group) * target, target, group


def test_a_floor_holds_in_all_groups_on_new_rows_as_often_as_asked_for():
    runs, failures = 150, 0
    for seed in range(runs):
        found = best_group_thresholds(*population(seed), "precision", "recall >= 0.7", confidence=0.8)
        recalls = [norm.sf(threshold - 1.0 - group) for group, threshold in found.thresholds.items()]
        failures += min(recalls) < 0.7
    assert 0.02 < failures / runs <= 0.2 + 2 * (0.16 / runs) ** 0.5


def test_each_group_is_certified_at_the_root_of_the_confidence():
    scores, target, group = population(0)
    found = best_group_thresholds(scores, target, group, "precision", "recall >= 0.7", confidence=0.81)
    for name, threshold in found.thresholds.items():
        rows = group == name
        alone = best_group_thresholds(
            scores[rows], target[rows], np.zeros(rows.sum(), dtype=int), "recall", "recall >= 0.7", confidence=0.9
        )
        assert alone.thresholds[0] <= threshold
        k, m = (target[rows] * (scores[rows] >= threshold)).sum(), target[rows].sum()
        assert binomtest(int(k), int(m), 0.7, alternative="greater").pvalue <= 0.1


def test_what_a_confidence_cannot_promise_for_groups_is_refused():
    scores, target, group = population(0, 60)
    with pytest.raises(InfeasibleError, match=r"group [01]: recall >= 0.95 at 97.\d+ % confidence needs at least 72"):
        best_group_thresholds(scores, target, group, "f1", "recall >= 0.95", confidence=0.95)
    with pytest.raises(InfeasibleError, match=r"no threshold of group 0 can be promised to give recall >= 0.6 and spe"):
        best_group_thresholds(*population(0), "f1", ["recall >= 0.6", "specificity >= 0.95"], confidence=0.95)
    with pytest.raises(InvalidValueError, match="no exact bound"):
        best_group_thresholds(scores, target, group, "f1", metrics.recall.gap(2) <= 0.1, confidence=0.95)
    with pytest.raises(InvalidValueError, match="weights void"):
        best_group_thresholds(scores, target, group, "f1", "recall >= 0.5", weight=np.ones(60), confidence=0.95)
