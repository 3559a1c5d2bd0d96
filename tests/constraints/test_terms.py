"""A penalty alone and multipliers alone: Sangalli et al. 2021, Eq. 2 and 3, on a problem solved by hand.

The problem is to make -x^2 small with x^2 <= 1: x = 1, with the multiplier 1.
"""

import math

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, RankingConstraint
from metricfit.constraints import augmented_term


class MinusSquare(nn.Module):
    def forward(self, logits, target):
        return -(logits**2).mean()


def build(mu, **settings):
    return AugmentedLagrangian(MinusSquare(), lambda logits, _: (logits**2).mean() - 1, mu=mu, **settings)


def solve(loss, steps=2000):
    x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    path = []
    for step in range(steps):
        x.grad = None
        loss(x, torch.ones(1)).backward()
        with torch.no_grad():
            x -= 0.01 * x.grad
        if step % 10 == 9:
            loss.update()
        path.append(x.item())
    return path


@pytest.mark.parametrize("mu", [0.5, 1.0, 10.0])
def test_a_penalty_alone_leaves_a_violation_of_one_over_mu(mu):
    loss = build(mu, terms="penalty")
    assert solve(loss)[-1] ** 2 == pytest.approx(1 + 1 / mu, rel=1e-6)
    assert all(not multiplier.any() for multiplier in loss.multipliers.values())


def test_multipliers_alone_do_not_settle_without_convexity_and_both_do():
    late = solve(build(1.0, terms="multipliers"))[-500:]
    assert max(late) - min(late) > 0.5
    both = build(1.0)
    assert solve(both)[-1] == pytest.approx(1.0, abs=1e-6)
    assert next(iter(both.multipliers.values())).item() == pytest.approx(1.0, abs=1e-4)


def test_the_terms_are_those_of_the_equations():
    x, y = torch.tensor([3.0]), torch.ones(1)  # the violation is 8
    penalty, multipliers, both = (build(0.5, terms=terms) for terms in ("penalty", "multipliers", "both"))
    values = []
    for loss in (penalty, multipliers, both):
        first = loss(x, y).item() + 9
        loss.update()  # the multiplier is 0.5 * 8 = 4, except for the penalty alone
        values.append((first, loss(x, y).item() + 9))
    assert values == [(16.0, 16.0), (0.0, 32.0), (16.0, 48.0)]


def test_ranking_constraints_take_the_terms_of_equation_8():
    logits, target = torch.tensor([0.0, 2.0, 1.0]), torch.tensor([1, 1, 0])

    def loss(terms):
        constraint = RankingConstraint(margin=1.0, size=3)
        made = AugmentedLagrangian(nn.BCEWithLogitsLoss(), constraint, mu=0.2, terms=terms)
        made(logits, target.float())
        made.update()
        return (made(logits, target.float()) - made.unconstrained(logits, target.float())).item()

    square = 0.2 / 2 * 2**2 / 2  # q = 2 for the first positive, two pairs
    assert loss("penalty") == pytest.approx(square)
    assert loss("multipliers") == pytest.approx(0.2 * 2 * 2 / 2)
    assert loss("both") == pytest.approx(loss("penalty") + loss("multipliers"))


def test_the_term_without_a_penalty_is_the_limit_of_small_ones():
    g = torch.tensor([0.5, -0.5, 0.5, -0.5], dtype=torch.float64, requires_grad=True)
    multiplier = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    zero, small = (augmented_term(g, multiplier, torch.tensor(mu, dtype=torch.float64)) for mu in (0.0, 1e-9))
    torch.testing.assert_close(zero, multiplier * g)
    torch.testing.assert_close(zero, small, atol=1e-8, rtol=0)
    (gradient,) = torch.autograd.grad(zero.sum(), g)
    assert gradient.tolist() == multiplier.tolist()
    assert all(map(math.isfinite, gradient.tolist()))


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="terms must be 'both' or 'penalty' or 'multipliers', got 'none'"):
        build(1.0, terms="none")
    with pytest.raises(ValueError, match="per='pair' has no multipliers"):
        AugmentedLagrangian(nn.BCEWithLogitsLoss(), RankingConstraint(per="pair"), terms="multipliers")


def test_mu_grows_after_a_fall_that_is_large_enough():
    loss = build(1.0, rho=2.0, fall=0.05, mu_max=3.0)
    grown = []
    for value in (0.9, 0.86, 0.80, 0.75, 0.1):
        loss.observe(value)
        grown.append(loss.mu.item())
    assert grown == [1.0, 1.0, 2.0, 2.0, 3.0]  # 0.80 to 0.75 is no more than 0.05
    assert "fall=0.05" in repr(loss)
    for wrong in (-0.1, math.inf):
        with pytest.raises(ValueError, match="fall is how far"):
            build(1.0, fall=wrong)
