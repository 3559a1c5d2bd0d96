"""Violations of one set of scores: their gradients, and torch's transforms of them, against all pairs."""

import pytest
import torch

from metricfit.core.kernels import pairs

MARGIN = 0.5
every_power = pytest.mark.parametrize("power", [1, 2, 3])


def samples(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    score, weight, upstream = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    return score, weight.abs() * (weight > -0.3), upstream


def naive(score, weight, power, margin=MARGIN):
    gaps = score.unsqueeze(-2) + margin - score.unsqueeze(-1)
    return (torch.where(gaps > 0, gaps.clamp(min=0) ** power, 0.0) * weight.unsqueeze(-2)).sum(-1)


@every_power
@pytest.mark.parametrize("kind", ["normal", "ties", "far from 0", "no margin", "a margin that rounds to 0"])
@pytest.mark.parametrize("rows", [1, 3])
def test_sums_and_gradients(power, kind, rows):
    score, weight, upstream = samples(rows, 40)
    margin = 0.0 if kind == "no margin" else MARGIN
    score = {"ties": score.mul(2).round() / 2, "far from 0": score + 1000.0}.get(kind, score)
    if kind == "a margin that rounds to 0":
        score = score * 1e18
    score.requires_grad_()
    expected = naive(score, weight, power, margin)
    (gradient,) = torch.autograd.grad(expected, score, upstream)
    sums = pairs.violations(score, weight, margin, power)
    scale = score.detach().abs().max().item()
    torch.testing.assert_close(sums, expected, rtol=1e-12, atol=1e-13 * scale**power)
    (found,) = torch.autograd.grad(sums, score, upstream)
    torch.testing.assert_close(found, gradient, rtol=1e-11, atol=1e-12 * scale ** (power - 1))


@every_power
def test_gradients_of_first_and_second_order(power):
    score, weight, _ = samples(2, 5)
    leaves = score.requires_grad_(), weight.requires_grad_()

    def total(*given):
        return pairs.violations(*given, MARGIN, power)

    assert torch.autograd.gradcheck(total, leaves)
    if power > 1:
        assert torch.autograd.gradgradcheck(total, leaves)


def test_transforms():
    score, weight, _ = samples(4, 6)

    def total(score, weight):
        return pairs.violations(score, weight, MARGIN, 2).sum()

    leaf = score.clone().requires_grad_()
    (expected,) = torch.autograd.grad(naive(leaf, weight, 2).sum(), leaf)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(total))(score, weight), expected)
    (mapped,) = torch.autograd.grad(torch.func.vmap(total)(leaf, weight).sum(), leaf)
    torch.testing.assert_close(mapped, expected)
    rows = torch.autograd.functional.jacobian(
        lambda score: pairs.violations(score, weight[0], MARGIN, 2), score[0], vectorize=True
    )
    twin = torch.autograd.functional.jacobian(lambda score: naive(score, weight[0], 2), score[0])
    torch.testing.assert_close(rows, twin)


def test_weights_of_all_members_of_a_vmapped_batch():
    score, weight, _ = samples(3, 6)
    found = torch.func.vmap(lambda score: pairs.violations(score, weight[0], MARGIN, 1))(score)
    torch.testing.assert_close(found, naive(score, weight[0].expand(3, 6), 1))
