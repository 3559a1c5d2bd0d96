"""Gradients of every metric through every step: against finite differences, and for hard steps against the twin."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from metricfit import MetricLoss, metrics, steps


def checked(metric, step, given, **settings):
    loss = MetricLoss(metric, step=step, **settings).eval()
    return lambda logits: loss(logits, given.target, weight=given.weight)


def test_gradient_is_that_of_finite_differences(any_metric, smooth_step, batch):
    given = batch(7, seed=3)
    assert gradcheck(checked(any_metric, smooth_step, given, threshold=0.4), given.logits.requires_grad_())


def test_gradient_at_soft_targets_and_several_thresholds(any_metric, smooth_step, batch):
    given = batch(6, seed=5, soft=True)
    assert gradcheck(checked(any_metric, smooth_step, given, threshold=[0.3, 0.6]), given.logits.requires_grad_())


def test_gradient_is_the_twins(any_metric, smooth_step, batch, naive):
    given = batch(40)
    logits = given.logits.requires_grad_()
    (grad,) = torch.autograd.grad(checked(any_metric, smooth_step, given)(logits), logits)
    expected = naive.gradient(any_metric, given.logits, given.target, given.weight, smooth_step)
    torch.testing.assert_close(grad, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["f1", "mcc", "gmean", "kappa", "p4", "precision"])
def test_second_derivative_is_that_of_finite_differences(name, smooth_step, batch):
    given = batch(5, seed=6)
    assert gradgradcheck(checked(name, smooth_step, given), given.logits.requires_grad_())


def test_gradients_of_a_batch_of_outputs_at_once(closed_form_step, batch):
    given = batch(5, seed=7)
    loss = MetricLoss("f1", step=closed_form_step, threshold=[0.3, 0.5], average=None).eval()
    assert gradcheck(lambda x: loss(x, given.target), given.logits.requires_grad_(), check_batched_grad=True)


@pytest.mark.parametrize("inner", [steps.Linear(), steps.Sigmoid(k=5), steps.Identity(), steps.RaisedCosine(0.4)])
def test_straight_through_has_the_hard_value_and_the_inner_gradient(any_metric, inner, batch, naive):
    given = batch(40)
    logits = given.logits.requires_grad_()
    value = checked(any_metric, steps.StraightThrough(inner), given)(logits)

    hard = naive.counts(logits.detach(), given.target, given.weight, steps.StraightThrough(inner), 0.5)
    expected = naive.metric(any_metric, *hard.tolist())
    assert value.item() == pytest.approx(expected if any_metric.minimize else 1 - expected)

    soft = naive.counts(logits, given.target, given.weight, inner, 0.5)
    twin = naive.metric(any_metric, *(hard + soft - soft.detach()))
    (grad,) = torch.autograd.grad(value, logits)
    (expected,) = torch.autograd.grad(twin if any_metric.minimize else 1 - twin, logits)
    torch.testing.assert_close(grad, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("metric", [metrics.accuracy, metrics.recall, metrics.cost(fp=1, fn=10)], ids=str)
def test_straight_through_has_the_inner_gradient_itself_where_the_metric_is_linear_in_counts(metric, batch, naive):
    given = batch(30)
    logits = given.logits.requires_grad_()
    (grad,) = torch.autograd.grad(checked(metric, steps.StraightThrough(steps.Sigmoid(k=5)), given)(logits), logits)
    expected = naive.gradient(metric, given.logits, given.target, given.weight, steps.Sigmoid(k=5))
    torch.testing.assert_close(grad, expected)


def test_raising_a_positives_or_lowering_a_negatives_logit_never_worsens_a_metric(any_metric, smooth_step, batch):
    given = batch(30, seed=1)
    logits = given.logits.requires_grad_()
    (grad,) = torch.autograd.grad(checked(any_metric, smooth_step, given)(logits), logits)
    assert grad.any()
    if any_metric.base_name == "selection_rate":  # every selected row counts alike
        assert (grad >= 0).all()
        return
    assert (grad[given.target == 1] <= 0).all()
    assert (grad[given.target == 0] >= 0).all()
