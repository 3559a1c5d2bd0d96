"""Values and gradients stay finite where users of other libraries met NaN: one-sided batches, huge or half logits."""

import math

import pytest
import torch

from metricfit import MetricLoss, steps

pytestmark = pytest.mark.filterwarnings(
    "ignore::metricfit.losses.gradient_watch.DeadGradientWarning"
)  # some of these are dead

MIXED = [1, 0, 0, 1, 0, 1]
MODERATE = {
    "no positives": ([1.5, -2, 0.3, 0.1, -0.2, 4], [0] * 6),
    "no negatives": ([1.5, -2, 0.3, 0.1, -0.2, 4], [1] * 6),
    "all predicted positive": ([3, 2, 4, 5, 3, 2], MIXED),
    "all predicted negative": ([-3, -2, -4, -5, -3, -2], MIXED),
    "no positives, none predicted": ([-3, -2, -4, -5, -3, -2], [0] * 6),
    "no negatives, none predicted": ([-3, -2, -4, -5, -3, -2], [1] * 6),
    "all logits zero": ([0] * 6, MIXED),
    "one positive": ([0.4], [1]),
    "one negative": ([0.4], [0]),
}
EXTREME = {
    "right to 1e4": ([1e4, -1e4, -1e4, 1e4, -1e4, 1e4], MIXED),
    "wrong to 1e4": ([-1e4, 1e4, 1e4, -1e4, 1e4, -1e4], MIXED),
    "all at 1e4": ([1e4] * 6, MIXED),
    "all at -1e4": ([-1e4] * 6, MIXED),
    "rising below": ([-20, -40, -60, -79, -90, -120], MIXED),
    "rising above": ([20, 40, 60, 79, 90, 120], MIXED),
    "far apart": ([20, -40, 60, -79, 90, -120], MIXED),
    "one positive at -1e4": ([-1e4], [1]),
    "one negative at 1e4": ([1e4], [0]),
    "infinite": ([math.inf, -math.inf, -math.inf, math.inf, 0.5, -0.5], MIXED),
    "empty": ([], []),
}


def value_and_gradient(loss, logits, target, dtype, weight=None):
    x = torch.tensor(logits, dtype=dtype, requires_grad=True)
    value = loss(x, torch.tensor(target, dtype=torch.long), weight=weight)
    value.backward()
    assert x.grad.dtype == dtype
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    return value, x.grad


def range_of(metric):
    low, high = metric.bounds
    return (low, high) if metric.minimize else (1 - high, 1 - low)


def check_all(metric, step, dtype):
    low, high = range_of(metric)
    for name, (logits, target) in (MODERATE | EXTREME).items():
        value, grad = value_and_gradient(MetricLoss(metric, step=step), logits, target, dtype)
        assert value.isfinite(), name
        assert grad.isfinite().all(), name
        assert low - 1e-5 <= value.item() <= high + 1e-5, name


def test_on_every_awkward_batch(any_metric, any_step):
    check_all(any_metric, any_step, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_on_every_awkward_batch_of_other_types(any_metric, dtype):
    check_all(any_metric, steps.Linear(), dtype)
    check_all(any_metric, steps.Sigmoid(k=73), dtype)


def test_with_all_weights_zero(any_metric, any_step):
    value, grad = value_and_gradient(
        MetricLoss(any_metric, step=any_step), [1.0, -1.0, 0.5], [1, 0, 1], torch.float32, torch.zeros(3)
    )
    assert value == (0.0 if any_metric.minimize else 1.0)
    assert (grad == 0).all()


def test_an_empty_batch_has_the_worst_value_and_an_empty_gradient(any_metric, any_step):
    value, grad = value_and_gradient(MetricLoss(any_metric, step=any_step), [], [], torch.float32)
    assert value == (0.0 if any_metric.minimize else 1.0)
    assert grad.shape == (0,)


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 2, 2)], ids=["rows", "pixels"])
def test_an_empty_batch_of_several_classes_too(any_step, shape):
    logits = torch.empty(shape, requires_grad=True)
    value = MetricLoss("f1", step=any_step)(logits, torch.empty(0, *shape[2:], dtype=torch.int64))
    value.backward()
    assert value.item() == 1.0
    assert logits.grad.shape == shape


def test_batches_of_one_class_have_the_reference_value(any_metric, any_step, naive):
    for name, (logits, target) in MODERATE.items():
        value, _ = value_and_gradient(MetricLoss(any_metric, step=any_step), logits, target, torch.float64)
        x, y = torch.tensor(logits, dtype=torch.float64), torch.tensor(target, dtype=torch.float64)
        expected = naive.metric(any_metric, *naive.counts(x, y, None, any_step, 0.5).tolist())
        assert value.item() == pytest.approx(expected if any_metric.minimize else 1 - expected, abs=1e-9), name


def test_quarter_of_a_million_half_precision_samples(any_metric, naive):
    n = 2**18
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, generator=generator).half().requires_grad_()
    target = torch.ones(n)
    target[: n // 8] = 0
    value = MetricLoss(any_metric)(logits, target)
    value.backward()
    expected = naive.loss(any_metric, logits.detach().double(), target.double(), None, steps.Linear(0.1))
    assert value.item() == pytest.approx(expected.item(), rel=1e-4)
    assert logits.grad.isfinite().all()


def test_half_precision_gradients_are_the_twins_of_the_rounded_logits(any_metric, smooth_step, batch, naive):
    for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 1e-2)):
        given = batch(20, dtype=dtype)
        logits = given.logits.requires_grad_()
        MetricLoss(any_metric, step=smooth_step)(logits, given.target).backward()
        expected = naive.gradient(any_metric, given.logits, given.target, None, smooth_step)
        torch.testing.assert_close(logits.grad.double(), expected, rtol=tolerance, atol=1e-5)
