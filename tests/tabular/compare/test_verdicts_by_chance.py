"""How often a verdict calls a method better by chance, and how often it finds one that is: simulated comparisons."""

import re

import numpy as np
import pytest

from metricfit.metrics import get_metric
from metricfit.tabular.compare.methods import DEFAULT, methods
from metricfit.tabular.compare.standings import standings
from metricfit.tabular.compare.verdict import advise, headline

F1 = get_metric("f1")
EIGHT = [method.name for method in methods(False)] + ["cross-entropy at 0.5"]


def simulated(rng, better=None, gain=0.0):
    """Five folds of eight methods that are equally good, except that one is better by ``gain``.

    The folds' training rows overlap, so a method's luck is in part the same on all of them: a common part of half the
    standard deviation of the rest gives the correlation, 1/5, that Nadeau and Bengio's test takes into account.
    """
    level, spread = 0.6 + 0.03 * rng.normal(size=5), 0.02
    values = {
        name: level + gain * (name == better) + spread * (0.5 * rng.normal() + rng.normal(size=5)) for name in EIGHT
    }
    return standings(
        {
            name: [{"values": {name: float(v)}, "held": {name: True}, "training_seconds": 1.0} for v in of]
            for name, of in values.items()
        },
        F1,
    )


def calls_one_better(rows):
    return re.search("(?<!not )clearly better", advise(rows, "f1").text) is not None


def test_of_eight_methods_that_are_alike_none_is_called_clearly_better():
    rng = np.random.default_rng(0)
    draws = [simulated(rng) for _ in range(100)]
    assert np.mean([calls_one_better(rows) for rows in draws]) <= 0.05
    top = [headline(rows, "f1") for rows in draws]
    assert np.mean(["logistic regression" in each for each in top]) >= 0.9  # the simplest of what cannot be told apart


@pytest.mark.parametrize("name", ["boosted trees", DEFAULT])
def test_a_method_that_is_really_better_is_found(name):
    rng = np.random.default_rng(1)
    draws = [simulated(rng, name, gain=0.2) for _ in range(30)]
    assert np.mean([calls_one_better(rows) for rows in draws]) >= 0.8
    assert (
        np.mean(
            [
                headline(rows, "f1").startswith("Use " + ("metricfit's default" if name == DEFAULT else name))
                for rows in draws
            ]
        )
        >= 0.9
    )
