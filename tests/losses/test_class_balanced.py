"""ClassBalanced is Lee's class-balanced mean, whatever the balance of the batch, and balances once."""

import pytest
import torch
from torch import nn

from metricfit import MetricLoss, SurrogateFBetaLoss
from metricfit.losses import (
    ClassBalanced,
    EffectiveNumberBCELoss,
    FocalLoss,
    MAELoss,
    MBAUCLoss,
    MSFELoss,
    WeightedBCELoss,
)
from metricfit.losses.surrogate import SurrogateTverskyLoss


def batch(positives, n=100):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, generator=generator, dtype=torch.float64)
    weight = torch.rand(n, generator=generator, dtype=torch.float64) + 0.5
    return logits, (torch.arange(n) < positives).double(), weight


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("positives", [0, 2, 10, 60])
@pytest.mark.parametrize("inner", [MAELoss(), FocalLoss(2.0), WeightedBCELoss()], ids=lambda loss: type(loss).__name__)
def test_it_is_the_mean_over_samples_weighted_by_the_training_sets_class_shares(inner, positives, weighted):
    logits, target, weight = batch(positives)
    weight = weight if weighted else torch.ones_like(weight)
    each = torch.stack([inner(logits[i : i + 1], target[i : i + 1]) for i in range(len(logits))])
    balance = torch.where(target == 1, 1 / 0.1, 1 / 0.9)
    expected = (weight * balance * each).sum() / weight.sum()
    torch.testing.assert_close(ClassBalanced(inner, 0.1)(logits, target, weight if weighted else None), expected)


def test_over_the_training_set_it_is_the_sum_of_the_class_means():
    logits, target, _ = batch(10)
    losses = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    expected = losses[target == 1].mean() + losses[target == 0].mean()
    torch.testing.assert_close(ClassBalanced(WeightedBCELoss(), 0.1)(logits, target), expected)


@pytest.mark.parametrize("positives", [0, 2, 10, 60])
def test_it_is_the_balance_that_the_surrogate_has_built_in(positives):
    logits, target, weight = batch(positives)
    built_in = SurrogateFBetaLoss(2.0, prior=0.1, balanced=True)
    around = ClassBalanced(SurrogateFBetaLoss(2.0, prior=0.1, balanced=False), prior=0.1)
    torch.testing.assert_close(around(logits, target, weight), built_in(logits, target, weight))


@pytest.mark.parametrize(
    "loss",
    [
        SurrogateFBetaLoss(prior=0.1),
        SurrogateTverskyLoss(0.5, 0.5, prior=0.1),
        EffectiveNumberBCELoss(0.99, (90, 10)),
        ClassBalanced(MAELoss(), 0.1),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_balancing_twice_is_refused(loss):
    with pytest.raises(ValueError, match="already weights the classes, and ClassBalanced would do so twice"):
        ClassBalanced(loss, 0.1)


@pytest.mark.parametrize("loss", [MSFELoss(), MBAUCLoss(), MetricLoss("f1"), nn.BCEWithLogitsLoss()])
def test_a_loss_that_is_not_a_mean_over_samples_is_refused(loss):
    with pytest.raises(TypeError, match="that is a mean over samples, such as MAELoss"):
        ClassBalanced(loss, 0.1)


def test_the_ignore_index_of_the_inner_loss_applies():
    logits, target, _ = batch(30)
    target[:5] = 255
    loss = ClassBalanced(MAELoss(ignore_index=255), 0.1)
    torch.testing.assert_close(loss(logits, target), loss(logits[5:], target[5:]))
    with pytest.raises(ValueError, match="are multilabel"):
        loss(logits.reshape(50, 2), target.reshape(50, 2))
