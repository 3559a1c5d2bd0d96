"""Sangalli et al. 2021, Figure 1: what swapping two neighbours saves, per positive, per negative and per pair.

Scores stand D apart, ``--+--++-++`` from left to right, the margin is 0 and all multipliers are equal. Times N+ N-, a
swap saves a mu D^2 / 2 + b lambda D.
"""

import pytest
import torch

from metricfit import RankingConstraint
from metricfit.core.kernels.pairs import hinge_sums

LABELS = torch.tensor([sign == "+" for sign in "--+--++-++"]).long()
LEFTMOST_POSITIVE, RIGHTMOST_NEGATIVE = (2, 3), (6, 7)
D, MU, LAMBDA = 0.7, 0.3, 1.9


def saved(per, swap, multiplier):
    """What exchanging the places of two samples takes from Eq. 8's terms, times N+ N-."""
    scores = D * torch.arange(10, dtype=torch.float64)
    swapped = scores.clone()
    swapped[list(swap)] = scores[list(reversed(swap))]
    constraint = RankingConstraint(margin=0.0, per=per, size=10).double()
    if per != "pair":
        constraint.multiplier.fill_(multiplier)
    before, after = (constraint(x, LABELS, torch.tensor(MU, dtype=torch.float64)) for x in (scores, swapped))
    return (25 * (before - after)).item()


@pytest.mark.parametrize(
    ("per", "swap", "squares"),
    [
        ("positive", LEFTMOST_POSITIVE, 39),
        ("positive", RIGHTMOST_NEGATIVE, 19),
        ("negative", LEFTMOST_POSITIVE, 19),
        ("negative", RIGHTMOST_NEGATIVE, 39),
        ("pair", LEFTMOST_POSITIVE, 13),
        ("pair", RIGHTMOST_NEGATIVE, 13),
    ],
)
def test_saving_of_a_swap_is_that_of_figure_1(per, swap, squares):
    linear = 0.0 if per == "pair" else 3 * LAMBDA * D  # per pair there are no multipliers
    assert saved(per, swap, LAMBDA) == pytest.approx(squares * MU * D**2 / 2 + linear, rel=1e-12)


@pytest.mark.parametrize("swap", [LEFTMOST_POSITIVE, RIGHTMOST_NEGATIVE])
def test_equal_multipliers_per_pair_would_save_three_as_well(swap):
    scores = D * torch.arange(10, dtype=torch.float64)
    swapped = scores.clone()
    swapped[list(swap)] = scores[list(reversed(swap))]
    sums = [(LABELS * hinge_sums(x, x, 1.0 - LABELS, 1)).sum().item() for x in (scores, swapped)]
    assert sums[0] - sums[1] == pytest.approx(3 * D)
