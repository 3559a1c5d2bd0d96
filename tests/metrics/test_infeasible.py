"""What InfeasibleError says: its numbers are those of a search by hand."""

import random
import re

import pytest
from brute_force import EXACT, tables

from metricfit import curves, metrics


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
    assert message.startswith("no threshold gives kappa >= 1; kappa >= 1 alone: kappa can be at most ")
    assert float(message.split()[-1]) == pytest.approx(reachable, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_an_upper_bound_names_the_smallest_reachable_value(seed):
    scores, target, _ = random_problem(seed)
    least = float(min(EXACT["cost"](t) for _, t in tables(scores, target)))
    assert least > 0
    message = message_of(scores, target, metrics.cost(fp=1, fn=10) <= 0)
    assert "cost(fp=1, fn=10) can be at least" in message
    assert float(message.split()[-1]) == pytest.approx(least, rel=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_several_requirements_name_each_limit_and_the_nearest_threshold(seed):
    scores, target, _ = random_problem(seed)
    candidates = tables(scores, target)
    assert not any(EXACT["recall"](t) >= 0.875 and EXACT["fpr"](t) <= 0.0625 for _, t in candidates)
    message = message_of(scores, target, ["recall >= 0.875", "fpr <= 0.0625"])
    highest = re.search(r"recall >= 0.875 alone: recall can be at most ([\d.e-]+)", message)
    lowest = re.search(r"fpr <= 0.0625 alone: fpr can be at least ([\d.e-]+)", message)
    assert float(highest[1].rstrip(";")) == float(max(EXACT["recall"](t) for _, t in candidates))
    assert float(lowest[1].rstrip(";")) == 0.0
    nearest = re.search(r"nearest at threshold ([\d.e+-]+|inf): recall = ([\d.e-]+), fpr = ([\d.e-]+)$", message)
    threshold, recall, fpr = map(float, nearest.groups())
    table = dict(candidates)[threshold]
    assert recall == pytest.approx(float(EXACT["recall"](table)), rel=1e-5)
    assert fpr == pytest.approx(float(EXACT["fpr"](table)), rel=1e-5)
    worst = {h: max(0.875 - EXACT["recall"](t), EXACT["fpr"](t) - 0.0625) for h, t in candidates}
    assert float(worst[threshold]) == pytest.approx(float(min(worst.values())), abs=1e-12)


def test_it_is_a_value_error():
    assert issubclass(curves.InfeasibleError, ValueError)


def test_bad_requirements_are_refused_before_any_search():
    with pytest.raises(ValueError, match="recall lies between 0 and 1"):
        curves.best_threshold([1, 2], [0, 1], "f1", "recall >= 95")
    with pytest.raises(TypeError, match="a requirement is written like"):
        curves.best_threshold([1, 2], [0, 1], "f1", [0.9])
