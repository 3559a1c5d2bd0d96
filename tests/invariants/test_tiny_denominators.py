"""Gradients stay finite where a class is predicted with a mass that float32 can hardly represent."""

import pytest
import torch

from metricfit import AugmentedLagrangian, Counts, MetricLoss, metrics, steps
from metricfit.core.numerics import ratio, root, share
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss

pytestmark = pytest.mark.filterwarnings("ignore::metricfit.losses.gradient_watch.DeadGradientWarning")

GAPS = [60, 80, 87, 93, 100, 103, 106, 200, 1e4]
LABELS = torch.tensor([0, 0, 1, 2])


def classes(gap, dtype=torch.float32):
    """Class 1 has one true sample, and next to nothing is predicted to be of it."""
    return torch.tensor([[gap, 0.0, 0.0]] * 3 + [[0.0, 3.0, gap]], dtype=dtype, requires_grad=True)


def check_finite(value, logits):
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("gap", GAPS)
def test_a_class_that_is_never_predicted_leaves_gradients_finite(any_metric, gap):
    if any_metric.base_name == "cost_matrix":
        any_metric = metrics.cost_matrix([[0, 1, 4], [2, 0, 1], [9, 3, 0]])
    for average in ("macro", "micro", "weighted", None):
        logits = classes(gap)
        check_finite(MetricLoss(any_metric, average=average)(logits, LABELS), logits)


@pytest.mark.parametrize("name", ["precision", "markedness", "fowlkes_mallows"])
def test_the_other_classes_keep_their_gradient(name):
    logits, wide = classes(100), classes(100, torch.float64)
    for x in (logits, wide):
        x.data[0, 1] = 99.0  # class 0 has something to learn from the first sample
        value = MetricLoss(name, average=None)(x, LABELS)
        value[0].backward()
    assert wide.grad.abs().max() > 1e-3
    torch.testing.assert_close(logits.grad.double(), wide.grad, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("far", [2.0, 3.0, 4.0, 100.0])
def test_a_steep_step_at_ordinary_logits_has_finite_gradients(any_metric, far):
    logits = torch.tensor([-far, -far, far, far], requires_grad=True)
    check_finite(MetricLoss(any_metric, step=steps.Sigmoid(k=200))(logits, torch.tensor([1, 1, 0, 0])), logits)


@pytest.mark.parametrize("target", [[0, 0, 0], [1, 0, 0], [1, 1, 1], [0.5, 0.2, 0.0]], ids=str)
@pytest.mark.parametrize("far", [-100.0, 100.0, -65504.0, 65504.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_a_large_beta_at_large_logits_has_finite_gradients(dtype, far, target):
    for step in (steps.Identity(), steps.Linear()):
        logits = torch.full((3,), far, dtype=dtype, requires_grad=True)
        check_finite(MetricLoss("fbeta(beta=10)", step=step)(logits, torch.tensor(target)), logits)


@pytest.mark.parametrize("requirement", ["precision >= 0.9", "recall >= 0.9", "markedness >= 0.5", "mcc >= 0.5"])
@pytest.mark.parametrize("gap", GAPS)
def test_requirements_have_finite_gradients(requirement, gap):
    logits = classes(gap)
    loss = AugmentedLagrangian(WeightedCrossEntropyLoss(), [requirement], mu=100.0)
    check_finite(loss(logits, LABELS), logits)
    loss.update()
    logits = classes(gap)
    check_finite(loss(logits, LABELS), logits)


@pytest.mark.parametrize("size", [1e-40, 1e-20, 1.0, 1e18])
def test_the_scale_of_the_weights_does_not_matter(any_metric, size):
    logits = torch.tensor([2.0, 0.5, -1.0, -3.0, 0.2], requires_grad=True)
    target = torch.tensor([1, 0, 1, 0, 1])
    value = MetricLoss(any_metric)(logits, target, torch.full((5,), size))
    check_finite(value, logits)
    if size > 1e-30:
        assert value.item() == pytest.approx(MetricLoss(any_metric)(logits, target).item(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-42, 1e-38, 1e-33, 1e-31])
def test_divisions_by_almost_0_have_a_zero_gradient(size, dtype):
    bound = {torch.float32: 4.5e-31, torch.float64: 7.5e-247}[dtype]
    part, rest = (torch.tensor([size, 3 * size], dtype=dtype, requires_grad=True) for _ in range(2))
    for value in (ratio(part, part + rest), share(part, rest), root(part)):
        assert value.isfinite().all()
        grads = torch.autograd.grad(value.sum(), (part, rest), allow_unused=True)
        assert all(grad.isfinite().all() for grad in grads if grad is not None)
        if 6 * size < bound:
            assert value.tolist() == [0, 0]
            assert all((grad == 0).all() for grad in grads if grad is not None)


def test_a_ratio_of_integers_and_of_negative_numbers_is_a_ratio():
    assert ratio(torch.tensor([3, 1]), torch.tensor([2, 0])).tolist() == [1.5, 0]
    assert ratio(torch.tensor([3.0]), torch.tensor([-2.0])).tolist() == [-1.5]


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_hard_counts_of_any_scale_have_the_metrics_value(any_metric, size):
    counts = Counts(tp=3, fp=1, fn=2, tn=4)
    scaled = counts.map(lambda count: count * size)
    assert any_metric(scaled).item() == pytest.approx(any_metric(counts).item(), rel=1e-12)


@pytest.mark.parametrize("build", [lambda: metrics.cost(fp=1e30, fn=1), lambda: metrics.tversky(1.0, 1e21)])
def test_parameters_that_overflow_float32_are_refused(build):
    with pytest.raises(ValueError, match="at most 1e\\+20"):
        build()
