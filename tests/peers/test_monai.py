"""MONAI's expected values of Dice, Tversky and generalised Dice, as ``MetricLoss`` with a formula gives them.

Values and inputs: MONAI (Apache-2.0), ``tests/losses``. Left out are cases with an activation that gives no
probabilities (``tanh``, ``log_softmax``), with ``squared_pred`` and with ``soft_label``: those are not functions of
counts, so ``MetricLoss`` refuses the inputs or gives another number.
"""

import pytest
import torch

from metricfit import Counts, MetricLoss, metric
from metricfit.steps import Identity

SQUARE = torch.tensor([[[[1.0, -1.0], [-1.0, 1.0]]]])
SQUARE_LABELS = torch.tensor([[[[1, 0], [1, 1]]]])
TWO = torch.cat([SQUARE, SQUARE])
TWO_LABELS = torch.tensor([[[[1, 1], [1, 1]]], [[[1, 0], [1, 0]]]])
SHARES = torch.tensor([[[[0.3, 0.4], [0.7, 0.9]]], [[[1.0, 0.1], [0.5, 0.3]]]])
CHANNELS = torch.tensor([[[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
CHANNEL_LABELS = torch.tensor([[1, 0, 0], [1, 1, 0]])
ONE_HOT = torch.nn.functional.one_hot(CHANNEL_LABELS, 2).movedim(-1, 1)
EXACT = torch.tensor([[[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
EXACT_LABELS = torch.tensor([[0, 0, 1], [0, 1, 0]])


def dice(nr=1e-5, dr=1e-5, jaccard=False):
    def formula(c: Counts):
        sizes = 2 * c.tp + c.fp + c.fn
        return (2 * c.tp + nr) / ((2 * (sizes - c.tp) if jaccard else sizes) + dr)

    return metric(formula)


def tversky(nr=1e-5, dr=1e-5, alpha=0.5, beta=0.5):
    def formula(c: Counts):
        return (c.tp + nr) / (c.tp + alpha * c.fp + beta * c.fn + dr)

    return metric(formula)


def generalised_dice(nr=1e-5, dr=1e-5, power=2):
    @metric(whole_matrix=True)
    def formula(c: Counts):
        weight = 1 / c.positives**power
        return (2 * (weight * c.tp).sum(-1) + nr) / ((weight * (2 * c.tp + c.fp + c.fn)).sum(-1) + dr)

    return formula


def loss(formula, **settings):
    return MetricLoss(formula, step=Identity(), **{"per_image": True, **settings})


@pytest.mark.parametrize(
    ("criterion", "logits", "target", "expected"),
    [
        (loss(dice(1e-6, 1e-6)), SQUARE, SQUARE_LABELS, 0.307576),
        (loss(dice(1e-4, 1e-4)), TWO, TWO_LABELS, 0.416657),
        (loss(dice(1e-4, 1e-4), from_probabilities=True), SHARES, SHARES, 0.307773),
        (loss(dice(1e-4, 1e-4), task="multilabel"), CHANNELS, ONE_HOT, 0.435050),
        (loss(dice(1e-4, 1e-4)), CHANNELS, CHANNEL_LABELS, 0.383713),
        (loss(dice(0, 0), classes=[1], from_probabilities=True), EXACT, EXACT_LABELS, 0.0),
        (loss(dice(jaccard=True)), SQUARE, SQUARE_LABELS, 0.470451),
        (loss(tversky(1e-6, 1e-6)), SQUARE, SQUARE_LABELS, 0.307576),
        (loss(tversky(1e-4, 1e-4)), TWO, TWO_LABELS, 0.416657),
        (loss(tversky(1e-4, 1e-4), from_probabilities=True), SHARES, SHARES, 0.307773),
        (loss(tversky(1e-4, 1e-4), task="multilabel"), CHANNELS, ONE_HOT, 0.435050),
        (loss(tversky(), task="multilabel", per_image=False), CHANNELS, ONE_HOT, 0.422979),
        (loss(tversky(1e-4, 1e-4)), CHANNELS, CHANNEL_LABELS, 0.383713),
        (loss(tversky(0, 1e-3), classes=[1], from_probabilities=True), EXACT, EXACT_LABELS, 0.000999),
        (loss(tversky(1e-6, 1e-6, alpha=0.3, beta=0.7)), SQUARE, SQUARE_LABELS, 0.3589),
        (loss(tversky(1e-6, 1e-6, alpha=0.7, beta=0.3)), SQUARE, SQUARE_LABELS, 0.247366),
        (loss(generalised_dice(1e-4, 1e-4)), CHANNELS, CHANNEL_LABELS, 0.414507),
    ],
)
def test_the_expected_values(criterion, logits, target, expected):
    assert criterion(logits, target).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "target", "expected"),
    [
        ({"task": "multilabel"}, ONE_HOT, [[0.296529, 0.415136], [0.599976, 0.428559]]),
        ({}, CHANNEL_LABELS, [[0.210961, 0.295339], [0.599952, 0.428547]]),
    ],
    ids=["sigmoid", "softmax"],
)
def test_reduction_none_is_one_image_at_a_time_without_an_average(settings, target, expected):
    criterion = loss(dice(1e-4, 1e-4), average=None, **settings)
    values = [criterion(CHANNELS[i : i + 1], target[i : i + 1]).tolist() for i in range(2)]
    torch.testing.assert_close(torch.tensor(values), torch.tensor(expected), rtol=1e-4, atol=1e-6)
    assert torch.tensor(values).sum().item() == pytest.approx(
        {"multilabel": 1.74013}.get(settings.get("task"), 1.534853), rel=1e-4
    )


def test_ignored_pixels_are_the_same_as_a_cropped_image():
    shares = [[[0.8, 0.1], [0.1, 0.1]], [[0.1, 0.8], [0.1, 0.1]], [[0.1, 0.1], [0.8, 0.8]]]
    logits, target = torch.tensor([shares]).log(), torch.tensor([[[0, 1], [2, 2]]])
    ignoring = loss(dice(), ignore_index=2)(logits, target)
    torch.testing.assert_close(ignoring, loss(dice())(logits[:, :, :1], target[:, :1]))


def test_outputs_that_are_no_probabilities_are_refused():
    with pytest.raises(ValueError, match="probabilit"):
        loss(dice(), from_probabilities=True)(TWO.tanh(), TWO_LABELS)
