"""A binary loss or requirement on a CUDA device: value and gradient of the CPU, in few launches, without waiting."""

import pytest
import torch
from torch import nn
from waiting import forbid_waiting

from metricfit import AugmentedLagrangian, MetricLoss, steps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CASES = [
    ("f1", None, 4096, torch.float32),
    ("mcc", steps.Sigmoid(12), 5000, torch.int64),
    ("fbeta(beta=2)", steps.Identity(), 100, torch.bool),
    ("gmean", steps.RaisedCosine(0.3), 300_000, torch.uint8),
    ("2*tp/(2*tp + fp + fn)", None, 5_000_003, torch.float32),
]


def value_and_gradient(loss, x, y, w):
    x = x.detach().requires_grad_()
    value = loss(x, y, w)
    return value.detach(), torch.autograd.grad(value, x)[0]


@pytest.mark.parametrize(("name", "step", "n", "dtype"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_value_and_the_gradient_are_those_of_the_cpu(name, step, n, dtype, weighted):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, generator=generator), (torch.rand(n, generator=generator) < 0.3).to(dtype)
    w = torch.rand(n, generator=generator) if weighted else None
    value, slope = value_and_gradient(
        MetricLoss(name, step=step, threshold=0.4), x.cuda(), y.cuda(), None if w is None else w.cuda()
    )
    wide = value_and_gradient(
        MetricLoss(name, step=step, threshold=0.4), x.double(), y, None if w is None else w.double()
    )
    torch.testing.assert_close(value.cpu().double(), wide[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(slope.cpu().double(), wide[1], rtol=1e-3, atol=1e-5 * wide[1].abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_of_half_precision_are_scaled_before_they_are_rounded(dtype):
    """Without the factor most of them would be 0 in float16."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(30_000, generator=generator).to(dtype), torch.rand(30_000, generator=generator) < 0.3
    given, wide = (logits.detach().requires_grad_() for logits in (x.cuda(), x.double()))
    (slope,) = torch.autograd.grad(2.0**14 * MetricLoss("f1")(given, y.cuda()), given)
    (expected,) = torch.autograd.grad(2.0**14 * MetricLoss("f1")(wide, y), wide)
    assert slope.dtype == dtype
    torch.testing.assert_close(slope.cpu().double(), expected, rtol=1e-2, atol=1e-3 * expected.abs().max().item())


def kernels_of_a_pass(loss, x, y):
    """Return the names of the kernels that a pass launches after the first ones; it must not wait for the device."""
    for _ in range(3):
        loss(x, y).backward()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        with forbid_waiting():
            torch.autograd.grad(loss(x, y), x)
        torch.cuda.synchronize()
    return [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_a_pass_launches_few_kernels_and_does_not_wait():
    x, y = torch.randn(4096, device="cuda", requires_grad=True), torch.ones(4096, device="cuda")
    kernels = kernels_of_a_pass(MetricLoss("f1"), x, y)
    assert len(kernels) <= 40, kernels


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
@pytest.mark.parametrize("moved", [False, True], ids=["mu on the CPU", "mu on the GPU"])
def test_a_requirement_adds_few_kernels(moved):
    x, y = torch.randn(4096, device="cuda", requires_grad=True), torch.ones(4096, device="cuda")
    loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), ["recall >= 0.9"])
    plain, ours = (
        kernels_of_a_pass(nn.BCEWithLogitsLoss(), x, y),
        kernels_of_a_pass(loss.cuda() if moved else loss, x, y),
    )
    assert len(ours) <= len(plain) + 80, ours


@pytest.mark.parametrize("requirement", ["recall >= 0.9", "fpr <= 0.05", "mcc >= 0.9", "selection_rate == 0.2"])
@pytest.mark.parametrize(("n", "weighted", "moved"), [(1000, False, False), (1000, True, True), (300_001, True, False)])
def test_constraints_have_the_terms_and_the_multipliers_of_the_cpu(requirement, n, weighted, moved):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, generator=generator), (torch.rand(n, generator=generator) < 0.3)
    w = torch.rand(n, generator=generator) if weighted else None
    ours, wide = (AugmentedLagrangian(MetricLoss("f1"), [requirement], mu=0.7) for _ in range(2))
    ours = ours.cuda() if moved else ours
    for step in range(4):
        value, slope = value_and_gradient(ours, x.cuda(), y.cuda(), None if w is None else w.cuda())
        expected = value_and_gradient(wide, x.double(), y, None if w is None else w.double())
        torch.testing.assert_close(value.cpu().double(), expected[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            slope.cpu().double(), expected[1], rtol=1e-3, atol=1e-5 * expected[1].abs().max().item()
        )
        (seen,), (wide_seen,) = ([part.seen for part in loss.constraints] for loss in (ours, wide))
        torch.testing.assert_close(seen.cpu(), wide_seen, rtol=1e-9, atol=0.0)
        if step % 2:
            ours.update(), wide.update()
        (multiplier,), (expected_multiplier,) = ours.multipliers.values(), wide.multipliers.values()
        torch.testing.assert_close(multiplier.cpu().double(), expected_multiplier, rtol=1e-5, atol=1e-6)


def test_a_state_on_the_cpu_is_loaded_into_a_loss_on_the_gpu():
    x, y = torch.randn(1000), (torch.rand(1000) < 0.3).float()
    trained = AugmentedLagrangian(MetricLoss("f1"), ["recall >= 0.99"])
    trained(x.requires_grad_(), y)
    trained.update()
    trained(x, y)
    loaded = AugmentedLagrangian(MetricLoss("f1"), ["recall >= 0.99"]).cuda()
    loaded.load_state_dict(trained.state_dict())
    on_gpu = x.detach().cuda().requires_grad_()
    torch.testing.assert_close(loaded(on_gpu, y.cuda()).cpu(), trained(x, y), rtol=1e-5, atol=1e-6)
    loaded.update()
    trained.update()
    (given,), (expected,) = loaded.multipliers.values(), trained.multipliers.values()
    assert given.is_cuda
    torch.testing.assert_close(given.cpu(), expected, rtol=1e-5, atol=1e-6)
