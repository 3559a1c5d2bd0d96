"""The Triton programs of sums over pairs, run on the CPU with a stand-in for Triton, against plain operations."""

import sys

import pytest
import torch
import triton_stand_in

from metricfit.core.kernels import pairs
from metricfit.losses import PairHingeLoss


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    triton_stand_in.install(monkeypatch, "triton.pairs")
    module = sys.modules["metricfit.core.kernels.triton.pairs"]
    for name, value in {"BLOCK": 8, "CHUNK": 2, "QUERIES": 16, "PARTS": 3}.items():
        monkeypatch.setattr(module, name, value)
    yield module
    triton_stand_in.remove("triton.pairs")


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("kind", ["normal", "ties", "no margin"])
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (2, 8), (1, 43), (2, 60)])
def test_sums_and_gradients(programs, power, kind, rows, n):
    """In several parts of several blocks, and in more parts than are added at once."""
    generator = torch.Generator().manual_seed(n)
    score, weight, upstream = torch.randn(3, rows, n, generator=generator, dtype=torch.float64)
    margin = 0.0 if kind == "no margin" else 0.5
    if kind == "ties":
        score = score.mul(2).round() / 2
    sums, *parts = programs.sums(score, weight.abs(), margin, power)
    expected = pairs.violations(score.requires_grad_(), weight.abs(), margin, power)
    torch.testing.assert_close(sums, expected.detach(), rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(expected, score, upstream)
    torch.testing.assert_close(programs.gradient(upstream, *parts, margin, power), gradient, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite_spoil_their_row(programs, bad):
    score = torch.randn(2, 20, generator=torch.Generator().manual_seed(0))
    score[0, 7] = bad
    sums, *parts = programs.sums(score, torch.ones_like(score), 0.5, 2)
    assert sums[0].isnan().all()
    assert sums[1].isfinite().all()
    gradient = programs.gradient(torch.ones_like(score), *parts, 0.5, 2)
    assert gradient[0].isnan().all()
    assert gradient[1].isfinite().all()


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("complement", [True, False])
@pytest.mark.parametrize("most_pairs", [0, 10**6], ids=["sorted", "direct"])
def test_means_and_gradients(programs, power, complement, most_pairs, monkeypatch):
    """In rows of which one has no positives."""
    for name, value in {"FEW_QUERIES": 4, "FEW_POINTS": 8, "_most_pairs": lambda _: most_pairs}.items():
        monkeypatch.setattr(programs, name, value)
    generator = torch.Generator().manual_seed(0)
    score, weight = torch.randn(2, 3, 21, generator=generator, dtype=torch.float64)
    positive = (weight > 0.3).double()
    positive[1] = 0.0
    negative = None if complement else weight.abs() * (1 - positive)
    leaf = score.clone().requires_grad_()
    expected = pairs._plain_means(leaf, positive, negative, 0.5, power)
    (gradient,) = torch.autograd.grad(expected.sum(), leaf)
    assert expected[1] == 0
    found = programs.means(score, positive, negative, 0.5, power)
    torch.testing.assert_close(found, (expected.detach(), gradient), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("most_pairs", [0, 10**6], ids=["sorted", "direct"])
def test_means_of_scores_that_are_not_finite(programs, most_pairs, monkeypatch):
    monkeypatch.setattr(programs, "_most_pairs", lambda _: most_pairs)
    score, positive = torch.tensor([[0.0, float("inf"), 1.0], [1.0, 2.0, 3.0]]), torch.tensor([[1.0, 0.0, 0.0]] * 2)
    means, gradient = programs.means(score, positive, None, 0.5, 2)
    assert means.isnan().tolist() == [True, False]
    assert gradient.isnan().all(1).tolist() == [True, False]


def test_means_are_differentiable_twice(programs, monkeypatch):
    monkeypatch.setattr(pairs, "_takes_triton", lambda _: True)
    monkeypatch.setattr(programs, "_most_pairs", lambda _: 10**6)
    score = torch.randn(2, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    positive = torch.tensor([[1.0, 0, 0, 1, 0, 0, 1]] * 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: pairs.pair_means(x, positive, None, 0.5, 2), score)
    assert torch.autograd.gradgradcheck(lambda x: pairs.pair_means(x, positive, None, 0.5, 2), score)


@pytest.mark.parametrize("target", [torch.bool, torch.uint8, torch.int64])
def test_losses_of_one_row_take_labels_of_any_type(programs, target, monkeypatch):
    monkeypatch.setattr(pairs, "_takes_triton", lambda _: True)
    monkeypatch.setattr(programs, "_most_pairs", lambda _: 10**6)
    logits = torch.randn(20, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(20) % 3 == 0
    found = PairHingeLoss()(logits, labels.to(target))
    expected = pairs._plain_means(logits, labels.float(), None, 1.0, 2)
    gradients = (torch.autograd.grad(value, logits)[0] for value in (found, expected))
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(found, expected)
