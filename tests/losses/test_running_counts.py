"""RunningCounts: the recursion by hand, its gradient, and its state."""

import copy

import pytest
import torch

from metricfit import Counts, MetricLoss, RunningCounts

DECAY = 0.75


def batches(n=5, size=8):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, size, generator=generator, dtype=torch.float64)
    target = (torch.rand(n, size, generator=generator) < 0.3).long()
    target[0, 0], target[2] = 1, 0  # the third batch has no positives
    return list(zip(logits, target, strict=True))


def f1(table):
    return 2 * table[0] / (2 * table[0] + table[1] + table[2])


def table_of(logits, target):
    return torch.stack(tuple(Counts.soft(logits, target)))


def test_five_batches_follow_the_recursion_in_value_gradient_and_state():
    loss, past = MetricLoss("f1", memory=RunningCounts(DECAY)), torch.zeros(4, 1, dtype=torch.float64)
    for given, target in batches():
        ours, twin = given.clone().requires_grad_(), given.clone().requires_grad_()
        value = loss(ours, target)
        total = DECAY * past + table_of(twin, target)  # past is a constant: no gradient flows into it
        expected = (1 - f1(total)).squeeze()
        torch.testing.assert_close(value, expected)
        value.backward()
        expected.backward()
        torch.testing.assert_close(ours.grad, twin.grad)
        past = total.detach()
        torch.testing.assert_close(loss.memory.total, past)
        assert not loss.memory.total.requires_grad


def test_earlier_batches_get_no_second_gradient():
    loss = MetricLoss("f1", memory=RunningCounts(DECAY))
    (first, of_first), (second, of_second) = batches()[:2]
    first, second = first.clone().requires_grad_(), second.clone().requires_grad_()
    loss(first, of_first)
    loss(second, of_second).backward()
    assert first.grad is None
    assert second.grad.abs().sum() > 0


def test_the_memory_of_a_copy_equals_its_steady_state():
    memory, counts = RunningCounts(0.5), Counts(tp=1, fp=2, fn=3, tn=4).to("cpu")
    for _ in range(60):
        result = memory(counts)
    assert [float(cell) for cell in result] == pytest.approx([2, 4, 6, 8])


def test_a_batch_without_positives_still_has_a_gradient():
    loss = MetricLoss("f1", memory=RunningCounts())
    logits, target = batches()[0]
    loss(logits, target)
    negatives = logits.clone().requires_grad_()
    loss(negatives, torch.zeros(8)).backward()
    assert (negatives.grad > 0).all()


@pytest.mark.parametrize("quiet", ["eval", "no_grad", "inference"])
def test_evaluating_neither_uses_nor_changes_it(quiet):
    loss = MetricLoss("f1", memory=RunningCounts(DECAY))
    logits, target = batches()[0]
    loss(logits, target)
    before = loss.memory.total.clone()
    other, of_other = batches()[1]
    mode = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(quiet, torch.enable_grad)
    if quiet == "eval":
        loss.eval()
    with mode():
        value = loss(other, of_other)
    torch.testing.assert_close(value, MetricLoss("f1")(other, of_other))
    assert torch.equal(loss.memory.total, before)


def test_it_has_no_state_before_its_first_batch_even_if_that_was_an_evaluation():
    loss = MetricLoss("f1", memory=RunningCounts())
    with torch.no_grad():
        loss(*batches()[0])
    assert loss.state_dict() == {}


def test_a_new_memory_loads_the_state_strictly_and_continues_bit_for_bit():
    loss, fresh = (MetricLoss("f1", memory=RunningCounts(DECAY)) for _ in range(2))
    for given in batches()[:3]:
        loss(*given)
    state = loss.state_dict()
    assert set(state) == {"memory.total"}
    assert fresh.load_state_dict(state, strict=True) == ([], [])
    for given in batches()[3:]:
        assert fresh(*given) == loss(*given)
    assert torch.equal(fresh.memory.total, loss.memory.total)


def test_loading_copies_and_does_not_share():
    loss, fresh = (MetricLoss("f1", memory=RunningCounts(DECAY)) for _ in range(2))
    loss(*batches()[0])
    fresh.load_state_dict(loss.state_dict())
    before = loss.memory.total.clone()
    fresh(*batches()[1])
    assert torch.equal(loss.memory.total, before)


