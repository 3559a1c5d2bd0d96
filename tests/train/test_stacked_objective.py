"""A stacked objective equals one copy of the loss per member: losses, state, and where the state is kept."""

import copy

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, RankingConstraint, RunningCounts, losses, steps
from metricfit.train.engine.stacked_objective import StackedObjective, copy_with_state, ignores_zero_weights
from metricfit.train.engine.stacked_tensors import StackedBatch, pad_positions

SAMPLES, LENGTHS = 40, (20, 17, 20)
CPU = torch.device("cpu")


def constrained():
    requirements = ["recall >= 0.9", RankingConstraint(size=SAMPLES, normalize=True)]
    return AugmentedLagrangian(MetricLoss("f1", memory=RunningCounts()), requirements, mu=0.5, rho=2.0)


def annealed():
    return MetricLoss("f1", step=steps.Annealed(steps.Linear(0.1), steps.Sigmoid(k=20)), memory=RunningCounts())


LOSSES = {
    "f1": lambda: MetricLoss("f1"),
    "mix": lambda: losses.Mix((losses.WeightedBCELoss(), 1.0), (annealed(), 0.5)),
    "constrained": constrained,
    "torchs_bce": nn.BCEWithLogitsLoss,
    "a_mix_with_torchs_bce": lambda: losses.Mix((nn.BCEWithLogitsLoss(), 1.0), (annealed(), 0.5)),
    "a_function_constraint": lambda: AugmentedLagrangian(annealed(), lambda z, y: z.abs().mean() - 0.5, mu=2.0),
}


def batches(lengths=LENGTHS, steps=3):
    """Yield each member's logits, labels and sample numbers, and the same stacked and padded."""
    generator = torch.Generator().manual_seed(len(lengths))
    for _ in range(steps):
        index, _ = pad_positions([torch.randperm(SAMPLES, generator=generator)[:length] for length in lengths])
        logits = 3 * torch.randn(index.shape, generator=generator, dtype=torch.float64)
        y = (torch.rand(index.shape, generator=generator) < 0.4).long()
        member_batches = [
            [item[number, :length] for item in (logits, y, index)] for number, length in enumerate(lengths)
        ]
        yield member_batches, logits, StackedBatch(None, y, None, index, lengths=tuple(lengths))


class Copies:
    """The twin: a copy of the loss for each member, called one after the other."""

    def __init__(self, loss, members):
        self.losses = [copy.deepcopy(loss) for _ in range(members)]

    def __call__(self, member_batches):
        return torch.stack([self.one(loss, *batch) for loss, batch in zip(self.losses, member_batches, strict=True)])

    def one(self, loss, logits, y, index):
        more = {"index": index} if isinstance(loss, AugmentedLagrangian) else {}
        return loss(logits, y.to(logits.dtype), **more)

    def end_epoch(self, values):
        for loss, value in zip(self.losses, values, strict=True):
            for name, args in (("update", ()), ("observe", (value,))):
                getattr(loss, name, lambda *_: None)(*args)
            for module in loss.modules():
                if isinstance(module, steps.Annealed):
                    module.advance(0.5)


def end_epoch(objective, values):
    objective.update()
    objective.observe(values)
    objective.anneal(0.5)


def assert_equal(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("lengths", [LENGTHS, (20, 20, 20)], ids=["unequal", "equal"])
def test_losses_and_what_is_learned_are_those_of_a_copy_each(make, lengths):
    objective, twin = StackedObjective(make(), CPU), Copies(make(), len(lengths))
    for epoch in range(3):
        if epoch == 2:  # the member in the middle has stopped
            lengths = lengths[::2]
            objective.keep(torch.tensor([0, 2]))
            del twin.losses[1]
        for member_batches, logits, batch in batches(lengths):
            assert_equal(objective(logits, batch), twin(member_batches))
        values = [[0.5, 0.6, 0.7], [0.6, 0.5, 0.8], [0.4, 0.9]][epoch]
        end_epoch(objective, values)
        twin.end_epoch(values)
        for row, loss in enumerate(twin.losses):
            assert_equal(copy_with_state(make(), objective.copy_state(row)).state_dict(), loss.state_dict())


@pytest.mark.parametrize("make", [constrained, LOSSES["mix"], LOSSES["a_function_constraint"]])
def test_the_state_stays_where_it_is_as_a_captured_graph_needs_it_to(make):
    objective = StackedObjective(make(), CPU)
    (_, logits, batch), *rest = batches()
    objective(logits, batch)
    placed, before = dict(objective.state), {name: tensor.clone() for name, tensor in objective.state.items()}
    for _, logits, batch in rest:
        objective(logits, batch)
    objective.comparable(logits, batch)
    for values in ([0.5, 0.6, 0.7], [0.4, 0.7, 0.6]):
        end_epoch(objective, values)
    assert objective.state.keys() == placed.keys()
    assert all(tensor is placed[name] for name, tensor in objective.state.items())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in placed.items())


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_a_state_that_was_kept_goes_on(make):
    objective, resumed = StackedObjective(make(), CPU), StackedObjective(make(), CPU)
    first, second, third = batches()
    for _, logits, batch in (first, second):
        objective(logits, batch)
    resumed.load(copy.deepcopy(objective.state))
    assert torch.equal(resumed(*third[1:]), objective(*third[1:]))
    assert all(torch.equal(tensor, objective.state[name]) for name, tensor in resumed.state.items())


def test_before_its_first_batch_it_has_learned_nothing():
    objective = StackedObjective(constrained(), CPU)
    end_epoch(objective, [0.5])
    assert objective.state is None
    assert objective.copy_state(0) is None
    objective.load(None)
    assert objective.state is None


def test_the_loss_given_is_left_as_it_was_and_evaluation_teaches_nothing():
    loss = constrained().eval()
    before = copy.deepcopy(loss.state_dict())
    objective = StackedObjective(loss, CPU)
    (_, logits, batch), (_, others, later), _ = batches()
    objective(logits, batch)
    learned = copy.deepcopy(objective.state)
    objective.comparable(others, later)
    assert objective.loss.training
    assert not loss.training
    assert all(torch.equal(tensor, learned[name]) for name, tensor in objective.state.items())
    assert loss.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items())


@pytest.mark.parametrize("name", LOSSES)
def test_which_losses_can_be_told_what_fills_up_a_batch(name):
    weighs = name in ("f1", "mix", "constrained")
    assert ignores_zero_weights(LOSSES[name]()) is weighs
    (_, _, batch), *_ = batches()
    masked = StackedObjective(LOSSES[name](), CPU).weigh_padding(batch)
    assert masked.equal_lengths is weighs
    if weighs:
        assert masked.weight.sum(1).tolist() == list(LENGTHS)
    else:
        assert masked is batch
