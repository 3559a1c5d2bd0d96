r"""A test by betting, which may be looked at after every row: whether a mean is at least 0 all the time.

A player bets against "the mean of the gains is at least 0". A gain :math:`g \le 1` turns a stake :math:`K` into
:math:`K (1 - \lambda g)`. While the hypothesis holds, no stake grows in expectation, so the wealth of a player who
begins with 1 ever reaches :math:`1 / \alpha` with a probability of at most :math:`\alpha` (Ville's inequality). Any
number of looks is therefore allowed (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
betting"; for models in use Podkopaev and Ramdas 2022, "Tracking the risk of a deployed model").

The wealth here is spread over a grid of :math:`\lambda`, and over the row at which a stake is first played. A model
that was right for a year and then fails has made the early stakes worthless. Late stakes find it all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from metricfit.core.arrays import Floats

#: The share of a stake that is lost if a gain is 1. Neighbours differ by a factor of 1.6, which costs little growth.
BETS = np.geomspace(0.002, 0.9, 14)


class Evidence(NamedTuple):
    """What betting against "the mean is at least 0" has earned.

    Attributes:
        wealth: The natural logarithm of the wealth after each gain.
        begins: For each gain, the number of the gain at which the stake was first played that has earned most.
    """

    wealth: Floats
    begins: np.ndarray


def bet_against(gains: Floats) -> Evidence:
    r"""Bet against "each gain has a mean of at least 0, whatever the gains before it were".

    A stake that is first played at gain number :math:`t` is :math:`1/\ln(e + t - 1) - 1/\ln(e + t)`, so all stakes
    together are less than 1, and late ones are not much smaller than early ones.

    Args:
        gains: Gains in the order in which they were observed, ``(..., n)``, each at most 1.

    Returns:
        The wealth and the beginnings, ``(..., n)``. "Wealth at least 1 / alpha at some time" is a test at level alpha.

    Example:
        >>> misses = np.array([1] * 200 + [-9] * 30)  # recall >= 0.9: a hit gains 1, and a miss loses 9
        >>> wealth, begins = bet_against(misses / 9)
        >>> bool(wealth[199] < 0), bool(wealth[-1] > np.log(20)), int(begins[-1])
        (True, True, 200)
    """
    unplayed = 1 / np.log(np.e + np.arange(gains.shape[-1] + 1))
    stakes = np.log(-np.diff(unplayed))
    wealth, best = np.broadcast_to(np.log(unplayed[1:]), gains.shape), np.full(gains.shape, -np.inf)
    begins, numbers = np.zeros(gains.shape, dtype=np.int64), np.arange(gains.shape[-1])
    for bet in BETS:
        growth = np.cumsum(np.log1p(-bet * gains), axis=-1)
        entry = stakes - np.concatenate([np.zeros_like(growth[..., :1]), growth[..., :-1]], axis=-1)
        earned = growth + np.logaddexp.accumulate(entry, axis=-1) - np.log(len(BETS))
        wealth = np.logaddexp(wealth, earned)
        highest = np.maximum.accumulate(entry, axis=-1)
        from_row = np.maximum.accumulate(np.where(entry >= highest, numbers, 0), axis=-1)
        begins = np.where(earned > best, from_row, begins)
        best = np.maximum(best, earned)
    return Evidence(wealth, begins)
