"""AnyLoss's step, k = 73, keeps its gradient in float32, where the obvious code is dead from p = 0.728 on."""

import math

import pytest
import torch

from metricfit import MetricLoss, steps

K = 73
PLACES = [0.1, 0.5, 0.73, 0.9]


def tails(z):
    return 1 / (1 + math.exp(-z)), 1 / (1 + math.exp(z))


def closed_form(metric, x_positive, x_negative):
    """The loss's gradient by hand, in float64, for one positive and one negative."""
    (tp, fn), (fp, tn) = (tails(K * (tails(x)[0] - 0.5)) for x in (x_positive, x_negative))
    inner = [K * h * rest * math.prod(tails(x)) for h, rest, x in ((tp, fn, x_positive), (fp, tn, x_negative))]
    if metric == "f1":
        scale = 2 / (1 + tp + fp) ** 2
        return -scale * (1 + fp) * inner[0], scale * tp * inner[1]
    scale = 1 / (tp + fp) ** 2
    return -scale * fp * inner[0], scale * tp * inner[1]


def kernel(loss, x, y):
    return torch.autograd.grad(loss(x, y), x)[0]


def transformed(loss, x, y):
    return torch.func.grad(loss)(x.detach(), y)


def plain(loss, x, y):
    loss.threshold = torch.tensor(0.5, requires_grad=True)  # a constant would be taken for a number
    return kernel(loss, x, y)


@pytest.mark.parametrize("path", [kernel, transformed, plain], ids=lambda path: path.__name__)
@pytest.mark.parametrize("negative", PLACES)
@pytest.mark.parametrize("positive", PLACES)
@pytest.mark.parametrize("metric", ["f1", "precision"])
def test_float32_gradient_is_the_float64_one(metric, positive, negative, path):
    logits = torch.logit(torch.tensor([positive, negative], dtype=torch.float32)).requires_grad_()
    loss = MetricLoss(metric, step=steps.Sigmoid(k=K)).eval()
    grad = path(loss, logits, torch.tensor([1, 0]))
    expected = closed_form(metric, *logits.tolist())
    assert all(expected)
    assert grad.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4 * max(map(abs, expected)))


@pytest.mark.parametrize("positive", PLACES)
@pytest.mark.parametrize("negative", PLACES)
def test_each_logit_of_f1_has_its_own_share_to_four_digits(positive, negative):
    logits = torch.logit(torch.tensor([positive, negative], dtype=torch.float32)).requires_grad_()
    grad = kernel(MetricLoss("f1", step=steps.Sigmoid(k=K)).eval(), logits, torch.tensor([1, 0]))
    assert grad.tolist() == pytest.approx(closed_form("f1", *logits.tolist()), rel=1e-4, abs=0)
