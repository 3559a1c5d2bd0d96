"""A binary loss or requirement on a GPU as one or three Triton programs, run on the CPU with a stand-in for Triton."""

import copy
import sys
from pathlib import Path

import pytest
import torch

from metricfit import MetricLoss, metrics, steps
from metricfit.constraints import RequirementConstraint
from metricfit.core import ordinary_batch
from metricfit.core.kernels import binary_triton, formula_triton
from metricfit.metrics import counts_formula
from metricfit.metrics.metric import Metric

sys.path.insert(0, str(Path(__file__).parent.parent / "core"))
import triton_stand_in

NAMES = sorted(name for name, metric in vars(metrics).items() if isinstance(metric, Metric) and not metric.needs_matrix)
NAMES += ["fbeta(beta=2)", "tversky(alpha=0.3, beta=0.7)", "cost(fp=1, fn=10)", "2*tp/(2*tp + fp + fn)"]


@pytest.fixture(params=["one program", "three programs"])
def on_gpu(monkeypatch, request):
    """Take batches on the CPU for batches on a GPU; the list has an entry for each batch that was evaluated so."""
    triton_stand_in.install(monkeypatch, "triton_source")
    for name, value in {"BLOCK": 16, "LOOPS": 2, "PART": 32}.items():
        monkeypatch.setattr(binary_triton, name, value)
    monkeypatch.setattr(formula_triton, "FEW_PARTS", 2)
    monkeypatch.setattr(binary_triton, "handles", lambda logits: logits.dtype != torch.float64)
    monkeypatch.setattr(ordinary_batch, "_is_on_gpu", lambda logits: logits.dtype != torch.float64)
    monkeypatch.setattr(ordinary_batch, "_is_plain", lambda *tensors: True)
    is_small = request.param == "one program"
    monkeypatch.setattr(formula_triton, "BATCH_BLOCK", 16)
    formula_triton._settings.cache_clear()
    monkeypatch.setattr(counts_formula, "SMALL_BATCH", 2**16 if is_small else 0)
    function = counts_formula._ValueOfSmallBatchOnGPU if is_small else counts_formula._ValueOnGPU
    evaluated, forward = [], function.forward
    monkeypatch.setattr(function, "forward", lambda *given: evaluated.append(1) or forward(*given))
    yield evaluated
    formula_triton._settings.cache_clear()
    triton_stand_in.remove("triton_source")


def samples(n=150):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, generator=generator), torch.rand(n, generator=generator) < 0.3
    return x + y, y, torch.rand(n, generator=generator)


def value_and_gradient(loss, x, *rest):
    leaf = x.detach().clone().requires_grad_()
    value = loss(leaf, *rest)
    return value.detach(), torch.autograd.grad(3.0 * value, leaf)[0]


