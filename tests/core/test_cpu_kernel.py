"""The blocked CPU kernel against a loop over samples and against autograd of the printed formulas."""

import math

import pytest
import torch

from metricfit import Counts, MetricLoss, metrics, steps
from metricfit.core.kernels import binary_cpu as cpu_kernel

STEPS = [steps.Linear(0.1), steps.Sigmoid(k=12), steps.Identity(), steps.RaisedCosine(width=0.25)]
BLOCK = 16
SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 5]

every_kind = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.kind)
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
either_weight = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(cpu_kernel, "BLOCK", BLOCK)


def step_of_number(step, p, t):
    if step.kind == "linear":
        nearest = min(t, 1 - t)
        a, b, delta = t - nearest / 2, t + nearest / 2, step.delta
        if p <= a:
            return delta * p / a
        return 0.5 + (1 - 2 * delta) * (p - t) / nearest if p <= b else 1 - delta * (1 - p) / (1 - b)
    if step.kind == "sigmoid":
        return 1 / (1 + math.exp(-step.k * (p - t)))
    if step.kind == "identity":
        return p
    u = max(-1.0, min(1.0, (p - t) / step.width))
    return (1 + u + math.sin(math.pi * u) / math.pi) / 2


def counts_by_loop(logits, target, weight, step, t):
    table = [0.0] * 4
    weights = [1.0] * len(logits) if weight is None else weight.tolist()
    for x, y, w in zip(logits.tolist(), target.tolist(), weights, strict=True):
        h = step_of_number(step, 1 / (1 + math.exp(-x)), t)
        for place, part in enumerate((y * h, (1 - y) * h, y * (1 - h), (1 - y) * (1 - h))):
            table[place] += w * part
    return table


@every_kind
@both_types
@either_weight
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft targets"])
def test_counts_are_those_of_a_loop(step, dtype, weighted, soft, batch):
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for n in SIZES:
        for t in (0.2, 0.5, 0.7):
            given = batch(n, seed=n, dtype=dtype, soft=soft)
            weight = given.weight if weighted else None
            assert cpu_kernel.handles(given.logits)
            counts = cpu_kernel.counts(given.logits, given.target, weight, step.kind, step.number, t)
            assert counts.dtype == dtype
            expected = counts_by_loop(given.logits, given.target, weight, step, t)
            assert counts.tolist() == pytest.approx(expected, rel=tolerance, abs=tolerance), (n, t)


@every_kind
@both_types
@either_weight
def test_gradient_is_autograds_derivative_of_the_weighted_step(step, dtype, weighted, batch, naive):
    tolerance = 2e-4 if dtype == torch.float32 else 1e-10
    for n in SIZES:
        for t in (0.2, 0.5, 0.7):
            given = batch(n, seed=n, dtype=dtype)
            weight = given.weight if weighted else None
            alike = torch.ones(1, dtype=dtype)
            settings = step.kind, step.number, t
            slope = cpu_kernel.gradient(given.logits, given.target, weight, alike, alike, *settings)
            x = given.logits.double().requires_grad_()
            mass = naive.step(step, 1 / (1 + torch.exp(-x)), t) * (1.0 if weight is None else weight.double())
            (expected,) = torch.autograd.grad(mass.sum(), x)
            assert slope.dtype == dtype
            torch.testing.assert_close(slope.double(), expected, rtol=tolerance, atol=tolerance * 1e-2)


@every_kind
@both_types
def test_loss_over_several_blocks_has_the_twins_gradient(step, dtype, batch, naive):
    given = batch(5 * BLOCK + 3, dtype=dtype)
    logits = given.logits.requires_grad_()
    MetricLoss("f1", step=step)(logits, given.target, weight=given.weight).backward()
    expected = naive.gradient("f1", given.logits, given.target, given.weight, step)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(logits.grad.double(), expected, rtol=tolerance, atol=tolerance * 1e-3)


@every_kind
def test_rows_that_are_not_dense_give_the_same(step, batch, naive):
    wide = batch(90)
    logits, target, weight = wide.logits[::3].requires_grad_(), wide.target[::3], wide.weight[::3]
    assert not cpu_kernel.handles(logits)
    (grad,) = torch.autograd.grad(MetricLoss("mcc", step=step)(logits, target, weight=weight), logits)
    torch.testing.assert_close(grad, naive.gradient("mcc", logits, target, weight, step), rtol=1e-9, atol=1e-12)
    dense = wide.logits[::3].contiguous().detach().requires_grad_()
    (of_dense,) = torch.autograd.grad(MetricLoss("mcc", step=step)(dense, target, weight=weight), dense)
    torch.testing.assert_close(of_dense, grad, rtol=1e-9, atol=1e-12)


