"""A convex problem with a known optimum: logistic regression with a bound on the mean loss of its positives."""

import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import softplus

from metricfit import AugmentedLagrangian
from metricfit.constraints import FunctionConstraint
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


def exact_solution(constraints, active):
    """The weights and multipliers at which the Karush-Kuhn-Tucker (KKT) conditions hold.

    The problem is convex, so these conditions are sufficient: whatever computed the point, it is the global optimum.
    Newton's method solves the equations for the active constraints; the conditions are then checked one by one.
    """
    binding = [g for g, is_active in zip(constraints, active, strict=True) if is_active]

    def lagrangian(weights, multipliers):
        logits = X @ weights
        return WeightedBCELoss()(logits, Y) + sum(m * g(logits, Y) for m, g in zip(multipliers, binding, strict=True))

    def equations(point):
        weights, multipliers = point[:3], point[3:]
        values = [g(X @ weights, Y) for g in binding]
        return torch.cat([torch.func.grad(lagrangian)(weights, multipliers), *(value.reshape(1) for value in values)])

    point = torch.cat([torch.tensor([1.0, 0.0, 0.0], dtype=X.dtype), torch.ones(len(binding), dtype=X.dtype)])
    for _ in range(20):
        point = point - torch.linalg.solve(torch.func.jacrev(equations)(point), equations(point))
    weights, multipliers = point[:3], point[3:]
    assert equations(point).abs().max() < 1e-10, "stationarity, and equality in the active constraints"
    assert all(g(X @ weights, Y) < 1e-10 for g in constraints), "feasibility"
    assert (multipliers > 0).all(), "dual feasibility"
    return weights, [multipliers[binding.index(g)].item() if g in binding else 0.0 for g in constraints]


def trained(constraints):
    weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    loss = AugmentedLagrangian(WeightedBCELoss(), constraints, mu=1.0)
    optimizer = torch.optim.SGD([weights], lr=0.3)
    for _ in range(1000):
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
def test_training_reaches_the_solution_and_its_multipliers(constraints, active):
    expected_weights, expected_multipliers = exact_solution(constraints, active)
    weights, multipliers = trained(constraints)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-4)
    assert multipliers == pytest.approx(expected_multipliers, abs=1e-4)
    for g, multiplier, is_active in zip(constraints, multipliers, active, strict=True):
        assert abs(g(X @ weights, Y).item()) < 1e-4 if is_active else g(X @ weights, Y).item() < 0
        assert multiplier > 0.05 if is_active else multiplier == 0.0


class _Distance(torch.nn.Module):
    def forward(self, variables, target):
        return ((variables - target) ** 2).sum()


TARGET = torch.tensor([0.9, -0.4, 0.7, 0.1, 0.5], dtype=torch.float64)
UPPER = torch.tensor([0.5, 0.6, 0.3, 0.4, 0.2], dtype=torch.float64)


def test_five_variables_under_five_bounds_and_an_equality_have_the_solution_of_another_solver():
    """Cooper's problems: the variables are the outputs, each has a bound, and their sum is 1."""
    variables = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    bounds = FunctionConstraint(lambda x, target: x - UPPER, size=5)
    total = FunctionConstraint(lambda x, target: x.sum() - 1, equality=True)
    loss = AugmentedLagrangian(_Distance(), [bounds, total], mu=1.0)
    optimizer = torch.optim.SGD([variables], lr=0.1)
    for _ in range(600):
        optimizer.zero_grad()
        loss(variables, TARGET).backward()
        optimizer.step()
        loss.update()
    rest = {"type": "eq", "fun": lambda x: x.sum() - 1}
    solved = minimize(
        lambda x: ((x - TARGET.numpy()) ** 2).sum(), [0.2] * 5, bounds=[(None, u) for u in UPPER], constraints=rest
    )
    assert variables.tolist() == pytest.approx(solved.x.tolist(), abs=1e-4)
    assert bool((bounds.multiplier >= 0).all())
    assert total.multiplier.item() < 0  # the sum would be smaller without it


def two_values(logits, target):
    return torch.stack([logits.mean(), logits.abs().mean() - 1])


def test_a_batch_with_as_many_rows_as_values_is_taken_once_the_size_is_known():
    loss = AugmentedLagrangian(WeightedBCELoss(), two_values)
    loss(torch.ones(5), torch.ones(5))
    loss(torch.ones(2), torch.ones(2))  # the short last batch of an epoch
    with pytest.raises(ValueError, match=r"one number per sample.*FunctionConstraint\(two_values, size=2\)"):
        AugmentedLagrangian(WeightedBCELoss(), two_values)(torch.ones(2), torch.ones(2))
    sized = FunctionConstraint(two_values, size=2)
    AugmentedLagrangian(WeightedBCELoss(), sized)(torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match="returns 2 values, and size is 3"):
        FunctionConstraint(two_values, size=3)(torch.ones(5), torch.ones(5), torch.tensor(1.0))
    with pytest.raises(ValueError, match="size is the number of values"):
        FunctionConstraint(two_values, size=0)


def test_a_function_returns_as_many_values_for_every_batch():
    loss = AugmentedLagrangian(WeightedBCELoss(), lambda logits, target: logits - 1)
    loss(torch.ones(1), torch.ones(1))  # one row: one number per sample cannot be told from one constraint
    with pytest.raises(ValueError, match=r"shape \(4,\) for 4 rows, and returned \(1,\) before"):
        loss(torch.ones(4), torch.ones(4))


@pytest.mark.parametrize("function", ["recall >= 0.9", 0.5, torch.nn.Linear])
def test_a_function_constraint_needs_a_function(function):
    with pytest.raises(TypeError, match="needs a function"):
        FunctionConstraint(function)
