"""False positive rates at a true positive rate and at a number of false negatives, by brute force."""

import random
from fractions import Fraction

import pytest
from brute_force import tables

from metricfit import curves


def random_problem(seed, weighted):
    r = random.Random(seed)
    n = r.randint(2, 20)
    scores = [r.randint(0, 9) / 8 for _ in range(n)]
    target = [1, 0] + [int(r.random() < 0.4) for _ in range(n - 2)]
    return scores, target, [r.randint(1, 20) / 16 for _ in range(n)] if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_fpr_at_tpr_is_the_smallest_of_all_thresholds(seed, weighted):
    scores, target, weight = random_problem(seed, weighted)
    for tpr in (0.125, 0.5, 0.75, 0.9, 0.95, 1.0):
        expected = min(
            t.fp / (t.fp + t.tn) for _, t in tables(scores, target, weight) if t.tp / (t.tp + t.fn) >= Fraction(tpr)
        )
        assert curves.fpr_at_tpr(scores, target, tpr, weight) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_fpr_at_fn_is_the_smallest_of_all_thresholds(seed, weighted):
    scores, target, weight = random_problem(seed, weighted)
    for fn in (0, 0.5, 1, 2, 100):
        expected = min(t.fp / (t.fp + t.tn) for _, t in tables(scores, target, weight) if t.fn <= fn)
        assert curves.fpr_at_fn(scores, target, fn, weight) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("seed", range(15))
def test_a_tpr_of_1_is_reached_despite_rounded_weights(seed):
    r = random.Random(seed)
    scores = [float(k) for k in range(40, 0, -1)]
    target = [1 if k < 30 and r.random() < 0.5 else 0 for k in range(40)]
    target[0], target[29], target[39] = 1, 1, 0
    weight = [r.random() / 3 for _ in range(40)]
    last = max(k for k in range(40) if target[k])
    below = sum(w for w, y in zip(weight[: last + 1], target, strict=False) if not y)
    expected = below / sum(w for w, y in zip(weight, target, strict=True) if not y)
    assert expected < 1
    assert curves.fpr_at_tpr(scores, target, 1.0, weight) == pytest.approx(expected, abs=1e-12)
    assert curves.fpr_at_fn(scores, target, 0, weight) == pytest.approx(expected, abs=1e-12)


def test_it_is_not_interpolated():
    assert curves.fpr_at_tpr([4, 3, 2, 1], [1, 0, 1, 0], tpr=0.75) == 0.5


@pytest.mark.parametrize("tpr", [0, -0.1, 1.01, float("nan")])
def test_a_tpr_outside_0_to_1_is_refused(tpr):
    with pytest.raises(ValueError, match=r"tpr must lie in \(0, 1\], got"):
        curves.fpr_at_tpr([1, 2], [0, 1], tpr)


def test_a_percentage_is_recognised():
    with pytest.raises(ValueError, match=r"got 95; did you mean 0\.95\?"):
        curves.fpr_at_tpr([1, 2], [0, 1], 95)


def test_a_bound_just_above_1_is_not_taken_for_a_percentage():
    with pytest.raises(ValueError, match=r"got 1\.05$"):
        curves.fpr_at_tpr([1, 2], [0, 1], 1.05)


@pytest.mark.parametrize("fn", [-1, float("nan")])
def test_a_negative_number_of_false_negatives_is_refused(fn):
    with pytest.raises(ValueError, match="fn is a number of false negatives, at least 0"):
        curves.fpr_at_fn([1, 2], [0, 1], fn)