@every_kind
def test_block_sums_of_float32_are_added_in_float64(step, monkeypatch):
    monkeypatch.setattr(cpu_kernel, "BLOCK", 4096)
    n = 2**21
    logits, target = torch.full((n,), 0.1), torch.ones(n)
    h = step_of_number(step, 1 / (1 + math.exp(-0.10000000149011612)), 0.5)
    tp = cpu_kernel.counts(logits, target, None, step.kind, step.number, 0.5)[0].item()
    assert tp == pytest.approx(n * h, rel=3e-6)


@pytest.mark.parametrize("name", ["precision", "f1", "mcc", "fowlkes_mallows"])
def test_raised_cosine_at_the_edge_of_its_window_keeps_the_metric_in_its_bounds(name):
    step, metric = steps.RaisedCosine(width=0.1), metrics.get_metric(name)
    places = torch.logit(0.4 + torch.logspace(-6, -3, 200))
    target = torch.tensor([1, 0])
    values = [metric(Counts.soft(pair, target, step=step)).item() for pair in places.unfold(0, 2, 1).contiguous()]
    assert min(values) >= metric.bounds[0]
    assert max(values) <= metric.bounds[1]


def test_inputs_are_not_changed(batch):
    given = batch(40)
    kept = given.logits.clone(), given.target.clone(), given.weight.clone()
    logits = given.logits.requires_grad_()
    MetricLoss(metrics.f1)(logits, given.target, weight=given.weight).backward()
    assert torch.equal(logits.detach(), kept[0])
    assert torch.equal(given.target, kept[1])
    assert torch.equal(given.weight, kept[2])


@every_kind
@either_weight
def test_counts_of_a_class_without_samples_are_0_and_none_is_negative(step, weighted, batch):
    given = batch(3 * BLOCK + 5, dtype=torch.float32)
    for label in (0.0, 1.0):
        target = torch.full_like(given.target, label)
        for t in (0.2, 0.5, 0.7):
            weight = given.weight if weighted else None
            tp, fp, fn, tn = cpu_kernel.counts(given.logits, target, weight, step.kind, step.number, t).tolist()
            assert (tp, fn) == (0, 0) if label == 0 else (fp, tn) == (0, 0)
            assert min(tp, fp, fn, tn) >= 0


@every_kind
@either_weight
@pytest.mark.parametrize("t", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("distance", [2.0, 5.0, 9.0])
def test_all_four_counts_of_well_separated_classes_keep_their_digits(step, weighted, t, share, distance, monkeypatch):
    monkeypatch.setattr(cpu_kernel, "BLOCK", 1000)
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(4321, generator=generator) < share).float()
    logits = torch.randn(4321, generator=generator) + distance * (2 * target - 1)
    weight = torch.rand(4321, generator=generator) if weighted else None
    counts = cpu_kernel.counts(logits, target, weight, step.kind, step.number, t)
    expected = counts_by_loop(logits, target, weight, step, t)
    # The tails of RaisedCosine are differences of nearly equal numbers, and exactly 0 outside its window.
    tolerance = {"raised_cosine": 1e-3}.get(step.kind, 2e-5)
    assert counts.tolist() == pytest.approx(expected, rel=tolerance, abs=1e-3 if step.kind == "raised_cosine" else 0)


def test_the_smallest_count_of_columns_loses_few_digits(monkeypatch):
    monkeypatch.setattr(cpu_kernel, "BLOCK", 2**19)
    target = (torch.rand(100_000, 7, generator=torch.Generator().manual_seed(0)) < 0.96).float()
    logits = torch.full((100_000, 7), 3.1)
    counts, exact = (
        cpu_kernel.counts(logits.to(dtype), target.to(dtype), None, "identity", 1.0, 0.5).double()
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(counts, exact, rtol=1e-5, atol=0)


def test_gradients_beyond_the_type_are_infinite_and_no_error():
    logits, target = torch.zeros(9_000), (torch.arange(9_000) % 2).float()
    gradient = cpu_kernel.gradient(logits, target, None, 1e60, -1e60, "linear", 0.1, 0.5)
    assert not gradient.isfinite().any()


def test_equal_logits_are_summed_accurately(monkeypatch):
    monkeypatch.setattr(cpu_kernel, "BLOCK", 2**19)
    logits, target = torch.full((2**20,), 0.0371), (torch.arange(2**20) % 10 > 0).float()
    counts = cpu_kernel.counts(logits, target, None, "linear", 0.1, 0.5)
    h = step_of_number(steps.Linear(0.1), 1 / (1 + math.exp(-logits[0].item())), 0.5)
    positives = target.double().sum().item()
    expected = [positives * h, (2**20 - positives) * h, positives * (1 - h), (2**20 - positives) * (1 - h)]
    assert counts.tolist() == pytest.approx(expected, rel=1e-5)