@pytest.mark.parametrize("on_gpu", ["one program"], indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_every_metric_of_counts(name, on_gpu):
    x, y, w = samples()
    value, gradient = value_and_gradient(MetricLoss(name, threshold=0.4), x, y, w)
    assert on_gpu
    wide, slope = value_and_gradient(MetricLoss(name, threshold=0.4), x.double(), y.double(), w.double())
    torch.testing.assert_close(value.double(), wide, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-4, atol=1e-6 * slope.abs().max().item())


@pytest.mark.parametrize("step", [steps.Sigmoid(5), steps.Identity(), steps.RaisedCosine(0.4)], ids=repr)
def test_other_steps_types_and_shapes(step, on_gpu, monkeypatch):
    x, y, _ = samples()
    monkeypatch.setattr(formula_triton, "PARTS", 4)  # more parts are added before the launch
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


@pytest.mark.parametrize("requirement", ["recall >= 0.9", "fpr <= 0.05", "mcc >= 0.9", "selection_rate == 0.2"])
@pytest.mark.parametrize("on_device", [[False, False], [True, False], [True, True]], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_requirement(requirement, on_device, weighted, on_gpu, monkeypatch):
    """Its multiplier and mu lie on the device, where the program reads them, or on the CPU."""
    x, y, w = samples()
    w = w if weighted else None
    penalty = torch.tensor(0.7, dtype=torch.float64)
    given, wide = RequirementConstraint(requirement, threshold=0.4), RequirementConstraint(requirement, threshold=0.4)
    # The first batch settles the shape of the multiplier.
    given(x.clone().requires_grad_(), y.float(), penalty, weight=w)
    wide(x.double().requires_grad_(), y.double(), penalty, weight=None if w is None else w.double())
    assert not on_gpu
    places = {id(tensor): there for tensor, there in zip((given.multiplier, penalty), on_device, strict=True)}
    monkeypatch.setattr(counts_formula, "_is_on_device", lambda tensor: places.get(id(tensor), False))
    for round in range(2):
        value, gradient = value_and_gradient(lambda x, y: given(x, y, penalty, weight=w), x, y)
        weights = None if w is None else w.double()
        expected = value_and_gradient(lambda x, y: wide(x, y, penalty, weight=weights), x.double(), y.double())  # noqa: B023
        torch.testing.assert_close(value.double(), expected[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient.double(), expected[1], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(given.seen, wide.seen, rtol=1e-12, atol=0.0)
        given.update(penalty)
        wide.update(penalty)
        torch.testing.assert_close(given.multiplier.double(), wide.multiplier, rtol=1e-5, atol=1e-6)
        assert len(on_gpu) == round + 1


def warm_requirement(x, y, penalty):
    """Return a constraint whose multiplier exists and is above 0."""
    constraint = RequirementConstraint("recall >= 0.9")
    constraint(x.detach().requires_grad_(), y.float(), penalty)
    constraint.update(penalty)
    assert constraint.multiplier > 0
    return constraint


def test_a_requirement_has_second_derivatives_at_the_multiplier_of_the_forward_pass(on_gpu):
    x, y, _ = samples(30)
    x, y, penalty = x.requires_grad_(), y.float(), torch.tensor(0.7, dtype=torch.float64)
    constraint = warm_requirement(x, y, penalty)
    term = constraint(x, y, penalty)
    assert on_gpu
    (before,) = torch.autograd.grad(term, x, retain_graph=True)
    constraint.update(penalty)
    (after,) = torch.autograd.grad(term, x, create_graph=True)
    torch.testing.assert_close(after, before)
    assert after.requires_grad


def test_the_multiplier_and_mu_can_have_gradients(on_gpu):
    x, y, _ = samples(30)
    y, penalty = y.float(), torch.tensor(0.7, requires_grad=True)
    constraint = warm_requirement(x, y, penalty.detach())
    constraint.multiplier = constraint.multiplier.clone().requires_grad_()
    violation = 0.9 - MetricLoss("recall")(x, y).neg().add(1)
    of_multiplier, of_penalty = torch.autograd.grad(constraint(x, y, penalty), (constraint.multiplier, penalty))
    active = constraint.multiplier + penalty * violation  # of (active^2 - multiplier^2) / (2 mu)
    assert active > 0
    torch.testing.assert_close(of_multiplier, ((active - constraint.multiplier) / penalty).detach())
    expected = (2 * active * violation * penalty - active**2 + constraint.multiplier**2) / (2 * penalty**2)
    torch.testing.assert_close(of_penalty, expected.detach().squeeze(), rtol=1e-4, atol=1e-6)


def test_copies_of_a_loss_have_one_program(on_gpu):
    x, y, _ = samples(30)
    loss = MetricLoss("f1")
    loss(x, y)
    copied = copy.deepcopy(loss)
    copied(x, y)
    (first,), (second,) = (each._formula._recorded.values() for each in (loss, copied))
    assert first[1] is not second[1]
    assert first[1]._of_batch is second[1]._of_batch
