"""What must not change a metric of counts: the order of samples, how they are split, how repetition is written."""

import pytest
import torch

from metricfit import Counts, MetricLoss


def value_of(metric, given, step, weight=None, keep=slice(None)):
    weight = weight if weight is None else weight[keep]
    return metric(Counts.soft(given.logits[keep], given.target[keep], step=step, weight=weight))


def test_values_stay_within_the_metrics_bounds(any_metric, any_step, batch):
    low, high = any_metric.bounds
    for seed, scale in enumerate((0.1, 0.3, 1.0, 5.0, 30.0)):
        given = batch(9, seed=seed, soft=seed % 2 == 1)
        given.logits *= scale
        value = value_of(any_metric, given, any_step, given.weight).item()
        assert low - 1e-12 <= value <= high + 1e-12


def test_both_bounds_are_reached_by_the_best_and_the_worst_decisions(any_metric):
    right, wrong = any_metric(Counts(3, 0, 0, 2)).item(), any_metric(Counts(0, 2, 3, 0)).item()
    best, worst = reversed(any_metric.bounds) if not any_metric.minimize else any_metric.bounds
    if any_metric.base_name == "selection_rate":  # it does not look at the labels
        assert [any_metric(Counts(*cells)).item() for cells in ((0, 0, 3, 2), (3, 2, 0, 0))] == [best, worst]
        return
    assert right == best
    if any_metric.base_name in ("cost", "cost_matrix"):
        assert wrong == pytest.approx((1 * 2 + 10 * 3) / 5)
        assert any_metric(Counts(0, 0, 3, 0)).item() == worst
    elif any_metric.base_name in ("kappa", "weighted_kappa"):
        assert wrong < 0  # -1 needs as many positives as negatives
        assert any_metric(Counts(0, 2, 2, 0)).item() == worst
    else:
        assert wrong == worst


def test_order_of_samples_does_not_matter(any_metric, any_step, batch):
    given = batch(50)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    shuffled = value_of(any_metric, given, any_step, given.weight, order)
    torch.testing.assert_close(shuffled, value_of(any_metric, given, any_step, given.weight))


def test_integer_weights_equal_repetition_in_value_and_gradient(any_metric, any_step, batch):
    given = batch(12, seed=2)
    times = torch.arange(12) % 4
    loss = MetricLoss(any_metric, step=any_step)
    weighted, repeated = (given.logits.clone().requires_grad_() for _ in range(2))
    by_weight = loss(weighted, given.target, weight=times)
    by_repetition = loss(repeated.repeat_interleave(times), given.target.repeat_interleave(times))
    torch.testing.assert_close(by_weight, by_repetition)
    by_weight.backward()
    by_repetition.backward()
    torch.testing.assert_close(weighted.grad, repeated.grad)
    assert weighted.grad.abs().sum() > 0


def test_scaling_all_weights_does_not_matter(any_metric, any_step, batch):
    given = batch(20)
    value = value_of(any_metric, given, any_step, given.weight)
    torch.testing.assert_close(value_of(any_metric, given, any_step, 17 * given.weight), value)


def test_counts_of_two_parts_add_up_to_those_of_the_whole(any_metric, any_step, batch):
    given = batch(31)
    first, second = slice(0, 13), slice(13, None)
    parts = [
        Counts.soft(given.logits[part], given.target[part], step=any_step, weight=given.weight[part])
        for part in (first, second)
    ]
    whole = Counts.soft(given.logits, given.target, step=any_step, weight=given.weight)
    for of_sum, of_whole in zip(parts[0] + parts[1], whole, strict=True):
        torch.testing.assert_close(of_sum, of_whole)
    torch.testing.assert_close(any_metric(parts[0] + parts[1]), any_metric(whole))
    assert not torch.allclose(any_metric(parts[0]), any_metric(whole))


def test_ignored_samples_count_for_nothing(any_metric, any_step, batch):
    given = batch(20)
    target = given.target.clone()
    target[4:9] = -100
    kept = target >= 0
    loss = MetricLoss(any_metric, step=any_step, ignore_index=-100)
    logits, alone = given.logits.clone().requires_grad_(), given.logits[kept].clone().requires_grad_()
    value, expected = loss(logits, target), loss(alone, target[kept])
    torch.testing.assert_close(value, expected)
    (grad,), (grad_alone,) = torch.autograd.grad(value, logits), torch.autograd.grad(expected, alone)
    torch.testing.assert_close(grad[kept], grad_alone)
    assert (grad[~kept] == 0).all()
