"""The Triton programs, run on the CPU with a stand-in for Triton: their arithmetic, where there is no GPU.

What only a GPU can show (compilation, masks of a block, speed) is left to ``tests/gpu``.
"""

import math
import sys

import pytest
import torch
import triton_stand_in

from metricfit import steps

STEPS = [
    steps.Linear(0.1),
    steps.Linear(0.4),
    steps.Sigmoid(k=12),
    steps.Identity(),
    steps.RaisedCosine(width=0.25),
]
EXTREME = [1e-300, 1e-40, 1e-8, 1e-5, 1 - 1e-5, 1 - 1e-8, 1 - 2**-53]

every_step = pytest.mark.parametrize("step", STEPS, ids=repr)
either_weight = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])


@pytest.fixture
def triton_on_cpu(monkeypatch):
    triton_stand_in.install(monkeypatch, "triton.binary")
    programs = sys.modules["metricfit.core.kernels.triton.binary"]
    for name, value in {"BLOCK": 16, "LOOPS": 4, "PART": 64}.items():
        monkeypatch.setattr(programs, name, value)
    yield programs
    triton_stand_in.remove("triton.binary")


@every_step
@either_weight
def test_counts_and_gradients_are_those_of_the_printed_formulas(step, weighted, triton_on_cpu, batch, naive):
    upstream = torch.tensor([1.3, -0.4, 0.0, 0.0]).unsqueeze(1).expand(4, 2)
    for t in (0.2, 0.5, 0.7):
        sample = batch(150, rows=2, dtype=torch.float32, soft=True)
        weight = sample.weight if weighted else None
        counts = triton_on_cpu.counts(sample.logits, sample.target, weight, step.kind, step.number, t)
        x, y = sample.logits.double().requires_grad_(), sample.target.double()
        expected = naive.counts(x, y, None if weight is None else weight.double(), step, t)
        torch.testing.assert_close(counts.double(), expected.detach(), rtol=1e-5, atol=1e-6)
        settings = step.kind, step.number, t
        grad = triton_on_cpu.gradient(sample.logits, sample.target, weight, upstream, *settings)
        (wanted,) = torch.autograd.grad((1.3 * expected[0] - 0.4 * expected[1]).sum(), x)
        torch.testing.assert_close(grad.double(), wanted, rtol=2e-4, atol=1e-6)


@every_step
def test_counts_at_extreme_thresholds_stay_in_their_range_and_add_up(step, triton_on_cpu):
    values = torch.tensor([value / 4 for value in range(-160, 161)] + [-1e4, -100.0, 100.0, 1e4])
    x, n = values.repeat(2), len(values)
    y = (torch.arange(2 * n) < n).float()
    for t in EXTREME:
        tp, fp, fn, tn = triton_on_cpu.counts(x, y, None, step.kind, step.number, t).tolist()
        assert 0 <= min(tp, fp, fn, tn) <= max(tp, fp, fn, tn) <= n
        assert tp + fn == pytest.approx(n, rel=1e-6)
        assert fp + tn == pytest.approx(n, rel=1e-6)
        grad = triton_on_cpu.gradient(x, y, None, torch.tensor([1.0, -1.0, 0.0, 0.0]), step.kind, step.number, t)
        assert grad.isfinite().all()


@pytest.mark.parametrize("t", [1e-8, 1e-5, 1 - 1e-5, 1 - 1e-8])
def test_linear_near_0_and_1_is_that_of_float64(t, triton_on_cpu):
    x = torch.linspace(-30, 30, 241)
    near, ones = min(t, 1 - t), torch.ones_like(x)
    counts = [triton_on_cpu.counts(one.reshape(1), torch.ones(1), None, "linear", 0.1, t)[0].item() for one in x]
    expected = []
    for value in x.tolist():
        p = 1 / (1 + math.exp(-value if t < 0.5 else value))
        h = 0.1 * p / (near / 2) if p < near / 2 else 0.5 + 0.8 * (p - near) / near
        h = h if p < 1.5 * near else 1 - 0.1 * (1 - p) / (1 - 1.5 * near)
        expected.append(h if t < 0.5 else 1 - h)
    assert counts == pytest.approx(expected, abs=3e-6)
    grad = triton_on_cpu.gradient(x, ones, None, torch.tensor([1.0, 1.0, 0.0, 0.0]), "linear", 0.1, t)
    p = torch.sigmoid(x.double() if t < 0.5 else -x.double())
    first, middle, last = (torch.full_like(p, s) for s in (0.2 / near, 0.8 / near, 0.1 / (1 - 1.5 * near)))
    slope = torch.where(p < near / 2, first, torch.where(p > 1.5 * near, last, middle))
    torch.testing.assert_close(grad.double(), slope * p * (1 - p), rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("logits", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("target", [torch.float32, torch.uint8, torch.bool, torch.int64, torch.bfloat16], ids=str)
def test_logits_and_targets_are_read_in_their_own_types(logits, target, triton_on_cpu, batch, naive):
    sample, step = batch(150, rows=2, dtype=torch.float32), steps.Linear(0.1)
    x, y = sample.logits.to(logits), sample.target.to(target)
    counts = triton_on_cpu.counts(x, y, None, step.kind, step.number, 0.5)
    assert counts.dtype == torch.float32
    wide = x.double().requires_grad_()
    expected = naive.counts(wide, y.double(), None, step, 0.5)
    torch.testing.assert_close(counts.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    upstream = torch.tensor([1.0, 2.0, 3.0, 4.0]).unsqueeze(1).expand(4, 2)
    grad = triton_on_cpu.gradient(x, y, None, upstream, step.kind, step.number, 0.5)
    assert grad.dtype == logits
    (wanted,) = torch.autograd.grad(expected, wide, upstream.double())
    torch.testing.assert_close(grad.double(), wanted, rtol=1e-2 if logits != torch.float32 else 1e-4, atol=1e-6)
