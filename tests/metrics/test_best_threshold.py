"""best_threshold against trying every candidate in exact fractions."""

import functools
import math
import random

import numpy as np
import pytest
import torch
from brute_force import tables

from metricfit import curves, metric, metrics
from oracles import EXACT, INSTANCES, MINIMIZED, SQUARED, value

NAMES = metrics.names()


def random_problem(seed, weighted=False):
    r = random.Random(seed)
    n = r.randint(1, 16)
    scores = [r.randint(-4, 6) / 8 for _ in range(n)]
    target = [int(r.random() < 0.4) for _ in range(n)]
    return scores, target, [r.randint(1, 12) / 4 for _ in range(n)] if weighted else None


@functools.cache
def candidates_of(seed, weighted=False):
    return tables(*random_problem(seed, weighted))


def brute_best(name, candidates):
    """The best exact key, and of the thresholds that have it the largest whose decisions no other one dominates."""
    sign = -1 if name in MINIMIZED else 1
    best = max(sign * EXACT[name](table) for _, table in candidates)
    tied = [(threshold, table) for threshold, table in candidates if sign * EXACT[name](table) == best]
    return sign * best, max(h for h, t in tied if not any(dominates(other, t) for _, other in tied))


def dominates(a, b):
    """Whether decisions find more positives with the same false alarms, or as many with fewer."""
    return (a.tp > b.tp and a.fp == b.fp) or (a.tp == b.tp and a.fp < b.fp)


def metric_of(name):
    return INSTANCES.get(name, name)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_value_is_the_best_of_all_candidates_and_is_the_thresholds_own(name, weighted):
    for seed in range(25):
        scores, target, weight = random_problem(seed, weighted)
        candidates = candidates_of(seed, weighted)
        best, _ = brute_best(name, candidates)
        found = curves.best_threshold(scores, target, metric_of(name), weight=weight)
        assert found.value == pytest.approx(value(name, best), abs=1e-12)
        assert value(name, EXACT[name](dict(candidates)[found.threshold])) == pytest.approx(found.value, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_ties_go_to_the_largest_threshold_that_is_not_dominated(name):
    wrong = []
    for seed in range(150):
        scores, target, _ = random_problem(seed)
        _, threshold = brute_best(name, candidates_of(seed))
        found = curves.best_threshold(scores, target, metric_of(name))
        if found.threshold != threshold:
            wrong.append((seed, found, threshold))
    assert not wrong


def test_a_requirement_leaves_no_dominated_decision():
    scores, target = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], [1, 1, 1, 1, 0, 1]
    for weight in (None, [2.0] * 6):
        best = curves.best_threshold(scores, target, "precision", "recall >= 0.3", weight=weight)
        assert best == (0.6, 1.0)  # recall is 0.8 here, and 0.4 at 0.8


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SQUARED])
def test_the_best_reachable_value_can_be_required(name):
    """A bound written as the literal nearest to the exact value holds there: 2/5 satisfies ``>= 0.4``."""
    infeasible = []
    for seed in range(60):
        scores, target, _ = random_problem(seed)
        key, _ = brute_best(name, candidates_of(seed))
        sense = "<=" if name in MINIMIZED else ">="
        try:
            curves.best_threshold(scores, target, "accuracy", f"{metric_of(name)} {sense} {value(name, key)!r}")
        except curves.InfeasibleError as error:
            infeasible.append((seed, key, str(error)))
    assert not infeasible


