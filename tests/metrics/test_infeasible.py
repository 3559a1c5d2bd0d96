"""What InfeasibleError says: its numbers are those of a search by hand."""

import random
import re

import pytest
from brute_force import tables

from metricfit import curves, metrics
from oracles import EXACT


def message_of(scores, target, subject_to, weight=None):
    with pytest.raises(curves.InfeasibleError) as caught:
        curves.best_threshold(scores, target, "f1", subject_to, weight=weight)
    return str(caught.value)


def random_problem(seed):
    r = random.Random(seed)
    scores = [r.randint(0, 9) / 8 for _ in range(12)]
    return scores, [0 if s > 1 else int(r.random() < 0.4) for s in scores], [r.randint(1, 8) / 4 for _ in scores]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_one_requirement_names_the_best_reachable_value(seed, weighted):
    scores, target, weight = random_problem(seed)
    candidates = tables(scores, target, weight if weighted else None)
    reachable = float(max(EXACT["kappa"](t) for _, t in candidates))
    assert reachable < 1
    message = message_of(scores, target, "kappa >= 1", weight if weighted else None)
    told = re.fullmatch(
        r"no threshold gives kappa >= 1; the highest kappa that is reachable is (.*), at threshold .*", message
    )
    assert float(told[1]) == pytest.approx(reachable, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_an_upper_bound_names_the_smallest_reachable_value(seed):
    scores, target, _ = random_problem(seed)
    least = float(min(EXACT["cost"](t) for _, t in tables(scores, target)))
    assert least > 0
    message = message_of(scores, target, metrics.cost(fp=1, fn=10) <= 0)
    assert "at least" not in message  # "can be at least 0.4" would say that every threshold gives 0.4
    told = re.search(r"the lowest cost\(fp=1, fn=10\) that is reachable is (.*), at threshold", message)
    assert float(told[1]) == pytest.approx(least, rel=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_several_requirements_name_each_limit_and_the_nearest_threshold(seed):
    scores, target, _ = random_problem(seed)
    candidates = tables(scores, target)
    assert not any(EXACT["recall"](t) >= 0.875 and EXACT["fpr"](t) <= 0.0625 for _, t in candidates)
    message = message_of(scores, target, ["recall >= 0.875", "fpr <= 0.0625"])
    alone = re.search(r"each alone, recall can be as high as (.*) and fpr can be as low as (.*); the nearest", message)
    assert float(alone[1]) == float(max(EXACT["recall"](t) for _, t in candidates))
    assert float(alone[2]) == 0.0
    nearest = re.search(r"nearest threshold is ([\d.e+-]+|inf), with recall = ([\d.e-]+), fpr = ([\d.e-]+)$", message)
    threshold, recall, fpr = map(float, nearest.groups())
    table = dict(candidates)[threshold]
    assert recall == pytest.approx(float(EXACT["recall"](table)), rel=1e-5)
    assert fpr == pytest.approx(float(EXACT["fpr"](table)), rel=1e-5)
    worst = {h: max(0.875 - EXACT["recall"](t), EXACT["fpr"](t) - 0.0625) for h, t in candidates}
    assert float(worst[threshold]) == pytest.approx(float(min(worst.values())), abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_error_holds_the_nearest_threshold_that_is_best_for_the_metric(seed):
    scores, target, _ = random_problem(seed)
    with pytest.raises(curves.InfeasibleError) as caught:
        curves.best_threshold(scores, target, "f1", ["recall >= 0.875", "fpr <= 0.0625"])
    error, candidates = caught.value, dict(tables(scores, target))
    worst = {h: max(0.875 - EXACT["recall"](t), EXACT["fpr"](t) - 0.0625) for h, t in candidates.items()}
    near = [h for h in worst if float(worst[h]) <= float(min(worst.values())) + 1e-12]
    assert error.nearest.threshold in near
    best = max(float(EXACT["f1"](candidates[h])) for h in near)
    assert error.nearest.value == pytest.approx(best)
    there = candidates[error.nearest.threshold]
    recall, fpr = error.requirements["recall >= 0.875"], error.requirements["fpr <= 0.0625"]
    assert (recall.value, fpr.value) == pytest.approx((float(EXACT["recall"](there)), float(EXACT["fpr"](there))))
    assert (recall.met, fpr.met) == (recall.value >= 0.875, fpr.value <= 0.0625)
    assert (recall.reachable, fpr.reachable) == (float(max(EXACT["recall"](t) for t in candidates.values())), 0.0)


def test_it_is_a_value_error():
    assert issubclass(curves.InfeasibleError, ValueError)


def test_bad_requirements_are_refused_before_any_search():
    with pytest.raises(ValueError, match="recall lies between 0 and 1"):
        curves.best_threshold([1, 2], [0, 1], "f1", "recall >= 95")
    with pytest.raises(TypeError, match="a requirement is written like"):
        curves.best_threshold([1, 2], [0, 1], "f1", [0.9])
