"""Weights of classes in the average of a metric loss, against averages written out."""

import pytest
import torch

from metricfit import AugmentedLagrangian, MetricLoss, metrics
from metricfit.losses import Mix

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(60, 4, dtype=torch.float64, generator=GENERATOR)
TARGET = torch.randint(0, 4, (60,), generator=GENERATOR)
LABELS = (torch.rand(60, 4, generator=GENERATOR) < 0.4).double()
WEIGHTS = [1.0, 0.0, 2.5, 4.0]


@pytest.mark.parametrize(("target", "task"), [(TARGET, "multiclass"), (LABELS, "multilabel")])
@pytest.mark.parametrize("metric", ["f1", "fbeta(beta=[1, 1, 2, 3])", "fpr"])
def test_a_macro_average_is_weighted(target, task, metric):
    each = MetricLoss(metric, task=task, average=None)(LOGITS, target)
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    weighted = MetricLoss(metric, task=task, class_weights=WEIGHTS)(LOGITS, target)
    torch.testing.assert_close(weighted, (weights * each).sum() / weights.sum())
    scaled = MetricLoss(metric, task=task, class_weights=[10 * weight for weight in WEIGHTS])(LOGITS, target)
    torch.testing.assert_close(scaled, weighted)


def test_weights_of_zero_and_one_are_a_choice_of_classes():
    for options in ({}, {"average": "micro"}, {"average": "weighted"}, {"per_image": True}):
        logits, target = LOGITS.reshape(3, 20, 4).movedim(-1, 1), TARGET.reshape(3, 20)
        chosen = MetricLoss("f1", classes=[1, 3], **options)(logits, target)
        weighted = MetricLoss("f1", class_weights=[0, 1, 0, 1], **options)(logits, target)
        torch.testing.assert_close(weighted, chosen)


def test_classes_and_their_weights_go_together():
    each = MetricLoss("f1", average=None)(LOGITS, TARGET)
    both = MetricLoss("f1", classes=[0, 2], class_weights=WEIGHTS)(LOGITS, TARGET)
    torch.testing.assert_close(both, (each[0] + 2.5 * each[2]) / 3.5)


def test_gradients_and_other_losses():
    logits = LOGITS.clone().requires_grad_()
    loss = MetricLoss("f1", class_weights=WEIGHTS).eval()
    assert torch.autograd.gradcheck(lambda x: loss(x, TARGET), logits)
    torch.testing.assert_close(Mix((loss, 2.0))(LOGITS, TARGET), 2 * loss(LOGITS, TARGET))
    AugmentedLagrangian(loss, ["recall >= 0.5"])(logits, TARGET).backward()
    assert "class_weights=(1.0, 0.0, 2.5, 4.0)" in repr(loss)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MetricLoss("f1", class_weights=[1, -1]), "at least 0"),
        (lambda: MetricLoss("f1", class_weights=[0, 0]), "not all 0"),
        (lambda: MetricLoss("f1", class_weights=3), "one number per class"),
        (lambda: MetricLoss("f1", class_weights={0: 1.0, 1: 5.0}), "one number per class"),
        (lambda: MetricLoss("f1", class_weights="15"), "one number per class"),
        (lambda: MetricLoss("f1", class_weights=[1, 2], average=None), "has none here"),
        (lambda: MetricLoss(metrics.recall[1], class_weights=[1, 2]), "has none here"),
        (lambda: MetricLoss("f1", class_weights=[1, 2])(LOGITS, TARGET), "2 numbers, and there are 4 classes"),
        (lambda: MetricLoss("mcc", class_weights=WEIGHTS)(LOGITS, TARGET), "whole confusion matrix"),
        (lambda: MetricLoss("f1", class_weights=[1.0])(LOGITS[:, 0], LABELS[:, 0]), "class_weights is for several"),
    ],
)
def test_weights_that_mean_nothing_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
