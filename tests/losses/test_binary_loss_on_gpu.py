"""A binary loss or requirement on a GPU as one or three Triton programs, run on the CPU with a stand-in for Triton."""

import sys
from pathlib import Path

import pytest
import torch

from metricfit import MetricLoss, metrics, steps
from metricfit.core import batch_counts
from metricfit.core.kernels import binary, binary_cpu
from metricfit.metrics.metric import Metric

sys.path.insert(0, str(Path(__file__).parent.parent / "core"))
import triton_stand_in

NAMES = sorted(name for name, metric in vars(metrics).items() if isinstance(metric, Metric) and not metric.needs_matrix)
NAMES += ["fbeta(beta=2)", "tversky(alpha=0.3, beta=0.7)", "cost(fp=1, fn=10)", "2*tp/(2*tp + fp + fn)"]


@pytest.fixture
def on_gpu(monkeypatch):
    """Take batches on the CPU for batches on a GPU; the list has an entry for each batch that was counted so."""
    triton_stand_in.install(monkeypatch, "triton.binary")
    programs = sys.modules["metricfit.core.kernels.triton.binary"]
    for name, value in {"BLOCK": 16, "LOOPS": 2, "PART": 32}.items():
        monkeypatch.setattr(programs, name, value)
    monkeypatch.setattr(binary, "takes_triton", lambda logits: logits.dtype != torch.float64)
    monkeypatch.setattr(binary_cpu, "handles", lambda logits: False)
    monkeypatch.setattr(batch_counts, "_is_on_gpu", lambda logits: logits.dtype != torch.float64)
    monkeypatch.setattr(batch_counts, "_is_plain", lambda *tensors: True)
    evaluated, counts = [], programs.counts
    monkeypatch.setattr(programs, "counts", lambda *given: evaluated.append(1) or counts(*given))
    yield evaluated
    triton_stand_in.remove("triton.binary")


def samples(n=150):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, generator=generator), torch.rand(n, generator=generator) < 0.3
    return x + y, y, torch.rand(n, generator=generator)


def value_and_gradient(loss, x, *rest):
    leaf = x.detach().clone().requires_grad_()
    value = loss(leaf, *rest)
    return value.detach(), torch.autograd.grad(3.0 * value, leaf)[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_of_counts(name, on_gpu):
    x, y, w = samples()
    value, gradient = value_and_gradient(MetricLoss(name, threshold=0.4), x, y, w)
    assert on_gpu
    wide, slope = value_and_gradient(MetricLoss(name, threshold=0.4), x.double(), y.double(), w.double())
    torch.testing.assert_close(value.double(), wide, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-4, atol=1e-6 * slope.abs().max().item())


@pytest.mark.parametrize("step", [steps.Sigmoid(5), steps.Identity(), steps.RaisedCosine(0.4)], ids=repr)
def test_other_steps_types_and_shapes(step, on_gpu):
    x, y, _ = samples()
    value, gradient = value_and_gradient(
        MetricLoss("f1", step=step), x.view(-1, 1).half(), y.view(-1, 1).to(torch.uint8)
    )
    assert on_gpu
    assert (value.dtype, gradient.dtype, gradient.shape) == (torch.float32, torch.float16, (150, 1))
    wide, slope = value_and_gradient(MetricLoss("f1", step=step), x.half().double(), y.double())
    torch.testing.assert_close(value.double(), wide, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(gradient.view(-1).double(), slope, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("name", ["f1", "mcc", "gmean", "p4"])
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only(name, label, on_gpu):
    x, y = torch.randn(5), torch.full((5,), float(label))
    value, gradient = value_and_gradient(MetricLoss(name), x, y)
    wide, slope = value_and_gradient(MetricLoss(name), x.double(), y.double())
    torch.testing.assert_close((value.double(), gradient.double()), (wide, slope), rtol=1e-5, atol=1e-6)


def test_second_derivatives_several_gradients_and_loss_in_place(on_gpu):
    x, y, _ = samples(20)
    x, y = x.requires_grad_(), y.float()  # the CPU's kernel, which computes the second derivative here, needs floats
    loss = MetricLoss("f1")
    value = loss(x, y)
    scales = torch.tensor([1.0, -2.0])
    (both,) = torch.autograd.grad(value, x, scales, is_grads_batched=True, retain_graph=True)
    (one,) = torch.autograd.grad(value, x, retain_graph=True)
    torch.testing.assert_close(both, scales[:, None] * one)
    value /= 2  # as in an accumulation of gradients
    torch.testing.assert_close(torch.autograd.grad(value, x)[0], one / 2)
    assert loss.left_out() == []
    (slope,) = torch.autograd.grad(loss(x, y), x, create_graph=True)
    torch.testing.assert_close(slope, one)
    wide = x.detach().double().requires_grad_()
    (wide_slope,) = torch.autograd.grad(MetricLoss("f1")(wide, y.double()), wide, create_graph=True)
    second, expected = (torch.autograd.grad(s.square().sum(), z)[0] for s, z in ((slope, x), (wide_slope, wide)))
    torch.testing.assert_close(second.double(), expected, rtol=1e-4, atol=1e-8)
