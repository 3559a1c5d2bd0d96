"""The Triton kernels of pointwise losses against plain operations in float64, on a CUDA device."""

import pytest
import torch

from metricfit import SurrogateFBetaLoss
from metricfit.core.kernels.pointwise import kernel_applies
from metricfit.losses import FocalLoss, MAELoss, MarginLoss, MSFELoss, WeightedBCELoss
from metricfit.losses.surrogate import SurrogateTverskyLoss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LOSSES = [
    WeightedBCELoss(3.0),
    FocalLoss(2.0),
    FocalLoss(1.5, asymmetric=True),
    MarginLoss(0.5),
    MarginLoss(2.0, asymmetric=True),
    MAELoss(),
    MSFELoss(),
    SurrogateFBetaLoss(2.0, prior=0.1),
    SurrogateTverskyLoss(0.3, 0.7, prior=0.1, q=0.5),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("n", [1, 5, 1024, 10_007])
def test_value_and_gradient_are_those_of_plain_operations_in_float64(loss, weighted, n):
    generator = torch.Generator("cuda").manual_seed(n)
    x = 5 * torch.randn(n, device="cuda", generator=generator)
    x[::7] *= 20
    y = (torch.rand(n, device="cuda", generator=generator) < 0.3).float()
    y[::5] = 0.3
    w = torch.rand(n, device="cuda", generator=generator) if weighted else None
    leaf, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    assert kernel_applies(leaf, y, w)
    value = loss(leaf, y, w)
    expected = loss(exact, y.double(), None if w is None else w.double())
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-7)
    (gradient,) = torch.autograd.grad(2 * value, leaf, retain_graph=True)
    (wanted,) = torch.autograd.grad(2 * expected, exact)
    rounding = 1e-12 + 1e-6 * wanted.abs().max().item()  # 1e-12: of the gradients of plain operations in float64
    torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=rounding)
    (again,) = torch.autograd.grad(2 * value, leaf)
    torch.testing.assert_close(again, gradient)


def test_a_shape_of_several_labels_and_a_target_of_integers():
    x = torch.randn(64, 3, device="cuda", requires_grad=True)
    y = (torch.rand(64, 3, device="cuda") < 0.3).long()
    loss = FocalLoss(2.0)
    torch.testing.assert_close(loss(x, y).double(), loss(x.double(), y))
    loss(x, y).backward()
    assert x.grad.shape == (64, 3)


def test_no_array_but_the_gradient_is_kept():
    n = 2**22
    x = torch.randn(n, device="cuda", requires_grad=True)
    y = (torch.rand(n, device="cuda") < 0.3).float()
    torch.autograd.grad(FocalLoss(2.0)(x, y), x)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.autograd.grad(FocalLoss(2.0)(x, y), x)
    assert torch.cuda.max_memory_allocated() - before < 1.1 * 4 * n
