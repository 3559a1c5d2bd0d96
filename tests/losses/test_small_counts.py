"""Counts that are tiny beside the others keep their digits in float32: metrics are ratios of just such counts."""

import pytest
import torch

from metricfit import MetricLoss, steps

pytestmark = pytest.mark.filterwarnings("ignore::metricfit.losses.gradient_watch.DeadGradientWarning")

SETTINGS = {
    "linear": (None, None),
    "linear, 0.7": (None, 0.7),
    "linear, 0.3": (None, 0.3),
    "identity": (steps.Identity(), None),
    "sigmoid": (steps.Sigmoid(10), None),
    "steep sigmoid": (steps.Sigmoid(73), 0.3),
}


def saturated(mean, n):
    """Logits that are nearly all far on one side, and rare labels of the other one."""
    generator = torch.Generator().manual_seed(0)
    rare = torch.rand(n, generator=generator) < 0.01
    logits = torch.randn(n, generator=generator) + mean + 2 * rare
    return logits, (rare if mean < 0 else ~rare).long()


def value_and_gradient(loss, logits, target):
    logits = logits.clone().requires_grad_()
    value = loss(logits, target)
    value.backward()
    return value.item(), logits.grad


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("metric", ["precision", "npv", "mcc", "markedness"])
@pytest.mark.parametrize(("mean", "n"), [(-12.0, 300_000), (-8.0, 20_000), (8.0, 20_000), (12.0, 300_000)])
def test_saturated_logits_have_the_value_and_gradient_of_float64(mean, n, metric, name):
    step, threshold = SETTINGS[name]
    loss = MetricLoss(metric, step=step, threshold=threshold)
    logits, target = saturated(mean, n)
    value, gradient = value_and_gradient(loss, logits, target)
    exact, exact_gradient = value_and_gradient(loss, logits.double(), target)
    assert value == pytest.approx(exact, abs=1e-4)
    assert (gradient - exact_gradient).abs().max() <= 1e-2 * exact_gradient.abs().max()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("metric", "mean", "threshold"), [("precision", -12.0, 0.7), ("npv", 12.0, None)])
def test_a_compiled_loss_keeps_them_too(metric, mean, threshold):
    torch._dynamo.reset()
    loss = MetricLoss(metric, threshold=threshold)
    logits, target = saturated(mean, 300_000)
    value, _ = value_and_gradient(torch.compile(loss, backend="aot_eager"), logits, target)
    assert value == pytest.approx(loss(logits.double(), target).item(), abs=1e-4)


def test_labels_in_columns_keep_them_too():
    logits, target = saturated(-12.0, 20_000)
    columns, labels = torch.stack([logits, -logits], 1), torch.stack([target, 1 - target], 1)
    loss = MetricLoss("mcc", threshold=0.7, task="multilabel")
    value, gradient = value_and_gradient(loss, columns, labels)
    exact, exact_gradient = value_and_gradient(loss, columns.double(), labels)
    assert value == pytest.approx(exact, abs=1e-4)
    assert (gradient - exact_gradient).abs().max() <= 1e-2 * exact_gradient.abs().max()
