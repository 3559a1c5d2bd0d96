"""Multipliers that move on held-out rows, or within a bound, against naive twins."""

import copy

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, Counts, RankingConstraint, metrics
from metricfit.constraints import Constraint, RequirementConstraint


def rows(seed, n=80):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, generator=generator, dtype=torch.float64)
    return logits, torch.randint(2, (n,), generator=generator), torch.randint(2, (n,), generator=generator)


def held_out_loss(requirement="recall >= 0.95", **settings):
    settings = {"mu": 0.5, "update_on": "held_out", **settings}
    return AugmentedLagrangian(nn.BCEWithLogitsLoss(), requirement, **settings)


def call(loss, seed):
    logits, target, _ = rows(seed)
    return loss(logits, target.double())


def test_multipliers_follow_the_held_out_counts_alone():
    loss, multiplier = held_out_loss(), torch.zeros(1, dtype=torch.float64)
    for seed in range(4):
        call(loss, seed)
        parts = [rows(100 + seed), rows(200 + seed)]
        for logits, target, _ in parts:
            loss.observe_held_out(logits, target)
        loss.update()
        together = Counts.hard(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]))
        multiplier = (multiplier + 0.5 * (0.95 - metrics.recall(together))).clamp(min=0)
        torch.testing.assert_close(loss.multipliers["recall >= 0.95"], multiplier)
    assert multiplier.item() > 0.1


def test_groups_weights_and_functions_of_held_out_rows():
    def mean_logit(logits, target):
        return logits.mean() + 1.0

    loss = held_out_loss([RequirementConstraint("recall >= 0.95", groups=2), mean_logit])
    logits, target, group = rows(0)
    weight = torch.linspace(0.1, 2.0, len(logits), dtype=torch.float64)
    loss(logits, target.double(), group=group)
    other, other_target, other_group = rows(1)
    loss.observe_held_out(other, other_target, weight, group=other_group)
    loss.update()
    per_group, of_function = loss.multipliers.values()
    counts = Counts.hard(other, other_target, weight=weight, group=other_group, groups=2)
    torch.testing.assert_close(per_group, (0.5 * (0.95 - metrics.recall(counts))).clamp(min=0))
    torch.testing.assert_close(of_function, 0.5 * (other.mean() + 1.0))


def test_forgetting_the_held_out_rows_is_an_error():
    loss = held_out_loss()
    loss.update()  # before the first batch there is nothing to move
    call(loss, 0)
    with pytest.raises(RuntimeError, match=r"call observe_held_out\(logits, target\) before update"):
        loss.update()
    plain = held_out_loss(update_on="train")
    with pytest.raises(RuntimeError, match="make it with update_on='held_out'"):
        plain.observe_held_out(*rows(0)[:2])


def test_constraints_that_cannot_be_measured_on_other_rows_are_refused():
    for constraint, message in [
        (RankingConstraint(size=9), "one multiplier per training sample"),
        (RankingConstraint(per="pair"), "has no multipliers"),
        (_OwnConstraint(), "derive _OwnConstraint from constraints.MeasuredConstraint"),
    ]:
        with pytest.raises(TypeError, match=message):
            AugmentedLagrangian(nn.BCEWithLogitsLoss(), constraint, update_on="held_out")


class _OwnConstraint(Constraint):
    multiplier = None

    def term(self, rows, penalty):
        return rows.logits.sum() * 0

    def update(self, penalty):
        pass


def test_wrong_settings_are_refused():
    for settings, error, message in [
        ({"update_on": "validation"}, ValueError, "'train' or 'held_out'"),
        ({"lambda_max": 0.0}, ValueError, "above 0 and finite"),
        ({"lambda_max": float("inf")}, ValueError, "above 0 and finite"),
        ({"mu": "large"}, TypeError, "mu must be a number"),
        ({"lambda_max": True}, TypeError, "lambda_max must be a number"),
    ]:
        with pytest.raises(error, match=message):
            held_out_loss(**settings)


@pytest.mark.parametrize("requirement", ["recall >= 0.95", "recall == 0.95", "recall == 0.05"])
def test_lambda_max_bounds_multipliers_of_either_sign(requirement):
    bounded = held_out_loss(requirement, update_on="train", lambda_max=0.3)
    free = held_out_loss(requirement, update_on="train")
    for seed in range(6):
        for loss in (bounded, free):
            call(loss, seed)
            loss.update()
    (found,), (unbounded,) = bounded.multipliers.values(), free.multipliers.values()
    assert unbounded.abs().item() > 0.3
    assert found.item() == pytest.approx(0.3 * unbounded.sign().item())


def test_a_ranking_constraint_is_bounded_too():
    logits, target, _ = rows(0)
    loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), RankingConstraint(size=80), mu=10.0, lambda_max=0.5)
    for _ in range(3):
        loss(logits, target.double())
        loss.update()
    (multipliers,) = loss.multipliers.values()
    assert multipliers.max().item() == 0.5


def test_bounded_multipliers_of_a_ranking_constraint_are_those_of_a_loop():
    logits, target, _ = rows(0)
    loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), RankingConstraint(1.0, size=80), mu=0.05, lambda_max=4.0)
    expected = torch.zeros(80, dtype=torch.float64)
    for step in range(3):
        moved = logits * (1 + step)
        found = loss(moved, target.double()).item()
        term = 0.0
        positives, negatives = target.nonzero().flatten().tolist(), (target == 0).nonzero().flatten().tolist()
        for j in positives:
            q = sum(max(0.0, 1.0 - (moved[j] - moved[k]).item()) for k in negatives)
            term += 0.05 / 2 * q**2 + expected[j].item() * q
            expected[j] = min(4.0, expected[j].item() + 0.05 * q)
        term /= len(positives) * len(negatives)
        assert found == pytest.approx(nn.BCEWithLogitsLoss()(moved, target.double()).item() + term, rel=1e-5)
        loss.update()
    (multipliers,) = loss.multipliers.values()
    torch.testing.assert_close(multipliers.double(), expected, rtol=1e-5, atol=1e-6)
    assert 0 < (expected == 4.0).sum() < (expected > 0).sum()


@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "moved"])
def test_a_saved_loss_continues_to_the_bit(way):
    def run(loss, seeds):
        for seed in seeds:
            call(loss, seed)
            loss.observe_held_out(*rows(50 + seed)[:2])
            loss.update()
        return loss

    settings = {"lambda_max": 10.0}
    whole = run(held_out_loss(**settings), range(6))
    half = run(held_out_loss(**settings), range(3))
    call(half, 3)
    half.observe_held_out(*rows(53)[:2])  # saved between the held-out rows and the update
    if way == "state_dict":
        continued = held_out_loss(**settings)
        continued.load_state_dict(half.state_dict())
    elif way == "deepcopy":
        continued = copy.deepcopy(half)
    else:
        continued = half.to(torch.float32).to(torch.float64)
    continued.update()
    run(continued, range(4, 6))
    (expected,), (found,) = whole.multipliers.values(), continued.multipliers.values()
    if way == "moved":  # through float32
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(found, expected)
