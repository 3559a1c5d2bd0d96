"""Holm's correction: against the closed test it is a short cut of, and its promise."""

import itertools

import numpy as np
import pytest

from metricfit.stats import holm


@pytest.mark.parametrize("seed", range(10))
def test_it_is_the_closed_test_of_bonferroni(seed):
    """A hypothesis is rejected at a level if Bonferroni rejects every intersection of hypotheses that it is part of."""
    rng = np.random.default_rng(seed)
    p = (rng.random(5) ** 3).round(2).tolist()
    for at in range(5):
        subsets = [s for r in range(1, 6) for s in itertools.combinations(range(5), r) if at in s]
        expected = max(min(1.0, len(s) * min(p[each] for each in s)) for s in subsets)
        assert holm(p)[at] == pytest.approx(expected)


def test_one_test_needs_no_correction_and_none_give_none():
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_at_most_one_family_in_twenty_makes_a_mistake():
    rng = np.random.default_rng(0)
    families = rng.random((2000, 8))
    assert np.mean([min(holm(p)) <= 0.05 for p in families.tolist()]) == pytest.approx(0.05, abs=0.015)


def test_invalid_p_values_are_refused():
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match="p-values lie between 0 and 1"):
            holm([0.5, wrong])
