"""Divisions, roots and tails: right in value, finite in gradient."""

import math

import numpy as np
import pytest
import torch

from metricfit.core.numerics import clip, fits_float32, is_positive, ratio, root
from metricfit.core.tensor_numerics import mix_by_label, stable_sigmoid, tails


def gradient(value, *leaves):
    return [given.tolist() for given in torch.autograd.grad(value.sum(), leaves)]


def test_ratio_is_0_with_zero_gradient_where_the_denominator_is():
    a = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([4.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    value = ratio(a, b)
    assert value.tolist() == [0.25, 0, 0]
    assert gradient(value, a, b) == [[0.25, 0, 0], [-1 / 16, 0, 0]]


def test_root_is_0_with_zero_gradient_at_0_and_below():
    x = torch.tensor([4.0, 0.0, -1e-9], dtype=torch.float64, requires_grad=True)
    assert root(x).tolist() == [2, 0, 0]
    assert gradient(root(x), x) == [[0.25, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_both_tails_keep_their_digits(dtype):
    x = torch.linspace(-75, 75, 301, dtype=dtype)
    p, q = tails(x)
    rounding = 1e-5 if dtype == torch.float32 else 1e-13
    assert p.tolist() == pytest.approx([1 / (1 + math.exp(-v)) for v in x.tolist()], rel=rounding, abs=0)
    assert q.tolist() == pytest.approx([1 / (1 + math.exp(v)) for v in x.tolist()], rel=rounding, abs=0)


def test_tails_of_infinite_logits_are_finite():
    x = torch.tensor([math.inf, -math.inf, 1e4, -1e4], requires_grad=True)
    p, q = tails(x)
    assert p.tolist() == pytest.approx([1, 0, 1, 0], abs=1e-30)
    assert gradient(p + 2 * q, x) == [[0, 0, 0, 0]]


def test_stable_sigmoid_keeps_its_gradient_where_torchs_is_dead():
    x = torch.tensor([-60.0, -20.0, 0.0, 20.0, 60.0], requires_grad=True)
    (grad,) = torch.autograd.grad(stable_sigmoid(x).sum(), x)
    expected = [1 / (1 + math.exp(-v)) / (1 + math.exp(v)) for v in x.tolist()]
    assert grad.tolist() == pytest.approx(expected, rel=1e-5, abs=0)
    (dead,) = torch.autograd.grad(torch.sigmoid(x).sum(), x)
    assert dead[3] == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_decisions_compare_logits_in_float64(dtype, as_tensor):
    logits = torch.linspace(-40, 40, 4001).to(dtype)
    for threshold in (1e-12, 0.1, 0.3, 0.5, 0.9, 1 - 1e-9, 1 - 1e-15):
        bound = math.log(threshold) - math.log1p(-threshold)
        given = torch.tensor(threshold, dtype=torch.float64) if as_tensor else threshold
        clear = (logits.double() - bound).abs() > 1e-13 * max(1.0, abs(bound))  # of the last bits of the logarithm
        assert torch.equal(is_positive(logits, given)[clear], (logits.double() >= bound)[clear])


def test_decisions_at_the_ends():
    logits = torch.tensor([-math.inf, -1e30, 0.0, 1e30, math.inf])
    assert is_positive(logits, 0.0).tolist() == [True] * 5
    assert is_positive(logits, -1.0).tolist() == [True] * 5
    assert is_positive(logits, 1.0).tolist() == [False, False, False, True, True]  # the probabilities that are 1
    assert is_positive(logits, math.inf).tolist() == [False] * 5
    assert is_positive(logits, 0.5).tolist() == [False, False, True, True, True]


def test_float32_numbers_are_recognised():
    generator = torch.Generator().manual_seed(0)
    singles = torch.rand(1000, generator=generator).double() * 10.0 ** torch.randint(
        -44, 1, (1000,), generator=generator
    )
    for numbers, expected in ((singles.float().double(), 1.0), (singles * (1 + 2.0**-40), 0.0)):
        agrees = numbers.float().double() == numbers
        assert agrees.double().mean().item() == pytest.approx(expected, abs=0.1)
        assert torch.equal(fits_float32(numbers), agrees)
        assert [fits_float32(number) for number in numbers.tolist()] == agrees.tolist()
    assert fits_float32(0.0)
    assert fits_float32(-1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_tails_of_the_sigmoid_have_an_exact_gradient(dtype):
    logits = torch.tensor([-79.0, -60.0, -30.0, -1.0, 0.0, 1.0, 30.0, 60.0, 79.0], dtype=dtype, requires_grad=True)
    p, q = tails(logits)
    wide = logits.detach().double()
    slope = (wide.sigmoid() * (-wide).sigmoid()).to(dtype)
    rtol = 1e-6 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(torch.autograd.grad(p.sum(), logits, retain_graph=True)[0], slope, rtol=rtol, atol=0)
    torch.testing.assert_close(torch.autograd.grad(q.sum(), logits)[0], -slope, rtol=rtol, atol=0)


@pytest.mark.parametrize("if_negative", [1.0, 1e-9, -1e9])
@pytest.mark.parametrize("if_positive", [3.0, -1e-9, 1e9])
def test_a_mixture_by_label_keeps_the_digits_of_both_numbers(if_negative, if_positive):
    labels = torch.tensor([0.0, 1.0, 0.25])
    expected = [if_negative, if_positive, 0.75 * if_negative + 0.25 * if_positive]
    assert mix_by_label(labels, if_negative, if_positive).tolist() == pytest.approx(expected, rel=1e-6, abs=0)
    out = torch.empty(3)
    mix_by_label(labels, if_negative, if_positive, out=out)
    assert out.tolist() == pytest.approx(expected, rel=1e-6, abs=0)


def test_a_number_of_numpy_stays_one_where_it_is_clipped():
    assert isinstance(clip(np.float64(1.0 + 1e-15), -1.0, 1.0), np.float64)
