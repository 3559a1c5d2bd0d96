"""One protocol for the optional arguments of losses: weight, index and group."""

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss
from metricfit.constraints import RequirementConstraint
from metricfit.losses import Mix, WeightedBCELoss
from metricfit.losses.calling import LossArguments, accepted_arguments, call_loss

LOGITS, TARGET = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1.0, 0.0, 1.0])
WEIGHT, INDEX, GROUP = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4, 5, 6]), torch.tensor([0, 1, 0])


class Recorder(nn.Module):
    """A loss that records what it was called with."""

    def __init__(self):
        super().__init__()
        self.seen, self.updates, self.observed = {}, 0, []

    def forward(self, logits, target, *, weight=None, index=None, group=None):
        self.seen = {"weight": weight, "index": index, "group": group}
        return logits.sum()

    def update(self):
        self.updates += 1

    def observe(self, value):
        self.observed.append(value)


class KeywordLoss(nn.Module):
    def forward(self, logits, target, **kwargs):
        return logits.sum() * len(kwargs)


def small(logits, target):
    return logits.mean() - 1


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (nn.BCEWithLogitsLoss(), (False, False, False)),
        (MetricLoss("f1"), (True, False, False)),
        (Recorder(), (True, True, True)),
        (KeywordLoss(), (True, False, False)),
        (Mix((nn.BCEWithLogitsLoss(), 1.0)), (False, False, False)),
        (Mix((nn.BCEWithLogitsLoss(), 1.0), (Mix((Recorder(), 1.0)), 1.0)), (True, True, True)),
        (AugmentedLagrangian(nn.BCEWithLogitsLoss(), small), (False, True, False)),
        (AugmentedLagrangian(nn.BCEWithLogitsLoss(), "recall >= 0.9"), (True, True, False)),
        (AugmentedLagrangian(nn.MSELoss(), RequirementConstraint("recall >= 0.9", groups=2)), (True, True, True)),
        (AugmentedLagrangian(Recorder(), small), (True, True, True)),
        (torch.compile(MetricLoss("f1"), backend="eager"), (True, False, False)),
    ],
)
def test_accepted_arguments_are_read_from_the_loss(loss, expected):
    assert accepted_arguments(loss) == LossArguments(*expected)


def test_only_accepted_arguments_that_are_not_none_are_passed():
    assert call_loss(KeywordLoss(), LOGITS, TARGET, LossArguments(True, False, False), index=INDEX) == 0
    recorder = Recorder()
    call_loss(recorder, LOGITS, TARGET, LossArguments(True, False, True), weight=WEIGHT, index=INDEX, group=GROUP)
    assert recorder.seen == {"weight": WEIGHT, "index": None, "group": GROUP}


def test_a_mix_passes_everything_to_the_members_that_accept_it():
    recorder = Recorder()
    mix = Mix((nn.BCEWithLogitsLoss(), 1.0), (Mix((recorder, 1.0)), 0.5))
    mix(LOGITS, TARGET, WEIGHT, index=INDEX, group=GROUP)
    assert recorder.seen == {"weight": WEIGHT, "index": INDEX, "group": GROUP}
    mix.update()
    mix.observe(0.5)
    assert (recorder.updates, recorder.observed) == (1, [0.5])


def test_a_group_that_no_member_accepts_is_refused():
    with pytest.raises(ValueError, match="group was passed, but no member of the Mix accepts it: WeightedBCELoss"):
        Mix((WeightedBCELoss(), 1.0))(LOGITS, TARGET, group=GROUP)


def test_the_objective_of_a_lagrangian_gets_index_and_group():
    recorder = Recorder()
    AugmentedLagrangian(recorder, small)(LOGITS, TARGET, index=INDEX, group=GROUP)
    assert recorder.seen == {"weight": None, "index": INDEX, "group": GROUP}


@pytest.mark.parametrize("wrap", [lambda loss: loss, lambda loss: nn.Sequential(loss)], ids=["bare", "nested"])
def test_a_lagrangian_inside_another_loss_is_refused(wrap):
    """Nobody would update its multipliers."""
    inner = wrap(AugmentedLagrangian(WeightedBCELoss(), "recall >= 0.9"))
    with pytest.raises(TypeError, match=r"Mix cannot contain AugmentedLagrangian.*AugmentedLagrangian\(Mix\("):
        Mix((inner, 1.0), (MetricLoss("f1"), 0.5))
    with pytest.raises(TypeError, match=r"cannot contain AugmentedLagrangian.*all constraints to one"):
        AugmentedLagrangian(inner, "precision >= 0.5")
