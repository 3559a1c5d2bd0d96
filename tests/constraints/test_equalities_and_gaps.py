"""Equalities and gaps between groups as constraints, against the formulas by hand."""

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, Counts, best_threshold, metrics, parse_requirement
from metricfit.constraints import RequirementConstraint
from metricfit.metrics import Requirement

MU = torch.tensor(0.5, dtype=torch.float64)


def rows(n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, generator=generator, dtype=torch.float64)
    return logits, torch.randint(2, (n,), generator=generator), torch.arange(n) % 2


def test_the_multiplier_of_an_equality_follows_the_formula_and_may_be_negative():
    constraint = RequirementConstraint("recall == 0.3")
    multiplier = torch.zeros(1, dtype=torch.float64)
    for seed in range(4):
        logits, target, _ = rows(seed=seed)
        q = metrics.recall(Counts.soft(logits, target)) - 0.3
        torch.testing.assert_close(constraint(logits, target, MU), (multiplier * q + MU * q**2 / 2).sum())
        constraint.update(MU)
        multiplier = multiplier + MU * (metrics.recall(Counts.hard(logits, target)) - 0.3)
        torch.testing.assert_close(constraint.multiplier, multiplier)
    above, below = RequirementConstraint("recall == 0.01"), RequirementConstraint("recall == 0.99")
    for one in (above, below):
        one(*rows()[:2], MU)
        one.update(MU)
    assert above.multiplier.item() > 0 > below.multiplier.item()


def test_a_group_whose_alarms_are_all_wrong_violates_a_bound_on_precision():
    """It has no positives; a third group has neither positives nor alarms, and its precision is 0/0."""
    constraint = RequirementConstraint("precision >= 0.4", groups=3)
    logits, target = torch.tensor([1.0, -1.0, 2.0, 1.0, -1.0, -2.0]).double(), torch.tensor([1, 0, 0, 0, 0, 0])
    group = torch.tensor([0, 0, 1, 1, 2, 2])
    value, violation = constraint.measure(logits, target, group=group)
    assert (value.tolist(), violation.tolist()) == ([1.0, 0.0], [0.0, 0.4])
    constraint(logits, target, MU, group=group)
    constraint.update(MU)
    assert constraint.multiplier.flatten().tolist() == [0.0, pytest.approx(0.2), 0.0]


def test_training_reaches_an_equality_from_both_sides():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 2, generator=generator)
    y = (x[:, 0] + torch.randn(2000, generator=generator) > 0.5).long()
    for bound in (0.4, 0.9):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), metrics.recall.equals(bound), mu=0.1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(400):
            optimizer.zero_grad()
            loss(model(x).squeeze(1), y.float()).backward()
            optimizer.step()
            loss.update()
        recall = metrics.recall(Counts.hard(model(x).squeeze(1).detach(), y)).item()
        assert recall == pytest.approx(bound, abs=0.02)


def test_an_equality_holds_within_its_tolerance():
    counts = Counts(tp=88, fp=1, fn=12, tn=9)
    assert not bool(metrics.recall.equals(0.9).holds(counts))
    assert bool(metrics.recall.equals(0.9, within=0.02).holds(counts))
    assert metrics.recall.equals(0.9).violation(counts).item() == pytest.approx(0.01)
    assert parse_requirement("recall == 0.9") == metrics.recall.equals(0.9)
    assert parse_requirement("recall == 0.9 +- 0.02") == metrics.recall.equals(0.9, within=0.02)
    assert str(metrics.recall.equals(0.9, within=0.02)) == "recall == 0.9 +- 0.02"
    with pytest.raises(ValueError, match="only an equality has a tolerance"):
        Requirement(metrics.recall, ">=", 0.9, 0.1)
    with pytest.raises(ValueError, match="compares with >=, <= or =="):
        Requirement(metrics.recall, "=", 0.9)
    with pytest.raises(TypeError, match="must be a number"):
        metrics.recall.equals(0.9, within="0.1")


def test_a_threshold_meets_an_equality_within_its_tolerance():
    scores, target = torch.arange(20) / 20.0, torch.tensor([0, 1] * 10)
    best = best_threshold(scores, target, "precision", "recall == 0.5")
    assert metrics.recall(Counts.from_labels(scores >= best.threshold, target)).item() == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"no threshold gives recall == 0.55; the nearest recall that is reachable"):
        best_threshold(scores, target, "precision", "recall == 0.55")


def test_a_gap_has_one_multiplier_and_takes_its_groups_from_the_metric():
    logits, target, group = rows()
    loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), metrics.recall.gap(2) <= 0.01, mu=0.5)
    value = loss(logits, target.double(), group=group)
    soft = metrics.recall(Counts.soft(logits, target, group=group, groups=2)).flatten()
    g = (soft[0] - soft[1]).abs() - 0.01
    expected = nn.functional.binary_cross_entropy_with_logits(logits, target.double()) + MU * g.clamp(min=0) ** 2 / 2
    torch.testing.assert_close(value, expected)
    loss.update()
    hard = metrics.recall(Counts.hard(logits, target, group=group, groups=2)).flatten()
    torch.testing.assert_close(
        loss.multipliers["recall.gap(2) <= 0.01"], (MU * ((hard[0] - hard[1]).abs() - 0.01)).clamp(min=0).reshape(1)
    )
    with pytest.raises(ValueError, match="pass group=, one number per row"):
        loss(logits, target.double())
    with pytest.raises(ValueError, match="leave groups=3 out"):
        RequirementConstraint("recall.gap(2) <= 0.1", groups=3)


def test_a_gap_with_one_group_in_the_batch_changes_nothing():
    logits, target, _ = rows()
    constraint = RequirementConstraint("recall.gap(2) <= 0.01")
    constraint(logits, target, MU, group=torch.arange(60) % 2)
    constraint.multiplier.fill_(0.7)
    constraint.update(MU)
    before = constraint.multiplier.clone()
    assert constraint(logits, target, MU, group=torch.zeros(60, dtype=torch.long)).item() == 0.0
    constraint.update(MU)
    assert torch.equal(constraint.multiplier, before)


def test_the_gradient_of_a_gap_and_of_an_equality():
    logits, target, group = rows(30)
    for text in ("recall.gap(2) <= 0.01", "recall == 0.4", "mcc.gap(2) == 0.1"):
        constraint = RequirementConstraint(text).eval()
        constraint(logits, target, MU, group=group)
        constraint.multiplier.fill_(0.3)
        x = logits.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda v, one=constraint: one(v, target, MU, group=group), (x,))
