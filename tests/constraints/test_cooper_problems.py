"""Cooper's own problems, whose solutions are known: eight linear ones, and the die with an average of 4.5.

Problems: Cooper (MIT licence), ``tests/pipeline`` and the tutorial on discrete maximum entropy. The code is our own.
"""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from metricfit import AugmentedLagrangian
from metricfit.constraints import FunctionConstraint


class SquaredNorm(torch.nn.Module):
    def forward(self, variables, target):
        return (variables**2).sum()


class NegativeEntropy(torch.nn.Module):
    def forward(self, variables, target):
        shares = variables.softmax(0)
        return (shares * shares.log()).sum()


def trained(objective, constraints, start, steps, lr):
    """The variables are the outputs of a model, because AugmentedLagrangian is a loss."""
    variables = start.clone().requires_grad_()
    loss = AugmentedLagrangian(objective, constraints, mu=1.0)
    optimizer = torch.optim.SGD([variables], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(variables, torch.zeros_like(start)).backward()
        optimizer.step()
        loss.update()
    return variables.detach()


def linear_problem(size, seed):
    """Five constraints with singular values between 1.5 and 2.5, and a right side of norm 1."""
    generator = np.random.default_rng(seed)
    left, _ = np.linalg.qr(generator.normal(size=(5, 5)))
    right, _ = np.linalg.qr(generator.normal(size=(size, size)))
    bound = generator.normal(size=5)
    return left @ np.diag(generator.uniform(1.5, 2.5, 5)) @ right[:5], bound / np.linalg.norm(bound)


def least_norm(matrix, bound):
    """The solution of ``matrix x <= bound`` with the least norm: all sets of active constraints are tried."""
    for count in range(6):
        for active in map(list, itertools.combinations(range(5), count)):
            multipliers = np.linalg.solve(matrix[active] @ matrix[active].T, -bound[active])
            x = -matrix[active].T @ multipliers
            if (multipliers >= 0).all() and (matrix @ x <= bound + 1e-12).all():
                return x
    raise AssertionError("these constraints can be met")


@pytest.mark.parametrize("equality", [False, True], ids=["inequalities", "equalities"])
@pytest.mark.parametrize("size", [5, 10])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_least_norm_under_linear_constraints(equality, size, seed):
    matrix, bound = linear_problem(size, seed)
    expected = np.linalg.pinv(matrix) @ bound if equality else least_norm(matrix, bound)
    a, b = torch.tensor(matrix), torch.tensor(bound)
    constraint = FunctionConstraint(lambda x, target: a @ x - b, size=5, equality=equality)
    found = trained(SquaredNorm(), constraint, torch.ones(size, dtype=torch.float64), steps=600, lr=0.1)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_the_die_with_an_average_of_four_and_a_half():
    """The distribution with the most entropy is proportional to powers of one number."""
    faces = np.arange(1, 7)
    factor = brentq(lambda r: (r**faces @ faces) / (r**faces).sum() - 4.5, 1.0, 3.0)
    expected = factor**faces / (factor**faces).sum()
    sides = torch.tensor(faces, dtype=torch.float64)
    average = FunctionConstraint(lambda x, target: x.softmax(0) @ sides - 4.5, equality=True)
    found = trained(NegativeEntropy(), average, torch.zeros(6, dtype=torch.float64), steps=500, lr=0.3)
    np.testing.assert_allclose(found.softmax(0).numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(expected, [0.05435, 0.07877, 0.11416, 0.16545, 0.23977, 0.34749], atol=1e-5)
