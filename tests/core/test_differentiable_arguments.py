"""Thresholds, weights and targets that require gradients get the right ones, alone and together."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from metricfit import MetricLoss, steps

SCALAR = torch.tensor(0.4, dtype=torch.float64)


def test_threshold(smooth_step, batch):
    given = batch(7, seed=3)

    def loss(logits, threshold):
        return MetricLoss("f1", step=smooth_step, threshold=threshold).eval()(logits, given.target, given.weight)

    assert gradcheck(loss, (given.logits.requires_grad_(), SCALAR.clone().requires_grad_()))


def test_weight_and_target(smooth_step, batch):
    given = batch(6, seed=3, soft=True)
    loss = MetricLoss("mcc", step=smooth_step).eval()
    inputs = [each.requires_grad_() for each in (given.logits, given.target.clamp(0.1, 0.9), given.weight)]
    assert gradcheck(loss, inputs)
    assert gradgradcheck(loss, inputs)


@pytest.mark.parametrize("which", ["target", "weight"])
def test_one_of_them_while_the_logits_are_fixed(smooth_step, batch, naive, which):
    given = batch(9, soft=True)
    leaf = getattr(given, which).requires_grad_()
    (own,) = torch.autograd.grad(MetricLoss("f1", step=smooth_step)(given.logits, given.target, given.weight), leaf)
    twin = naive.loss("f1", given.logits, given.target, given.weight, smooth_step)
    torch.testing.assert_close(own, torch.autograd.grad(twin, leaf)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("t", [0.2, 0.5, 0.8])
def test_a_tensor_threshold_gives_the_gradient_of_the_number(smooth_step, batch, naive, t):
    given = batch(20)
    x = given.logits.requires_grad_()
    loss = MetricLoss("f1", step=smooth_step, threshold=torch.tensor(t, dtype=torch.float64))
    (own,) = torch.autograd.grad(loss(x, given.target, given.weight), x)
    expected = naive.gradient("f1", given.logits, given.target, given.weight, smooth_step, t)
    torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-12)


def test_a_threshold_can_be_a_trained_parameter(batch, naive):
    given = batch(20)
    threshold = torch.nn.Parameter(SCALAR.clone())
    loss = MetricLoss("f1", step=steps.Sigmoid(k=10), threshold=threshold)
    assert list(loss.parameters()) == [threshold]
    loss(given.logits, given.target).backward()
    twin = SCALAR.clone().requires_grad_()
    naive.loss("f1", given.logits, given.target, None, steps.Sigmoid(k=10), twin).backward()
    torch.testing.assert_close(threshold.grad, twin.grad, rtol=1e-9, atol=1e-12)


def test_several_tensor_thresholds_each_get_their_own(batch, naive):
    given, step = batch(20), steps.Sigmoid(k=10)
    thresholds = torch.tensor([0.3, 0.5, 0.7], dtype=torch.float64, requires_grad=True)
    MetricLoss("f1", step=step, threshold=thresholds)(given.logits, given.target).backward()
    twin = thresholds.detach().clone().requires_grad_()
    (sum(naive.loss("f1", given.logits, given.target, None, step, t) for t in twin) / 3).backward()
    torch.testing.assert_close(thresholds.grad, twin.grad, rtol=1e-9, atol=1e-12)


def test_weights_under_vmap_of_grad(batch, naive):
    given, step = batch(9, rows=3), steps.Linear()
    loss = MetricLoss("f1", step=step)
    own = torch.func.vmap(torch.func.grad(loss, argnums=2))(given.logits, given.target, given.weight)
    for row, x, y, w in zip(own, given.logits, given.target, given.weight, strict=True):
        w = w.clone().requires_grad_()
        (expected,) = torch.autograd.grad(naive.loss("f1", x, y, w, step), w)
        torch.testing.assert_close(row, expected, rtol=1e-9, atol=1e-12)
