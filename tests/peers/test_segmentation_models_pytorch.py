"""The expected values of segmentation_models_pytorch's scores and losses, as ``MetricLoss`` gives them.

Values and inputs: segmentation_models_pytorch (MIT licence), ``tests/test_losses.py``. Its losses leave out classes
without a true pixel and count 0 for them: of a binary mask without positives, the loss is 0 where ours is 1.
"""

import pytest
import torch

from metricfit import MetricLoss
from metricfit.metrics import tversky
from metricfit.steps import Identity

SCORES = [
    ([1, 1, 1, 1], [1, 1, 1, 1], 1.0, 1.0),
    ([0, 1, 1, 0], [0, 1, 1, 0], 1.0, 1.0),
    ([1, 1, 1, 1], [1, 1, 0, 0], 0.5, 2 / 3),
    ([0, 1, 0], [1, 0, 1], 0.0, 0.0),
    ([1, 1, 1], [0, 0, 0], 0.0, 0.0),
]


def value(metric, predicted, target, **settings):
    criterion = MetricLoss(metric, step=Identity(), from_probabilities=True, **settings)
    return 1 - criterion(torch.as_tensor(predicted, dtype=torch.float32), torch.as_tensor(target)).item()


@pytest.mark.parametrize(("target", "predicted", "jaccard", "dice"), SCORES)
def test_binary_scores(target, predicted, jaccard, dice):
    assert value("jaccard", predicted, target) == pytest.approx(jaccard)
    assert value("dice", predicted, target) == pytest.approx(dice)
    assert value(tversky(alpha=0.5, beta=0.5), predicted, target) == pytest.approx(dice)


def test_a_mask_without_positives_is_worth_zero():
    assert value("dice", [1.0, 1.0, 1.0], [0, 0, 0]) == 0.0


@pytest.mark.parametrize(
    ("predicted", "target", "expected"),
    [
        ([[1, 1, 0, 0], [0, 0, 1, 1]], [0, 0, 1, 1], 1.0),
        ([[1, 1, 0, 0], [0, 0, 1, 1]], [1, 1, 0, 0], 0.0),
        ([[1, 0, 1, 0], [0, 1, 0, 1]], [1, 1, 0, 0], 1 / 3),
    ],
)
def test_jaccard_of_several_classes(predicted, target, expected):
    assert value("jaccard", [predicted], [target], task="multiclass") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("predicted", "target", "expected"),
    [
        ([[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 1, 0, 0], [0, 0, 1, 1]], 1.0),
        ([[0, 0, 1, 0], [0, 1, 0, 0]], [[1, 1, 0, 0], [0, 0, 1, 1]], 0.0),
        ([[1, 1, 0, 0], [0, 0, 0, 0]], [[1, 1, 0, 0], [0, 0, 0, 1]], 0.5),
        ([[0, 1, 1, 0], [0, 1, 1, 0]], [[1, 1, 0, 0], [1, 1, 0, 0]], 1 / 3),
    ],
)
def test_jaccard_of_several_labels(predicted, target, expected):
    assert value("jaccard", [predicted], [target], task="multilabel") == pytest.approx(expected)
