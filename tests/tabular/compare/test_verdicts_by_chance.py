"""How often a verdict calls a method better by chance, and how often it finds one that is: simulated comparisons."""

import re

import numpy as np
import pytest

from metricfit.metrics import get_metric
from metricfit.tabular.compare.judging import FoldResult
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE, methods
from metricfit.tabular.compare.verdict import advise, standings

F1 = get_metric("f1")
NAMES = [REFERENCE, *(method.name for method in methods())]


def simulated(rng, better=None, gain=0.0):
    """Five folds of methods that are equally good, except that one is better by ``gain``.

    The folds' training rows overlap, so a method's luck is in part the same on all of them: a common part of half the
    standard deviation of the rest gives the correlation, 1/5, that Nadeau and Bengio's test takes into account.
    """
    level, spread = 0.6 + 0.03 * rng.normal(size=5), 0.02
    values = {
        name: level + gain * (name == better) + spread * (0.5 * rng.normal() + rng.normal(size=5)) for name in NAMES
    }
    return standings({name: [FoldResult(float(v), 1.0) for v in by_fold] for name, by_fold in values.items()}, F1)


def calls_one_better(advice):
    return re.search("(?<!not )clearly better", " ".join([advice.text, *advice.details])) is not None


def test_of_methods_that_are_alike_none_is_called_clearly_better():
    rng = np.random.default_rng(0)
    advice = [advise(simulated(rng), "f1") for _ in range(100)]
    assert np.mean([calls_one_better(each) for each in advice]) <= 0.05
    assert not any(each.sure for each in advice if each.row.name == DEFAULT)


@pytest.mark.parametrize("name", ["boosted trees", DEFAULT])
def test_a_method_that_is_really_better_is_found(name):
    rng = np.random.default_rng(1)
    advice = [advise(simulated(rng, name, gain=0.2), "f1") for _ in range(30)]
    assert np.mean([calls_one_better(each) for each in advice]) >= 0.8
    assert np.mean([each.row.name == name for each in advice]) >= 0.95


def test_a_default_that_is_ahead_by_more_than_the_margin_is_recommended_more_often_than_any_other():
    rng = np.random.default_rng(2)
    chosen = [advise(simulated(rng, DEFAULT, gain=0.03), "f1").row.name for _ in range(60)]
    assert chosen.count(DEFAULT) > 0.5 * len(chosen)
