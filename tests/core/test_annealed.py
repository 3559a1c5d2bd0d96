"""Annealed: a mixture whose share lives in a buffer."""

import copy

import pytest
import torch

from metricfit import Counts, MetricLoss, steps

P = torch.linspace(0, 1, 101, dtype=torch.float64)


def build():
    return steps.Annealed(steps.Identity(), steps.Sigmoid(k=50))


@pytest.mark.parametrize(("fraction", "end"), [(0.0, steps.Identity()), (1.0, steps.Sigmoid(k=50))])
def test_ends_are_the_two_steps(naive, fraction, end):
    step = build()
    step.advance(fraction)
    torch.testing.assert_close(step(P, 0.4), naive.step(end, P, 0.4), rtol=1e-12, atol=1e-14)


def test_starts_at_the_start(naive):
    assert torch.equal(build()(P, 0.4), P)


def test_counts_are_those_of_the_mixture(batch, naive):
    given, step = batch(30), build()
    step.advance(0.7)
    counts = Counts.soft(given.logits, given.target, step=step, weight=given.weight)
    expected = naive.counts(given.logits, given.target, given.weight, step, 0.5)
    torch.testing.assert_close(torch.cat(tuple(counts)), expected, rtol=1e-12, atol=1e-12)


def test_state_dict_carries_the_share_and_the_value(batch):
    given, trained = batch(20), MetricLoss("f1", step=build())
    trained.step.advance(0.625)
    fresh = MetricLoss("f1", step=build())
    before = fresh(given.logits, given.target)
    fresh.load_state_dict(trained.state_dict())
    assert fresh.step.a == 0.625
    assert torch.equal(fresh(given.logits, given.target), trained(given.logits, given.target))
    assert not torch.equal(before, fresh(given.logits, given.target))


def test_a_deep_copy_keeps_the_share_and_is_independent():
    step = build()
    step.advance(0.25)
    twin = copy.deepcopy(step)
    step.advance(0.75)
    assert (twin.a, step.a) == (0.25, 0.75)


def test_the_share_follows_the_module_to_a_device_and_keeps_its_value():
    step = build()
    step.advance(0.25)
    assert step.to(torch.float64).a.dtype == torch.float64
    assert step.a == 0.25


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_fraction_outside_0_to_1_is_refused(fraction):
    with pytest.raises(ValueError, match="from 0 to 1"):
        build().advance(fraction)


def test_steps_nest(naive):
    inner = build()
    inner.advance(0.5)
    outer = steps.Annealed(inner, steps.Linear())
    outer.advance(0.25)
    expected = 0.75 * (0.5 * P + 0.5 * naive.step(steps.Sigmoid(k=50), P, 0.4)) + 0.25 * naive.step(
        steps.Linear(), P, 0.4
    )
    torch.testing.assert_close(outer(P, 0.4), expected, rtol=1e-12, atol=1e-14)
