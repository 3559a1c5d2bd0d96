"""Mix: a weighted sum that passes weights to those that take them."""

import math

import pytest
import torch
from torch import nn

from metricfit import MetricLoss, RunningCounts
from metricfit.losses import FocalLoss, Mix, WeightedBCELoss

LOGITS = torch.tensor([0.5, -1.0, 2.0, -0.3], dtype=torch.float64)
TARGET = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
WEIGHT = torch.tensor([1.0, 2.0, 0.0, 3.0], dtype=torch.float64)


def test_it_is_the_weighted_sum_in_value_and_gradient():
    logits = LOGITS.clone().requires_grad_()
    f1, bce = MetricLoss("f1"), nn.BCEWithLogitsLoss()
    mixed = Mix((bce, 1.0), (f1, 0.5))(logits, TARGET)
    expected = bce(logits, TARGET) + 0.5 * f1(logits, TARGET)
    torch.testing.assert_close(mixed, expected)
    (ours,), (theirs,) = torch.autograd.grad(mixed, logits), torch.autograd.grad(expected, logits)
    torch.testing.assert_close(ours, theirs)


def test_one_member_is_itself_scaled():
    assert Mix((FocalLoss(2.0), 3))(LOGITS, TARGET) == 3 * FocalLoss(2.0)(LOGITS, TARGET)
    assert Mix((FocalLoss(2.0), -1.0))(LOGITS, TARGET) == -FocalLoss(2.0)(LOGITS, TARGET)


def test_weight_is_passed_only_to_members_that_accept_it():
    mixed = Mix((nn.BCEWithLogitsLoss(), 1.0), (FocalLoss(2.0), 0.25))(LOGITS, TARGET, WEIGHT)
    expected = nn.BCEWithLogitsLoss()(LOGITS, TARGET) + 0.25 * FocalLoss(2.0)(LOGITS, TARGET, WEIGHT)
    torch.testing.assert_close(mixed, expected)
    assert Mix((FocalLoss(2.0), 1.0))(LOGITS, TARGET, weight=WEIGHT) != FocalLoss(2.0)(LOGITS, TARGET)


def test_weight_that_no_member_accepts_is_refused_with_their_names():
    mix = Mix((nn.BCEWithLogitsLoss(), 1.0), (nn.SoftMarginLoss(), 1.0))
    with pytest.raises(ValueError, match="no member of the Mix accepts it: BCEWithLogitsLoss, SoftMarginLoss"):
        mix(LOGITS, TARGET, WEIGHT)


def test_a_mix_in_a_mix_passes_weight_on():
    inner = Mix((WeightedBCELoss(), 1.0), (nn.BCEWithLogitsLoss(), 1.0))
    mixed = Mix((inner, 0.5), (MetricLoss("f1"), 1.0))(LOGITS, TARGET, WEIGHT)
    expected = 0.5 * inner(LOGITS, TARGET, WEIGHT) + MetricLoss("f1")(LOGITS, TARGET, WEIGHT)
    torch.testing.assert_close(mixed, expected)


def test_an_inner_mix_that_accepts_no_weight_gets_none():
    inner = Mix((nn.BCEWithLogitsLoss(), 1.0))
    mixed = Mix((inner, 1.0), (MetricLoss("f1"), 1.0))(LOGITS, TARGET, WEIGHT)
    torch.testing.assert_close(mixed, inner(LOGITS, TARGET) + MetricLoss("f1")(LOGITS, TARGET, WEIGHT))


def test_its_state_is_that_of_its_members():
    def make():
        return Mix(
            (nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0)), 1.0),
            (MetricLoss("f1", memory=RunningCounts(0.5)), 1.0),
        )

    mix, fresh = make(), make()
    mix(LOGITS, TARGET)
    assert set(mix.state_dict()) == {"losses.0.pos_weight", "losses.1.memory.total"}
    fresh.load_state_dict(mix.state_dict())
    assert fresh(-LOGITS, TARGET) == mix(-LOGITS, TARGET)


def test_eval_reaches_the_members():
    mix = Mix((MetricLoss("f1", memory=RunningCounts(0.5)), 1.0)).eval()
    mix(LOGITS, TARGET)
    assert "losses.0.memory.total" not in mix.state_dict()


@pytest.mark.parametrize(
    "member",
    [MetricLoss("f1"), (MetricLoss("f1"),), ("f1", 1.0), (lambda x, y: x, 1.0), (MetricLoss("f1"), 1.0, 2.0), [1, 2]],
    ids=["bare", "single", "name", "function", "triple", "list"],
)
def test_members_that_are_not_pairs_are_refused(member):
    with pytest.raises(
        TypeError, match=r"the members of a Mix are \(loss, weight\) pairs, and each loss is a module; got"
    ):
        Mix(member)


@pytest.mark.parametrize("share", [math.nan, math.inf, "1", None, True, torch.tensor(1.0)])
def test_a_weight_that_is_not_a_finite_number_is_refused(share):
    with pytest.raises(ValueError, match="the weight of MetricLoss in a Mix must be a finite number, got"):
        Mix((MetricLoss("f1"), share))


def test_no_members_are_refused():
    with pytest.raises(ValueError, match=r"Mix needs at least one \(loss, weight\) pair"):
        Mix()


def test_it_shows_its_shares():
    assert "weights=(1.0, 0.5)" in repr(Mix((WeightedBCELoss(), 1), (MetricLoss("f1"), 0.5)))


def test_all_members_ignore_one_label():
    with pytest.raises(ValueError, match="ignores 255, MetricLoss ignores None"):
        Mix((nn.CrossEntropyLoss(ignore_index=255), 1.0), (MetricLoss("f1"), 0.5))
    with pytest.raises(ValueError, match="ignores 255, MetricLoss ignores None"):  # also of one class
        Mix((MetricLoss("f1", ignore_index=255), 1.0), (MetricLoss("recall"), 0.5))
    with pytest.raises(ValueError, match="ignores 255, MetricLoss ignores 0"):
        Mix((Mix((nn.CrossEntropyLoss(ignore_index=255), 1.0)), 1.0), (MetricLoss("f1", ignore_index=0), 0.5))
    mix = Mix((nn.CrossEntropyLoss(ignore_index=255), 1.0), (MetricLoss("f1", ignore_index=255), 0.5))
    logits, target = torch.randn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    target[:, 0] = 255
    torch.testing.assert_close(mix(logits, target), mix(logits[:, :, 1:], target[:, 1:]))
    Mix((nn.CrossEntropyLoss(), 1.0), (MetricLoss("f1"), 0.5))
