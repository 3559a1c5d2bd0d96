"""One loss object serves many batches: nothing of the last one is left in the next."""

import warnings

import torch

from metricfit import MetricLoss, steps


def test_two_uses_in_one_graph_add_their_gradients(any_metric, smooth_step, batch, naive):
    first, second = batch(15, seed=1), batch(9, seed=2)
    loss = MetricLoss(any_metric, step=smooth_step)
    x1, x2 = first.logits.requires_grad_(), second.logits.requires_grad_()
    (loss(x1, first.target) + 3 * loss(x2, second.target, weight=second.weight)).backward()
    expected = naive.gradient(any_metric, first.logits, first.target, None, smooth_step)
    torch.testing.assert_close(x1.grad, expected, rtol=1e-9, atol=1e-12)
    expected = 3 * naive.gradient(any_metric, second.logits, second.target, second.weight, smooth_step)
    torch.testing.assert_close(x2.grad, expected, rtol=1e-9, atol=1e-12)


def test_the_same_logits_used_twice(smooth_step, batch, naive):
    given = batch(15)
    loss, x = MetricLoss("f1", step=smooth_step), given.logits.requires_grad_()
    other = 1 - given.target
    (loss(x, given.target) * loss(x, other)).backward()
    values = [naive.loss("f1", given.logits.detach(), y, None, smooth_step) for y in (given.target, other)]
    grads = [naive.gradient("f1", given.logits, y, None, smooth_step) for y in (given.target, other)]
    torch.testing.assert_close(x.grad, values[0] * grads[1] + values[1] * grads[0], rtol=1e-9, atol=1e-12)


def test_an_unusual_batch_does_not_affect_later_ones(any_metric, batch, naive):
    given = batch(15)
    loss = MetricLoss(any_metric).eval()
    for odd in (torch.empty(0), torch.tensor([1e4, -1e4]), torch.tensor([0.0])):
        x = odd.requires_grad_()
        loss(x, torch.zeros(len(odd))).backward()
    x = given.logits.requires_grad_()
    loss(x, given.target).backward()
    expected = naive.gradient(any_metric, given.logits, given.target, None, steps.Linear(0.1))
    torch.testing.assert_close(x.grad, expected, rtol=1e-9, atol=1e-12)


def test_learned_logits_raise_no_warning_about_an_earlier_loss():
    logits = torch.tensor([0.3, -0.2, -0.4, 0.1], requires_grad=True)
    target = torch.tensor([1, 0, 1, 0])
    loss = MetricLoss("f1")
    loss(logits, target).backward()
    with torch.no_grad():
        logits.copy_(200.0 * (2 * target - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = loss(logits, target)
        value.backward()
    assert value.item() < 1e-6
