"""Means over pairs by one sort, and their gradients of two orders, against all pairs."""

import pytest
import torch

from metricfit.core.kernels.pairs import means_and_gradient, pair_means
from metricfit.core.validation import DivergedError

MARGIN = 0.5
N = 512
every_power = pytest.mark.parametrize("power", [1, 2, 3])


def naive(score, positive, negative, margin, power):
    gaps = score.unsqueeze(-2) + margin - score.unsqueeze(-1)
    terms = torch.where(gaps > 0, gaps.clamp(min=0) ** power, 0.0)
    return (positive.unsqueeze(-1) * negative.unsqueeze(-2) * terms).sum() / (positive.sum() * negative.sum())


def samples(labels, dtype=torch.float64, n=N):
    generator = torch.Generator().manual_seed(0)
    score, noise, weight = torch.randn(3, n, generator=generator, dtype=dtype)
    positive = {"hard": (noise > 0).to(dtype), "soft": noise.sigmoid(), "hard, weighted": (noise > 0) * weight.abs()}
    negative = (noise <= 0) * weight.abs() * (weight > -1) if labels == "hard, weighted" else None
    return score, positive[labels], negative


@every_power
@pytest.mark.parametrize("labels", ["hard", "soft", "hard, weighted"])
@pytest.mark.parametrize("kind", ["normal", "ties", "far from 0", "no margin", "no violations"])
def test_means_and_gradients(kind, labels, power):
    score, positive, negative = samples(labels)
    margin = 0.0 if kind == "no margin" else MARGIN
    if kind in ("ties", "no margin"):
        score = score.mul(2).round() / 2  # 0.0 and -0.0 are among them
    if kind == "far from 0":
        score = score + 1000.0
    if kind == "no violations":
        score = torch.where(positive > 0.5, 2.0, 1.0).to(score.dtype)
    score.requires_grad_()
    expected = naive(score, positive, 1 - positive if negative is None else negative, margin, power)
    (gradient,) = torch.autograd.grad(expected, score)
    rows = (None if part is None else part.unsqueeze(0) for part in (score, positive, negative))
    mean, found = means_and_gradient(*rows, margin, power)
    torch.testing.assert_close(mean, expected.detach().reshape(1), rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(found, gradient.unsqueeze(0), rtol=1e-10, atol=1e-15)


@every_power
@pytest.mark.parametrize("labels", ["hard", "soft", "hard, weighted"])
@pytest.mark.parametrize("n", [1, 7, 60])
def test_several_rows(n, labels, power):
    score, positive, negative = (None if part is None else part.reshape(3, n) for part in samples(labels, n=3 * n))
    means, gradients = means_and_gradient(score, positive, negative, MARGIN, power)
    for row in range(3):
        of_row = None if negative is None else negative[row]
        expected = means_and_gradient(score[row], positive[row], of_row, MARGIN, power)
        torch.testing.assert_close((means[row], gradients[row]), expected, rtol=1e-12, atol=1e-14)


@every_power
def test_float32_scores_and_whole_labels(power):
    score, positive, _ = samples("hard", torch.float32)
    mean, gradient = means_and_gradient(score, positive.bool(), None, MARGIN, power)
    expected, wanted = means_and_gradient(score.double(), positive, None, MARGIN, power)
    assert mean.dtype == gradient.dtype == torch.float32
    torch.testing.assert_close(mean.double(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double(), wanted, rtol=1e-6, atol=1e-12)


def test_gradients_of_first_and_second_order():
    score, positive, _ = samples("hard", n=5)

    def mean(score):
        return pair_means(score, positive, None, MARGIN, 2)

    assert mean(score.requires_grad_()).grad_fn.name() == "_FusedMeansBackward"
    assert torch.autograd.gradcheck(mean, score)
    assert torch.autograd.gradgradcheck(mean, score)


def test_transforms_and_gradients_of_weights_take_another_way():
    score, positive, _ = samples("soft")
    expected = means_and_gradient(score, positive, None, MARGIN, 2)

    def mean(score, positive):
        return pair_means(score, positive, None, MARGIN, 2)

    torch.testing.assert_close(torch.func.grad(mean)(score, positive), expected[1])
    torch.testing.assert_close(torch.func.vmap(mean)(score[None], positive[None]), expected[0].reshape(1))
    (of_labels,) = torch.autograd.grad(mean(score, positive.requires_grad_()), positive)
    assert of_labels.abs().max() > 0


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_gives_zero(label):
    score, _, _ = samples("hard")
    mean, gradient = means_and_gradient(score, torch.full_like(score, label), None, MARGIN, 2)
    assert mean == 0
    assert not gradient.any()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite_are_refused(value):
    score, positive, _ = samples("hard")
    score[3] = value
    with pytest.raises(DivergedError, match="1 of 512"):
        pair_means(score, positive, None, MARGIN, 2)


def test_sums_that_overflow_are_nan():
    score, positive, _ = samples("hard")
    mean, _ = means_and_gradient(score * 1e200, positive, None, MARGIN, 2)
    assert mean.isnan()
