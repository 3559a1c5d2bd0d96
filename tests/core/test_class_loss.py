"""Losses of exclusive classes from logits to value on a GPU, run on a stand-in for Triton, against ``count_soft``."""

import pytest
import torch
import triton_stand_in

from metricfit import Counts, MetricLoss, steps
from metricfit.core import class_loss
from metricfit.core.class_formula import FormulaOnDevice
from metricfit.core.class_loss import ClassSettings, evaluate_classes

MODULES = ("triton_source", "classes_triton_source", "classes_triton_large")
SHAPES = [(30, 5), (2, 3, 4, 5)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=["rows", "images"])


@pytest.fixture(autouse=True)
def gpu_on_cpu(monkeypatch):
    triton_stand_in.install(monkeypatch, *MODULES)
    monkeypatch.setattr(class_loss, "_is_batch_on_device", lambda *batch: True)
    yield
    triton_stand_in.remove(*MODULES)


def make(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(dtype)
    y = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)
    return x, y, torch.rand(y.shape, generator=generator) + 0.5


def evaluate(x, y, w=None, step=None, threshold=None, ignore_index=None):
    formula = MetricLoss("f1")._loss_of
    settings = ClassSettings(None, step, threshold, ignore_index, None)
    return evaluate_classes(FormulaOnDevice(), formula, ("f1", None), x, y, w, settings)


def compare(x, y, w=None, tolerance=1e-5, **settings):
    """Compare value, gradient and counts with those of count_soft in float64."""
    x = x.requires_grad_()
    value, counts = evaluate(x, y, w, **settings)
    (given,) = torch.autograd.grad(2 * value, x)
    wide = x.detach().double().requires_grad_()
    weight = None if w is None else w.double()
    expected = MetricLoss("f1", **settings)(wide, y, weight)
    (wanted,) = torch.autograd.grad(2 * expected, wide)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
    assert given.dtype == x.dtype
    torch.testing.assert_close(given.double(), wanted, rtol=tolerance, atol=tolerance * wanted.abs().max().item())
    assert not counts.requires_grad
    cells = torch.stack(tuple(Counts.soft(wide.detach(), y, weight=weight, **settings)))
    torch.testing.assert_close(counts.double(), cells, rtol=1e-5, atol=1e-5)


@every_shape
@pytest.mark.parametrize(
    "settings",
    [{}, {"threshold": 0.3}, {"threshold": "dynamic", "step": steps.Sigmoid(9)}, {"step": steps.Identity()}],
    ids=["default", "fixed", "sigmoid", "identity"],
)
def test_value_gradient_and_counts(shape, settings):
    x, y, w = make(shape)
    compare(x, y, **settings)
    compare(x.detach(), y, w, **settings)


@every_shape
def test_ignored_samples_may_hold_nan(shape):
    x, y, _ = make(shape)
    y[..., 0] = -100
    x = torch.where((y == -100).unsqueeze(1), float("nan"), x)
    compare(x, y, ignore_index=-100)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype):
    x, y, w = make((30, 3), dtype)
    different = x.sort(1).values.diff(dim=1).ne(0).all(1)  # equal logits share a gradient that plain operations do not
    compare(x[different], y[different], w[different], tolerance=2**-8)


def test_channels_last():
    x, y, _ = make((2, 3, 4, 5))
    compare(x.to(memory_format=torch.channels_last), y)


def test_second_derivatives():
    x, y, w = make((30, 5), torch.float64)

    def second(value, x):
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return torch.autograd.grad(first[:, 0].sum(), x)[0]

    wide = x.requires_grad_()
    narrow = x.detach().float().requires_grad_()
    expected = second(MetricLoss("f1")(wide, y, w.double()), wide)
    torch.testing.assert_close(second(evaluate(narrow, y, w)[0], narrow).double(), expected, rtol=1e-3, atol=1e-6)


def test_several_gradients_at_once():
    x, y, _ = make((30, 5))
    x.requires_grad_()
    value = evaluate(x, y)[0]
    (one,) = torch.autograd.grad(value, x, retain_graph=True)
    (several,) = torch.autograd.grad(value, x, torch.tensor([1.0, -2.0]), is_grads_batched=True)
    torch.testing.assert_close(several, torch.stack([one, -2 * one]))


def test_what_the_kernels_do_not_have_is_left_to_others():
    x, y, _ = make((30, 5))
    assert evaluate(x, y, step=steps.Sigmoid(9), threshold=0.3) is None
    assert evaluate(x, y, step=steps.StraightThrough(steps.Linear(0.2))) is None
    assert evaluate(x, y, threshold=torch.tensor(0.3)) is None


def test_batches_on_the_cpu_are_left_to_others(monkeypatch):
    monkeypatch.undo()
    assert evaluate(*make((30, 5))) is None
