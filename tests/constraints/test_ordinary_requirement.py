"""A requirement on an ordinary batch has the term, gradient and recorded counts that the plain path gives."""

import pytest
import torch

from metricfit.constraints import RequirementConstraint
from metricfit.core import batch_counts
from metricfit.metrics.requirements import parse_requirement

REQUIREMENTS = ["recall >= 0.9", "precision >= 0.8", "fpr <= 0.05", "mcc >= 0.5", "selection_rate == 0.2", "f1 >= 0.7"]


def run(requirement, settings, logits, target, weight):
    """Return the terms and gradients of three batches, the counts recorded and the multipliers after an update."""
    constraint = RequirementConstraint(requirement, **settings)
    penalty, found = torch.tensor(0.7, dtype=torch.float64), []
    for part in range(3):
        x = (logits + part / 4).requires_grad_()
        term = constraint(x, target, penalty, weight=weight)
        found += [term.detach(), torch.autograd.grad(term, x)[0]]
        if part == 1:
            found.append(constraint.seen.clone())
            constraint.update(penalty)
            found.append(constraint.multiplier.clone())
    return found


@pytest.mark.parametrize("requirement", REQUIREMENTS)
@pytest.mark.parametrize("shape", [(40,), (40, 3)], ids=["binary", "multilabel"])
def test_the_ordinary_path_is_the_plain_one(requirement, shape, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    target = (torch.rand(shape, generator=generator) < 0.4).long()
    weight = torch.rand(shape, generator=generator, dtype=torch.float64)
    for settings in ({}, {"threshold": 0.3}, {"average": "macro"}):
        settings = settings if shape == (40,) else {"task": "multilabel", **settings}
        for w in (None, weight):
            ordinary = run(requirement, settings, logits, target, w)
            with monkeypatch.context() as patch:
                patch.setattr(batch_counts, "_is_plain", lambda *tensors: False)
                plain = run(requirement, settings, logits, target, w)
            for given, expected in zip(ordinary, plain, strict=True):
                torch.testing.assert_close(given, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_dual_numbers_evaluate_the_term(requirement, monkeypatch):
    x, y, penalty = torch.randn(50, generator=torch.Generator().manual_seed(0)), torch.ones(50), torch.tensor(0.7)
    constraint, results, compute = RequirementConstraint(requirement), [], batch_counts.value_and_slopes
    constraint(x, y, penalty)  # makes the multiplier
    monkeypatch.setattr(batch_counts, "value_and_slopes", lambda *given: results.append(compute(*given)) or results[-1])
    constraint(x.requires_grad_(), y, penalty).backward()
    assert None not in results
    assert len(results) == 1


def test_a_requirement_that_takes_the_place_of_another():
    x, y, penalty = torch.randn(50, generator=torch.Generator().manual_seed(0)), torch.ones(50), torch.tensor(0.7)
    constraint = RequirementConstraint("recall >= 0.5")
    for bound in torch.linspace(0.55, 0.95, 20).tolist():
        constraint.requirement = parse_requirement(f"recall >= {bound}")
        fresh = RequirementConstraint(f"recall >= {bound}")
        torch.testing.assert_close(constraint(x, y, penalty), fresh(x, y, penalty))


def test_the_multiplier_can_have_a_gradient_after_it_had_none():
    x, y, penalty = torch.tensor([-2.0, 1.0, 0.5]), torch.ones(3), torch.tensor(0.7)
    constraint = RequirementConstraint("recall >= 0.9")
    for _ in range(2):
        constraint(x, y, penalty)
    multiplier = torch.full((1,), 0.4, requires_grad=True)
    constraint.multiplier = multiplier
    (given,) = torch.autograd.grad(constraint(x, y, penalty), multiplier)
    constraint.multiplier = multiplier.detach() + 1e-3
    above = constraint(x, y, penalty)
    constraint.multiplier = multiplier.detach() - 1e-3
    torch.testing.assert_close(given.squeeze(), (above - constraint(x, y, penalty)) / 2e-3, rtol=1e-3, atol=0.0)


def test_second_derivatives_are_taken_at_the_multiplier_of_the_forward_pass():
    x = torch.tensor([-2.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
    y, penalty = torch.ones(3), torch.tensor(0.7, dtype=torch.float64)
    constraint = RequirementConstraint("recall >= 0.9")
    for _ in range(2):
        term = constraint(x, y, penalty)
    (before,) = torch.autograd.grad(term, x, retain_graph=True)
    constraint.update(penalty)
    (after,) = torch.autograd.grad(term, x, create_graph=True)
    torch.testing.assert_close(after, before)
