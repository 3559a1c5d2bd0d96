"""Decisions by expected costs, for metrics of the whole confusion matrix.

A change of one decision moves a metric by its gradient at the confusion matrix. So the best decisions are those of the
lowest expected cost, argmin_j sum_i p_i L_ij, with L the gradient at the matrix of these decisions (Narasimhan et al.,
ICML 2015). Offsets on the logits cannot make such decisions: if grades 1 and 3 are equally probable, the decision of
the best quadratic kappa is often grade 2. L is computed at the decisions of the best offsets and then at its own
decisions, and offsets on minus the expected costs make up for the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.numerics import ROUNDING
from metricfit.decide.offset_search import Found, OffsetProblem, search_offsets
from metricfit.metrics.metric import Metric

#: How often the costs are computed anew at the decisions that were found with them.
TIMES = 2


class FoundCosts(NamedTuple):
    """Costs, or None for offsets on the logits themselves, and the offsets."""

    costs: Tensor | None
    offsets: Tensor


def minus_expected_costs(probabilities: Tensor, costs: Tensor) -> Tensor:
    """Return minus the expected cost of each decision.

    Args:
        probabilities: Class probabilities ``(n, c)``.
        costs: The cost of deciding j for a row of class i in row i, column j.

    Returns:
        Scores ``(n, c)``, of which the largest decides.

    Example:
        >>> minus_expected_costs(torch.tensor([[0.5, 0.0, 0.5]]), torch.tensor([[0.0, 1, 4], [1, 0, 1], [4, 1, 0]]))
        tensor([[-2., -1., -2.]])
    """
    return -(probabilities @ costs.to(probabilities))


def search_costs(problem: OffsetProblem, by_offsets: Found, rounds: int) -> FoundCosts:
    """Find costs and offsets on minus the expected costs that are better than offsets on the logits.

    Args:
        problem: The rows, with calibrated logits, and a metric of the whole confusion matrix.
        by_offsets: The best offsets on the logits.
        rounds: Maximum number of rounds of the search for offsets.

    Returns:
        The costs and the offsets; without costs if the offsets on the logits are as good.
    """
    probabilities = problem.exact.softmax(1)
    best, best_value = FoundCosts(None, by_offsets.offsets), by_offsets.value
    decided = (problem.logits + by_offsets.offsets).argmax(1)
    for _ in range(TIMES):
        costs = _costs_near(problem.metric, problem.total(decided, problem.amounts(decided)))
        if costs is None:
            break
        scores = minus_expected_costs(probabilities, costs)
        found = search_offsets(problem.with_scores(scores), rounds)
        decided = (scores + found.offsets).argmax(1)
        if problem.sign * (found.value - best_value) > ROUNDING:
            best, best_value = FoundCosts(costs, found.offsets), found.value
    return best


def _costs_near(metric: Metric, matrix: Tensor) -> Tensor | None:
    """Return what decisions cost near a confusion matrix, from 0 to 1; None if the metric does not change there.

    What a row of class i costs whatever the decision does not matter, so that the lowest cost of every row is 0.
    """
    at = matrix.detach().clone().requires_grad_()
    with torch.enable_grad():
        value = metric(ConfusionMatrix(at))
        if not value.requires_grad:  # a user's formula that is not differentiable
            return None
        (gradient,) = torch.autograd.grad(value, at)
    costs = gradient if metric.minimize else -gradient
    costs = costs - costs.min(1, keepdim=True).values
    largest = costs.max()
    return costs / largest if bool(largest.isfinite() & (largest > 0)) else None
