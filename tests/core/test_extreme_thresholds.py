"""Every threshold strictly between 0 and 1 works, in every type: counts stay in [0, n] and add up to the classes."""

import math

import pytest
import torch

from metricfit import Counts, MetricLoss, steps
from metricfit.core.kernels import binary_cpu as cpu_kernel

THRESHOLDS = [1e-300, 1e-40, 1e-20, 1e-8, 1e-5, 0.01, 0.5, 0.99, 1 - 1e-5, 1 - 1e-8, 1 - 2**-53]
LOGITS = [value / 4 for value in range(-160, 161)] + [-1e4, -100.0, -90.0, 90.0, 100.0, 1e4]
STEPS = [
    steps.Linear(0.1),
    steps.Linear(0.25),
    steps.Linear(0.4),
    steps.Sigmoid(k=10),
    steps.Identity(),
    steps.RaisedCosine(),
]

every_threshold = pytest.mark.parametrize("threshold", THRESHOLDS)
every_step = pytest.mark.parametrize("step", STEPS, ids=repr)
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
every_type = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)


def linear(x, t, delta):
    """Linear by its pieces, each from its own end, in Python's floats."""
    p, q, u = 1 / (1 + math.exp(-x)), 1 / (1 + math.exp(x)), 1 - t
    width = min(t, u)
    a, c = t - width / 2, u - width / 2
    middle = 0.5 + (1 - 2 * delta) * ((p - t) if t <= u else (u - q)) / width
    if middle <= delta:
        return delta * (p / a)
    return middle if middle <= 1 - delta else 1 - delta * (q / c)


def batch(dtype, path):
    """Every logit once as a positive and once as a negative, laid out so that one implementation takes them."""
    x = torch.tensor(LOGITS, dtype=dtype).repeat(2)
    y = torch.cat([torch.ones(len(LOGITS)), torch.zeros(len(LOGITS))])
    if path == "plain":  # rows that are not contiguous are left to plain operations
        x, y = x.repeat_interleave(2)[::2], y.repeat_interleave(2)[::2]
        assert not cpu_kernel.handles(x)
    return x.requires_grad_(), y


@every_step
@every_type
@pytest.mark.parametrize("path", ["kernel", "plain", "learned"])
def test_counts_stay_in_their_range_and_add_up(step, dtype, path):
    n = len(LOGITS)
    for threshold in THRESHOLDS:
        x, y = batch(dtype, path)
        learned = torch.tensor(threshold, dtype=torch.float64, requires_grad=True)
        at = learned if path == "learned" else threshold
        counts = Counts.soft(x, y, step=step, threshold=at)
        for count in counts:
            assert 0 <= count.item() <= n, threshold
        assert counts.positives.item() == pytest.approx(n, rel=1e-6), threshold
        assert counts.negatives.item() == pytest.approx(n, rel=1e-6), threshold
        (counts.tp - 2 * counts.fp).sum().backward()
        assert x.grad.isfinite().all(), threshold
        assert learned.grad is None or learned.grad.isfinite(), threshold


@every_threshold
@both_types
@pytest.mark.parametrize("delta", [0.1, 0.4])
@pytest.mark.parametrize("path", ["kernel", "plain"])
def test_linear_has_the_value_of_its_pieces(threshold, dtype, delta, path):
    moderate = [value for value in LOGITS if abs(value) <= 40]
    x = torch.tensor(moderate, dtype=dtype).unsqueeze(-1)
    if path == "plain":
        x = x.repeat(1, 2)[:, :1]
        assert not cpu_kernel.handles(x.squeeze(-1))
    tp = [Counts.soft(row, torch.ones(1), step=steps.Linear(delta), threshold=threshold).tp.item() for row in x]
    expected = [linear(value, threshold, delta) for value in moderate]
    assert tp == pytest.approx(expected, abs=3e-6 if dtype == torch.float32 else 1e-13)


@every_threshold
@both_types
@pytest.mark.parametrize("path", ["kernel", "plain"])
def test_the_gradient_is_that_of_the_piece(threshold, dtype, path):
    x, y = batch(dtype, path)
    MetricLoss("recall", step=steps.Linear(0.1), threshold=threshold)(x, y).backward()
    wide = x.detach().double().requires_grad_()
    near = min(threshold, 1 - threshold)
    p = torch.sigmoid(wide if threshold <= 0.5 else -wide)  # the smaller tail, which keeps its digits in float64
    first, middle, last = (torch.full_like(p, s) for s in (0.2 / near, 0.8 / near, 0.1 / (1 - 1.5 * near)))
    slope = torch.where(p < near / 2, first, torch.where(p > 1.5 * near, last, middle))
    expected = (-slope * p * torch.sigmoid(-wide if threshold <= 0.5 else wide) * y / y.sum()).detach()
    inside = wide.detach().abs() < 75
    torch.testing.assert_close(x.grad.double()[inside], expected[inside], rtol=1e-4, atol=1e-12)


@every_type
@every_step
def test_a_step_called_by_itself_stays_in_0_to_1(dtype, step):
    p = torch.cat([torch.linspace(0, 1, 1001), torch.logspace(-40, 0, 200), 1 - torch.logspace(-7, 0, 50)]).to(dtype)
    for threshold in (5e-324, *THRESHOLDS):
        value, slope = step(p, threshold), step.slope(p, threshold)
        assert value.dtype == dtype
        assert value.min().item() >= 0
        assert value.max().item() <= 1
        assert not value.isnan().any()
        assert not slope.isnan().any()
        assert slope.min().item() >= 0
    assert steps.Linear(0.1)(torch.ones(1, dtype=dtype), 1e-5).item() == 1


@every_threshold
@both_types
@pytest.mark.parametrize("step", [steps.Linear(0.2), steps.Linear(0.4), steps.Sigmoid(k=200)], ids=repr)
def test_counts_of_classes_stay_in_their_range_and_add_up(threshold, dtype, step):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=generator).mul(8).to(dtype)
    x[:100] *= 12
    y = torch.randint(0, 4, (300,), generator=generator)
    for at in (threshold, "dynamic"):
        logits = x.clone().requires_grad_()
        counts = Counts.soft(logits, y, step=step, threshold=at)
        for count in counts:
            assert count.min().item() >= 0
            assert count.max().item() <= 300
        torch.testing.assert_close(counts.positives, torch.bincount(y).to(dtype), rtol=1e-6, atol=0)
        assert counts.predicted.sum().item() == pytest.approx(300, rel=1e-5)
        counts.tp.sum().backward()
        assert logits.grad.isfinite().all()


def test_the_counts_of_the_issue():
    counts = Counts.soft(torch.tensor([6.0, 4.0, 2.0, 0.0, -2.0]), torch.tensor([1, 0, 1, 0, 1]), threshold=1e-8)
    assert counts.tp.item() == pytest.approx(2.89975274, abs=1e-6)


@every_threshold
def test_a_constant_tensor_threshold_equals_its_number(threshold):
    x, y = batch(torch.float32, "kernel")
    of_tensor = Counts.soft(x, y, threshold=torch.tensor(threshold, dtype=torch.float64))
    assert of_tensor == Counts.soft(x, y, threshold=threshold)
