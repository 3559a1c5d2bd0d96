"""A convex problem with a known answer: logistic regression whose positives' mean loss is bounded, against SLSQP."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import softplus

from metricfit import AugmentedLagrangian
from metricfit.losses import WeightedBCELoss


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 2, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 1.2 * torch.randn(80, generator=generator, dtype=torch.float64) > 0.9).double()
    return torch.cat([x, torch.ones(80, 1, dtype=torch.float64)], 1), y


X, Y = data()


def positives(bound):
    """The positives' mean loss is at most a bound."""
    return lambda logits, target: softplus(-logits[target == 1]).mean() - bound


def flat(bound):
    """The mean of squared logits is at most a bound."""
    return lambda logits, target: (logits**2).mean() - bound


def solved_outside(constraints):
    def with_gradient(function):
        def evaluate(w):
            leaf = torch.tensor(w, requires_grad=True)
            value = function(X @ leaf, Y)
            return value.item(), torch.autograd.grad(value, leaf)[0].numpy()

        return evaluate

    bounds = [
        {"type": "ineq", "fun": lambda w, g=g: -with_gradient(g)(w)[0], "jac": lambda w, g=g: -with_gradient(g)(w)[1]}
        for g in constraints
    ]
    found = minimize(
        with_gradient(WeightedBCELoss()), np.zeros(3), jac=True, constraints=bounds, method="SLSQP", tol=1e-12
    )
    assert found.success
    return torch.as_tensor(found.x)


def trained(constraints):
    weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    loss = AugmentedLagrangian(WeightedBCELoss(), constraints, mu=1.0)
    optimizer = torch.optim.SGD([weights], lr=0.3)
    for _ in range(3000):
        optimizer.zero_grad()
        loss(X @ weights, Y).backward()
        optimizer.step()
        loss.update()
    return weights.detach(), [float(one.multiplier) for one in loss.constraints]


@pytest.mark.parametrize(
    ("constraints", "active"),
    [
        ([positives(0.4)], [True]),
        ([positives(0.55), flat(0.5)], [True, True]),
        ([positives(0.4), flat(100.0)], [True, False]),
        ([positives(5.0)], [False]),
    ],
    ids=["one", "two", "one of two active", "none active"],
)
def test_the_solution_is_an_outside_solvers(constraints, active):
    expected = solved_outside(constraints)
    weights, multipliers = trained(constraints)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-3)
    for g, multiplier, is_active in zip(constraints, multipliers, active, strict=True):
        assert abs(g(X @ weights, Y).item()) < 1e-4 if is_active else g(X @ weights, Y).item() < 0
        assert multiplier > 0.05 if is_active else multiplier == 0.0
