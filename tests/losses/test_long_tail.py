"""Losses for long tails, against their formulas written out sample by sample."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.losses import LDAMLoss, LogitAdjustedLoss
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss

COUNTS = (500, 60, 3)
Z = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3
W = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def mean_over_samples(loss_of_sample, z, y, w):
    losses = [float(weight) * loss_of_sample(row, int(label)) for row, label, weight in zip(z, y, w, strict=True)]
    return sum(losses) / float(w.sum())


def cross_entropy(logits, label):
    return math.log(sum(math.exp(logit) for logit in logits)) - logits[label]


@pytest.mark.parametrize("tau", [0.0, 1.0, 2.5])
def test_logit_adjustment_adds_the_logarithm_of_the_shares(tau):
    def of_sample(row, label):
        return cross_entropy([float(x) + tau * math.log(n / 563) for x, n in zip(row, COUNTS, strict=True)], label)

    value = LogitAdjustedLoss(COUNTS, tau)(Z, Y, W)
    assert value.item() == pytest.approx(mean_over_samples(of_sample, Z, Y, W), rel=1e-12)


def test_without_the_shift_it_is_cross_entropy():
    assert torch.equal(LogitAdjustedLoss(COUNTS, tau=0.0)(Z, Y), WeightedCrossEntropyLoss()(Z, Y))


@pytest.mark.parametrize(("margin", "scale"), [(0.5, 30.0), (1.0, 1.0)])
def test_the_margin_falls_with_the_fourth_root_of_the_count(margin, scale):
    def of_sample(row, label):
        logits = [float(x) for x in row]
        logits[label] -= margin * (min(COUNTS) / COUNTS[label]) ** 0.25
        return cross_entropy([scale * logit for logit in logits], label)

    value = LDAMLoss(COUNTS, margin, scale)(Z, Y, W)
    assert value.item() == pytest.approx(mean_over_samples(of_sample, Z, Y, W), rel=1e-9)


@pytest.mark.parametrize("loss", [LogitAdjustedLoss(COUNTS), LDAMLoss(COUNTS)])
def test_pixels_ignored_labels_and_gradients(loss):
    logits = torch.randn(
        2, 3, 4, 5, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(2)
    )
    target = torch.randint(0, 3, (2, 4, 5), generator=torch.Generator().manual_seed(3))
    target[0, 0] = -100
    value = loss(logits, target)
    kept = (target != -100).flatten()
    flat = logits.movedim(1, -1).reshape(-1, 3)[kept], target.flatten()[kept]
    assert value.item() == pytest.approx(loss(*flat).item(), rel=1e-12)
    assert torch.autograd.gradcheck(lambda x: loss(x, target), logits)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogitAdjustedLoss((5, 0)), "above 0"),
        (lambda: LogitAdjustedLoss((5,)), "two or more"),
        (lambda: LogitAdjustedLoss((5, 5), tau=math.nan), "tau"),
        (lambda: LDAMLoss((5, 5), max_margin=0), "max_margin"),
        (lambda: LDAMLoss((5, 5), scale=-1), "scale"),
        (lambda: LDAMLoss((5, 5))(Z, Y), "2 classes"),
        (lambda: LDAMLoss((5, 5))(Z[:, 0], Y), "LDAMLoss is for logits .* class numbers"),
        (lambda: LDAMLoss(5), "one per class, such as torch.bincount"),
        (lambda: LogitAdjustedLoss(("many", "few")), "class_counts are numbers"),
        (lambda: LogitAdjustedLoss((5, 5), tau="1"), "tau must be a number, got '1'"),
        (lambda: LDAMLoss((5, 5), max_margin="1"), "max_margin must be a number"),
        (lambda: LDAMLoss((5, 5), scale=None), "scale must be a number"),
        (lambda: LogitAdjustedLoss(COUNTS)(Z, one_hot(Y, len(COUNTS))), r"LogitAdjustedLoss .* target\.argmax\(1\)"),
        (lambda: LDAMLoss(COUNTS)(Z, one_hot(Y, len(COUNTS))), r"LDAMLoss .* target\.argmax\(1\)"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises((InvalidTypeError, InvalidValueError), match=message):
        make()