def test_a_used_memory_loads_a_state_of_another_shape_or_without_counts():
    loss = MetricLoss("f1", memory=RunningCounts(DECAY))
    loss(*batches()[0])
    several = MetricLoss("f1", threshold=[0.3, 0.6], memory=RunningCounts(DECAY))
    several(*batches()[0])
    loss.load_state_dict(several.state_dict())
    assert loss.memory.total.shape == (4, 2, 1)
    loss.load_state_dict(MetricLoss("f1", memory=RunningCounts(DECAY)).state_dict())
    assert loss.memory.total is None


def test_an_unknown_key_is_still_refused():
    with pytest.raises(RuntimeError, match="Unexpected key"):
        RunningCounts().load_state_dict({"total": torch.zeros(4, 1), "more": torch.zeros(1)})


def test_to_moves_it():
    loss = MetricLoss("f1", memory=RunningCounts(DECAY))
    loss(*batches()[0])
    before = loss.memory.total.clone()
    loss.to(torch.float32)
    assert loss.memory.total.dtype == torch.float32
    value = loss(*batches()[1])
    assert value.dtype == torch.float64
    expected = 1 - f1(DECAY * before + table_of(*batches()[1]))
    torch.testing.assert_close(value, expected.squeeze(), rtol=1e-6, atol=1e-7)
    assert loss.to("meta").memory.total.device.type == "meta"


def test_copies_do_not_share():
    loss = MetricLoss("f1", memory=RunningCounts(DECAY))
    loss(*batches()[0])
    twin = copy.deepcopy(loss)
    assert torch.equal(twin.memory.total, loss.memory.total)
    twin(*batches()[1])
    assert not torch.equal(twin.memory.total, loss.memory.total)


def test_reset_forgets():
    loss = MetricLoss("f1", memory=RunningCounts(DECAY))
    loss(*batches()[0])
    loss.memory.reset()
    assert loss.state_dict() == {}
    torch.testing.assert_close(loss(*batches()[1]), MetricLoss("f1")(*batches()[1]))


def test_one_memory_for_two_shapes_is_refused():
    memory = RunningCounts()
    MetricLoss("f1", memory=memory)(*batches()[0])
    with pytest.raises(
        ValueError, match=r"holds 'total' of shape \(4, 1\), but the batch needs \(4, 2, 1\); call reset"
    ):
        MetricLoss("f1", threshold=[0.3, 0.6], memory=memory)(*batches()[0])


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_a_decay_outside_0_to_1_is_refused(decay):
    with pytest.raises(ValueError, match="RunningCounts needs 0 < decay < 1, got"):
        RunningCounts(decay)


def test_a_memory_of_another_type_is_refused():
    with pytest.raises(TypeError, match=r"memory must be RunningCounts\(decay=\.\.\.\), got 0\.99"):
        MetricLoss("f1", memory=0.99)


def test_the_default_decay_and_its_repr():
    assert RunningCounts().decay == 0.99
    assert repr(RunningCounts(0.5)) == "RunningCounts(decay=0.5)"


def test_under_functional_call():
    loss = MetricLoss("f1", memory=RunningCounts(DECAY))
    loss(*batches()[0])
    before = loss.memory.total.clone()
    state = {"memory.total": before.clone()}
    value = torch.func.functional_call(loss, state, batches()[1])
    torch.testing.assert_close(value, (1 - f1(DECAY * before + table_of(*batches()[1]))).squeeze())
    assert torch.equal(loss.memory.total, before)  # the module's own state is untouched; the given one moved on
    torch.testing.assert_close(state["memory.total"], DECAY * before + table_of(*batches()[1]))


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # importing torch's own inductor
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_it_goes_through_the_same_values_gradients_and_state(backend):
    eager, compiled = (MetricLoss("f1", memory=RunningCounts(DECAY)) for _ in range(2))
    run = torch.compile(compiled, backend=backend)
    for given, target in batches()[:3]:
        ours, twin = given.float().requires_grad_(), given.float().requires_grad_()
        value, expected = run(ours, target), eager(twin, target)
        torch.testing.assert_close(value, expected)
        value.backward()
        expected.backward()
        torch.testing.assert_close(ours.grad, twin.grad)
        torch.testing.assert_close(compiled.memory.total, eager.memory.total)
