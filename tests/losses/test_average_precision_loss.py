"""AveragePrecisionLoss, against all pairs and autograd, and against the gradients of LibAUC."""

import pytest
import torch
from sklearn.metrics import average_precision_score

from metricfit.losses import AveragePrecisionLoss


def batch(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    x[1], x[4] = x[0], x[3]
    y = (torch.rand(n, generator=generator) < 0.3).long()
    return x, y, torch.rand(n, generator=generator, dtype=torch.float64)


def by_all_pairs(x, y, w, margin, power):
    """The formula, with a matrix of all pairs and gradients by autograd."""
    hinges = torch.relu(margin - (x[:, None] - x[None, :])) ** power * w
    precision = (hinges * y).sum(1) / hinges.sum(1)
    return 1 - (w * y * precision).sum() / (w * y).sum()


def value_and_gradient(function, x):
    x = x.clone().requires_grad_()
    value = function(x)
    return value.detach(), torch.autograd.grad(value, x)[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("margin", "power"), [(1.0, 2), (0.3, 1), (2.0, 3)])
def test_value_and_gradient_are_those_of_all_pairs(margin, power, weighted):
    x, y, w = batch()
    found = value_and_gradient(lambda z: AveragePrecisionLoss(margin, power)(z, y, w if weighted else None), x)
    expected = value_and_gradient(lambda z: by_all_pairs(z, y, w if weighted else torch.ones(40), margin, power), x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_many_samples_are_sorted():
    x, y, w = batch(1500, seed=1)
    found = value_and_gradient(lambda z: AveragePrecisionLoss()(z, y, w), x)
    expected = value_and_gradient(lambda z: by_all_pairs(z, y, w, 1.0, 2), x)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)


def test_a_whole_weight_equals_that_many_copies():
    x, y, _ = batch(20, seed=3)
    copies = torch.randint(0, 4, (20,), generator=torch.Generator().manual_seed(0))
    expected = AveragePrecisionLoss()(x.repeat_interleave(copies), y.repeat_interleave(copies))
    torch.testing.assert_close(AveragePrecisionLoss()(x, y, copies.double()), expected)


def test_it_is_0_beyond_the_margin_and_falls_with_the_average_precision():
    y = torch.tensor([1, 1, 0, 0, 0])
    assert AveragePrecisionLoss(margin=0.5)(torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0]), y) == 0
    x, y, _ = batch(200, seed=2)
    before = average_precision_score(y, x)
    for _ in range(30):
        x = x - 20 * value_and_gradient(lambda z: AveragePrecisionLoss()(z, y), x)[1]
    assert average_precision_score(y, x) > before + 0.3
