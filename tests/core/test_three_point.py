"""ThreePoint: its value beside interpolation by NumPy, its gradient by finite differences, and its counts."""

import numpy as np
import pytest
import torch

from metricfit import MetricLoss, steps
from metricfit.core.counts import Counts

THRESHOLDS = [0.02, 0.3, 0.5, 0.9]


def interpolated(p, t):
    return torch.from_numpy(np.interp(p.detach().numpy(), [0, t, 1], [0, 0.5, 1]))


@pytest.mark.parametrize("t", THRESHOLDS)
def test_value_is_the_interpolation_of_three_points(t):
    p = torch.cat([torch.linspace(0, 1, 301, dtype=torch.float64), torch.tensor([t], dtype=torch.float64)])
    torch.testing.assert_close(steps.ThreePoint()(p, t), interpolated(p, t), rtol=1e-12, atol=1e-15)
    complement = steps.ThreePoint()(1 - p, 1 - t)
    torch.testing.assert_close(1 - steps.ThreePoint()(p, t), complement, rtol=0, atol=1e-12)


@pytest.mark.parametrize("t", THRESHOLDS)
def test_gradients_are_those_of_finite_differences(t):
    p = torch.tensor([0.01, 0.2, 0.45, 0.6, 0.97], dtype=torch.float64, requires_grad=True)
    threshold = torch.tensor(t, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(steps.ThreePoint(), (p, threshold))


def test_slopes_are_those_of_the_two_pieces():
    p = torch.tensor([0.0, 0.01, 0.05, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(steps.ThreePoint()(p, 0.05).sum(), p)
    assert slope.tolist() == pytest.approx([10, 10, 10, 0.5 / 0.95, 0.5 / 0.95])


def test_it_is_the_identity_at_one_half():
    p = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(steps.ThreePoint()(p), p)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("t", [1e-8, 1 - 1e-8, torch.tensor(1.0), torch.tensor(0.0)])
def test_extreme_thresholds_stay_finite(dtype, t):
    p = torch.tensor([0.0, 1e-4, 0.5, 1.0], dtype=dtype, requires_grad=True)
    value = steps.ThreePoint()(p, t)
    assert value.dtype == dtype
    assert ((value >= 0) & (value <= 1)).all()
    value.float().sum().backward()
    assert not p.grad.isnan().any()


def test_a_threshold_outside_0_and_1_is_refused():
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        steps.ThreePoint()(torch.tensor([0.3]), 1.0)


def test_soft_counts_and_their_gradient_beside_plain_sums(batch):
    data = batch(40)
    logits = data.logits.requires_grad_()
    counts = Counts.soft(logits, data.target, step=steps.ThreePoint(), threshold=0.3, weight=data.weight)
    h = interpolated(logits.sigmoid(), 0.3)
    expected = [(data.weight * side).sum() for side in (data.target * h, (1 - data.target) * h, data.target * (1 - h))]
    for found, twin in zip((counts.tp, counts.fp, counts.fn), expected, strict=True):
        torch.testing.assert_close(found.squeeze(), twin)
    loss = MetricLoss("f1", step=steps.ThreePoint(), threshold=0.3)
    assert torch.autograd.gradcheck(lambda scores: loss(scores, data.target), (logits.detach().requires_grad_(),))


def test_classes_are_counted_with_their_own_threshold():
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = torch.arange(20) % 3
    p = logits.softmax(1)
    t = p.topk(2, dim=1).values.mean(1, keepdim=True)
    h = torch.where(p <= t, p / (2 * t), 1 - (1 - p) / (2 * (1 - t)))
    h = h / h.sum(1, keepdim=True)
    counts = Counts.soft(logits, target, step=steps.ThreePoint())
    torch.testing.assert_close(counts.tp, torch.stack([h[target == k, k].sum() for k in range(3)]))
