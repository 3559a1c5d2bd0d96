"""Bets against a mean of at least 0: equal to the definition, rarely won by chance, and won soon after a fall."""

import numpy as np
import pytest

from metricfit.stats.betting import BETS, bet_against


def wealth_by_definition(gains):
    """Play every stake of the definition by hand: one per row and bet, in plain numbers."""
    unplayed = [1 / np.log(np.e + t) for t in range(len(gains) + 1)]
    wealth = []
    for now in range(1, len(gains) + 1):
        played = [
            (unplayed[start] - unplayed[start + 1]) / len(BETS) * np.prod(1 - bet * gains[start:now])
            for start in range(now)
            for bet in BETS
        ]
        wealth.append(sum(played) + unplayed[now])
    return np.log(wealth)


def test_wealth_is_that_of_the_definition():
    gains = np.random.default_rng(0).choice([1.0, 0.0, -4.0], p=[0.6, 0.2, 0.2], size=(2, 25))
    expected = [wealth_by_definition(each) for each in gains]
    np.testing.assert_allclose(bet_against(gains).wealth, expected, rtol=1e-10, atol=1e-12)


def test_gains_without_mean_cost_nothing_but_the_stakes_that_are_played():
    assert bet_against(np.zeros(50)).wealth == pytest.approx(np.zeros(50), abs=1e-12)


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.95])
def test_false_alarms_are_at_most_nominal_over_many_looks(rate):
    hits = np.random.default_rng(1).random((400, 3000)) < rate  # at the bound itself, the worst case
    alarms = (bet_against((hits - rate) / (1 - rate)).wealth >= np.log(20)).any(axis=1)
    assert alarms.mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)


def test_a_late_fall_is_found_and_dated():
    recall = np.where(np.arange(4000) < 2000, 0.95, 0.8)
    gains = (np.random.default_rng(2).random((50, 4000)) < recall) - 0.9
    wealth, begins = bet_against(gains / 0.1)
    alarm = (wealth >= np.log(20)).argmax(axis=1)
    assert (alarm > 2000).all()
    assert np.median(alarm) < 2300
    assert abs(np.median(begins[np.arange(50), alarm]) - 2000) < 20