REQUIREMENTS = [
    ["recall >= 0.5"],
    ["precision >= 0.75", "recall >= 0.25"],
    ["0.25 >= fpr"],
    [metrics.specificity >= 0.5, "accuracy >= 0.375"],
    [metrics.cost(fp=1, fn=10) <= 3],
]
EXACT_REQUIREMENTS = [
    lambda t: EXACT["recall"](t) >= 0.5,
    lambda t: EXACT["precision"](t) >= 0.75 and EXACT["recall"](t) >= 0.25,
    lambda t: EXACT["fpr"](t) <= 0.25,
    lambda t: EXACT["specificity"](t) >= 0.5 and EXACT["accuracy"](t) >= 0.375,
    lambda t: EXACT["cost"](t) <= 3,
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("which", range(len(REQUIREMENTS)))
def test_requirements_leave_the_best_of_the_feasible(which, weighted):
    feasible_seen = 0
    for seed in range(60):
        scores, target, weight = random_problem(seed, weighted)
        name = NAMES[seed % len(NAMES)]
        feasible = [(h, t) for h, t in candidates_of(seed, weighted) if EXACT_REQUIREMENTS[which](t)]
        if not feasible:
            with pytest.raises(curves.InfeasibleError):
                curves.best_threshold(scores, target, metric_of(name), REQUIREMENTS[which], weight=weight)
            continue
        feasible_seen += 1
        best, _ = brute_best(name, feasible)
        found = curves.best_threshold(scores, target, metric_of(name), REQUIREMENTS[which], weight=weight)
        assert found.value == pytest.approx(value(name, best), abs=1e-12)
        assert found.threshold in dict(feasible)
        assert not any(dominates(t, dict(feasible)[found.threshold]) and EXACT[name](t) == best for _, t in feasible)
        assert value(name, EXACT[name](dict(feasible)[found.threshold])) == pytest.approx(found.value, abs=1e-12)
    assert feasible_seen > 10


def test_one_requirement_may_be_written_four_ways():
    scores, target = [0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0]
    for subject_to in ("precision >= 0.9", metrics.precision >= 0.9, ["0.9 <= precision"], (metrics.precision >= 0.9,)):
        assert curves.best_threshold(scores, target, "recall", subject_to) == (0.9, 0.5)
    assert curves.best_threshold(scores, target, "recall", []) == curves.best_threshold(scores, target, "recall")


def test_a_metric_of_ones_own_and_one_to_minimise():
    @metric
    def hits_less_twice_alarms_for_best_threshold(c):
        return (c.tp - 2 * c.fp) / c.n

    @metric(minimize=True)
    def alarms_and_misses_for_best_threshold(c):
        return (3 * c.fp + c.fn) / c.n

    for seed in range(40):
        scores, target, _ = random_problem(seed)
        candidates = candidates_of(seed)
        gain = {h: t.tp - 2 * t.fp for h, t in candidates}
        loss = {h: 3 * t.fp + t.fn for h, t in candidates}
        best = max(h for h in gain if gain[h] == max(gain.values()))
        least = max(h for h in loss if loss[h] == min(loss.values()))
        n = len(scores)
        for own in (hits_less_twice_alarms_for_best_threshold, "hits_less_twice_alarms_for_best_threshold"):
            assert curves.best_threshold(scores, target, own) == (best, float(gain[best] / n))
        found = curves.best_threshold(scores, target, alarms_and_misses_for_best_threshold)
        assert found == (least, float(loss[least] / n))


def test_a_plain_function_is_a_metric_to_maximise():
    assert curves.best_threshold([3, 2, 1], [0, 1, 1], lambda c: c.tp / c.predicted) == (1.0, pytest.approx(2 / 3))


def test_what_is_infeasible_never_wins_over_a_feasible_infinite_value():
    """fp/tn is infinite at the only threshold with full recall; that threshold is still the answer."""

    @metric(minimize=True)
    def alarms_to_rests_for_best_threshold(c):
        return c.fp / c.tn

    found = curves.best_threshold([0.9, 0.8, 0.1], [0, 0, 1], alarms_to_rests_for_best_threshold, "recall >= 1")
    assert found == (0.1, math.inf)


def test_infinite_scores_are_refused():
    with pytest.raises(ValueError, match="1 of 2 scores are infinite"):
        curves.best_threshold([math.inf, 0.0], [0, 1], "f1")


@pytest.mark.parametrize("make", [np.array, torch.tensor, list])
def test_the_result_is_a_named_pair_of_floats_for_every_kind_of_array(make):
    found = curves.best_threshold(make([0.9, 0.6, 0.4, 0.1]), make([1, 0, 1, 0]), "f1")
    assert found == (0.4, 0.8) or found == (pytest.approx(0.4), pytest.approx(0.8))
    assert isinstance(found.threshold, float)
    assert isinstance(found.value, float)


def test_float32_scores_reach_their_own_threshold():
    scores = torch.tensor([0.1, 0.3, 0.7, 0.9])
    threshold, _ = curves.best_threshold(scores, torch.tensor([0, 0, 1, 1]), "f1")
    assert (scores >= threshold).tolist() == [False, False, True, True]


def test_nothing_positive_is_a_candidate():
    assert curves.best_threshold([0.9, 0.1], [0, 0], "accuracy") == (math.inf, 1.0)
