"""Sums over all pairs by sorting, against all pairs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit.core import pairs

POWERS = [0, 1, 2, 3]


@pytest.fixture(autouse=True)
def always_sorted(monkeypatch):
    monkeypatch.setattr(pairs, "FEW", 0)


def by_pairs(queries, points, weight, power):
    """The twin: every pair."""
    gaps = points[None, :] - queries[:, None]
    return (torch.where(gaps > 0, gaps.clamp(min=0) ** power, 0.0) * weight).sum(1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 10**6),
    st.sampled_from((1, 2, 3)),
    st.sampled_from((1.0, 30.0)),
)
def test_values_and_gradients_are_those_of_all_pairs(m, n, seed, power, spread):
    generator = torch.Generator().manual_seed(seed)
    x, y = ((torch.randn(size, generator=generator) * spread).round().double() for size in (m, n))  # with ties
    w = torch.rand(n, generator=generator).double()
    leaves = [given.requires_grad_() for given in (x, y, w)]
    upstream = torch.randn(m, generator=generator).double()
    found, expected = pairs.hinge_sums(x, y, w, power), by_pairs(x, y, w, power)
    tolerance = 1e-13 * max(1, m + n) * (spread * 8 + 1) ** power
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    for ours, theirs in zip(
        torch.autograd.grad(found, leaves, upstream), torch.autograd.grad(expected, leaves, upstream), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("power", POWERS)
def test_many_points_in_float32_agree_with_float64(power):
    generator = torch.Generator().manual_seed(0)
    x, y, w = torch.randn(300, generator=generator), torch.randn(20_000, generator=generator) + 1, torch.rand(20_000)
    expected = by_pairs(x.double(), y.double(), w.double(), power)
    torch.testing.assert_close(pairs.hinge_sums(x, y, w, power).double(), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("power", POWERS[1:])
def test_gradients_are_differentiable_again_and_vmapped(power):
    x, y, w = (torch.randn(3, 6, dtype=torch.float64) for _ in range(3))
    single = [pairs.hinge_sums(*row, power) for row in zip(x, y, w, strict=True)]
    torch.testing.assert_close(
        torch.func.vmap(lambda *row: pairs.hinge_sums(*row, power))(x, y, w), torch.stack(single)
    )
    torch.testing.assert_close(pairs.hinge_sums(x, y, w, power), torch.stack(single))
    leaves = tuple(given[0].clone().requires_grad_() for given in (x, y, w))
    assert torch.autograd.gradcheck(lambda *given: pairs.hinge_sums(*given, power), leaves)
    if power > 1:
        assert torch.autograd.gradgradcheck(lambda *given: pairs.hinge_sums(*given, power), leaves)


@pytest.mark.parametrize("power", POWERS[1:])
def test_compiled_values_and_gradients_are_those_of_all_pairs(power):
    leaves = [torch.randn(7, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    compiled = torch.compile(lambda *given: pairs.hinge_sums(*given, power).sum(), fullgraph=True, backend="aot_eager")
    expected = by_pairs(*leaves, power).sum()
    torch.testing.assert_close(compiled(*leaves), expected)
    for ours, theirs in zip(
        torch.autograd.grad(compiled(*leaves), leaves), torch.autograd.grad(expected, leaves), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
