"""The Triton programs of exclusive classes on a stand-in for Triton, against loops over samples and classes.

What only a GPU can show (compilation, speed) is left to ``tests/gpu``.
"""

import sys

import pytest
import torch
import triton_stand_in
from class_oracle import IMAGES, PIXELS, ROWS, compare, count, make

from metricfit import steps
from metricfit.core.kernels import classes
from metricfit.core.kernels.soft_classes import StepAt

SHAPES = {"rows": (ROWS, (11, 5)), "pixels": (PIXELS, (2, 3, 7)), "images": (IMAGES, (2, 3, 7))}
STEPS = [steps.Linear(0.2), steps.Sigmoid(k=12), steps.Identity(), steps.RaisedCosine(width=0.25)]
MODULES = ("triton.binary", "triton.classes")

every_step = pytest.mark.parametrize("step", STEPS, ids=repr)
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@pytest.fixture
def programs(monkeypatch):
    triton_stand_in.install(monkeypatch, *MODULES)
    module = sys.modules["metricfit.core.kernels.triton.classes"]
    for name in ("COUNTS", "GRADIENT"):
        monkeypatch.setattr(module, name, module.Launch(tile=8, warps=4, stages=1, programs=3))
    yield module
    triton_stand_in.remove(*MODULES)


@every_step
@every_shape
def test_counts_and_gradients(step, shape, programs, naive):
    compare(programs, naive, *make(*shape), step, shape[0])


@every_shape
def test_true_classes_can_be_counted_one_by_one(shape, programs, naive, monkeypatch):
    monkeypatch.setattr(programs, "SCATTERED", 2)
    compare(programs, naive, *make(*shape), steps.Linear(0.2), shape[0])


@pytest.mark.parametrize("threshold", [0.01, 0.3, 0.7, 0.99])
def test_fixed_thresholds(threshold, programs, naive):
    x, y, _ = make(ROWS, (11, 5))
    compare(programs, naive, x, y, None, steps.Linear(0.2), ROWS, threshold, tolerance=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_read_as_it_is(dtype, programs, naive):
    x, y, w = make(PIXELS, (2, 3, 7), dtype)
    compare(programs, naive, x, y, w, steps.Linear(0.2), PIXELS, tolerance=2**-8)


def test_strides(programs, naive):
    linear = steps.Linear(0.2)
    x, y, w = make(ROWS, (12, 10))
    compare(programs, naive, x[::2, ::2], y[::2] % 5, w[::2], linear, ROWS)
    compare(programs, naive, x.T.contiguous().T, y, w[:1].expand(12), linear, ROWS)
    x, y, w = make(PIXELS, (2, 3, 7))
    compare(programs, naive, x.transpose(1, 2).contiguous().transpose(1, 2), y, w, linear, PIXELS)  # channels last


@pytest.mark.parametrize(("layout", "shape"), [(PIXELS, (2, 3, 7)), (ROWS, (9, 5))], ids=["pixels", "rows"])
def test_leading_axes_are_counted_one_by_one(layout, shape, programs):
    """As under vmap, which passes gradients of counts with their axes in another order in memory."""
    x, y, w = (torch.stack(pair) for pair in zip(make(layout, shape), make(layout, shape), strict=True))
    x[1] *= 2
    y[1] = y[1].flip(0)
    at = StepAt("linear", 0.2, None)
    together = programs.counts(x, y, w, at, layout)
    grad = torch.randn(2, 4, together.shape[-1]).transpose(0, 1)
    gradients = programs.gradient(x, y, w, grad, at, layout)
    for row in range(2):
        torch.testing.assert_close(together[:, row], programs.counts(x[row], y[row], w[row], at, layout))
        alone = programs.gradient(x[row], y[row], w[row], grad[:, row], at, layout)
        torch.testing.assert_close(gradients[row], alone)


def test_equal_and_infinite_logits(programs, naive):
    x = torch.zeros(3, 9)
    x[1, :5] = -torch.inf
    x[2, 7] = 300.0
    at = StepAt("linear", 0.2, None)
    y = torch.tensor([0, 6, 3])
    counts = programs.counts(x, y, None, at, ROWS)
    expected = count(naive, x.double(), y, torch.ones(3), steps.Linear(0.2), None, ROWS)
    torch.testing.assert_close(counts.double(), expected, rtol=1e-5, atol=1e-6)
    gradient = programs.gradient(x, y, None, torch.randn(4, 9), at, ROWS)
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(3), rtol=0, atol=1e-6)  # as of every softmax


def test_equal_logits_share_the_gradient_of_the_threshold(programs):
    """As on the CPU."""
    x = torch.tensor([[0.0, 0.0, 0.0, -1.0, -2.0], [1.0, 0.0, 0.0, 0.0, -1.0], [2.0, 2.0, 0.0, -1.0, -1.0]])
    y, grad, at = torch.tensor([0, 1, 2]), torch.randn(4, 5), StepAt("linear", 0.2, None)
    expected = classes.gradient(x.T.unsqueeze(0), y.unsqueeze(0), None, grad, at, PIXELS)
    torch.testing.assert_close(programs.gradient(x, y, None, grad, at, ROWS), expected[0].T)


@every_shape
@pytest.mark.parametrize("step", STEPS[:2], ids=repr)
def test_what_counting_keeps_makes_no_difference_to_gradients(step, shape, programs, monkeypatch):
    monkeypatch.setattr(programs, "SCATTERED", 2)
    layout, (x, y, w) = shape[0], make(*shape)
    with torch.no_grad():
        x = (2 * x).round() / 2  # equal logits
    at = StepAt(step.kind, step.number, None)
    kept = torch.empty(programs.kept_size(y.numel(), x.shape[layout.class_axis], None))
    assert kept.numel() == 4 * y.numel()
    counts = programs.counts(x, y, w, at, layout, kept)
    torch.testing.assert_close(counts, programs.counts(x, y, w, at, layout))
    grad = torch.randn_like(counts)
    expected = programs.gradient(x, y, w, grad, at, layout)
    torch.testing.assert_close(programs.gradient(x, y, w, grad, at, layout, kept), expected)


@pytest.mark.parametrize("scattered", [2, 64])
@pytest.mark.parametrize("label", [-1, 5])
def test_a_label_out_of_range_makes_the_counts_nan(label, scattered, programs, monkeypatch):
    monkeypatch.setattr(programs, "SCATTERED", scattered)
    x, y, _ = make(ROWS, (11, 5))
    y[3] = label
    assert programs.counts(x, y, None, StepAt("linear", 0.2, None), ROWS).isnan().any()
