"""Brier score, calibration error and partial AUROC, against scikit-learn and sums written out."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, roc_auc_score

from metricfit.curves import brier_score, expected_calibration_error, partial_auroc, roc

RNG = np.random.default_rng(0)
N = 300
P, Y, W = RNG.random(N).round(2), RNG.integers(0, 2, N), RNG.random(N)
SHARES, CLASSES = RNG.dirichlet(np.ones(4), N), RNG.integers(0, 4, N)
LABELS = RNG.integers(0, 2, (N, 4))
KINDS = [np.asarray, torch.as_tensor]
kinds = pytest.mark.parametrize("kind", KINDS, ids=["array", "tensor"])


@kinds
@pytest.mark.parametrize("weight", [None, W], ids=["alike", "weighted"])
def test_brier_score(kind, weight):
    w = None if weight is None else kind(weight)
    assert brier_score(kind(P), kind(Y), w) == pytest.approx(brier_score_loss(Y, P, sample_weight=weight))
    expected = brier_score_loss(CLASSES, SHARES, sample_weight=weight, labels=[0, 1, 2, 3])
    assert brier_score(kind(SHARES), kind(CLASSES), w) == pytest.approx(expected)
    expected = np.average(((SHARES - LABELS) ** 2).mean(1), weights=weight)
    assert brier_score(kind(SHARES), kind(LABELS), w) == pytest.approx(expected)


def error_written_out(confidence, hit, weight, bins):
    edges, total = np.linspace(0, 1, bins + 1), 0.0
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        inside = (confidence > low) & (confidence <= high) | ((confidence == 0) & (number == 0))
        total += abs((weight[inside] * (confidence[inside] - hit[inside])).sum())
    return total / weight.sum()


@kinds
@pytest.mark.parametrize("bins", [1, 7, 15])
@pytest.mark.parametrize("weight", [None, W], ids=["alike", "weighted"])
def test_calibration_error(kind, weight, bins):
    w, each = None if weight is None else kind(weight), np.ones(N) if weight is None else weight
    p = RNG.random(N)
    expected = error_written_out(p, Y, each, bins)
    assert expected_calibration_error(kind(p), kind(Y), w, bins=bins) == pytest.approx(expected)
    expected = error_written_out(SHARES.max(1), SHARES.argmax(1) == CLASSES, each, bins)
    assert expected_calibration_error(kind(SHARES), kind(CLASSES), w, bins=bins) == pytest.approx(expected)


def test_probabilities_on_a_border_are_in_the_lower_bin():
    assert expected_calibration_error([0.5, 0.5, 0.0, 1.0], [1, 0, 0, 1], bins=2) == 0.0
    assert expected_calibration_error([0.5, 0.7], [0, 1], bins=2) == pytest.approx((0.5 + 0.3) / 2)


@kinds
@pytest.mark.parametrize("max_fpr", [0.05, 0.3, 0.77, 1.0])
@pytest.mark.parametrize("weight", [None, W], ids=["alike", "weighted"])
def test_partial_auroc(kind, weight, max_fpr):
    w = None if weight is None else kind(weight)
    scores = P + 0.3 * Y
    expected = roc_auc_score(Y, scores, sample_weight=weight, max_fpr=max_fpr)
    assert partial_auroc(kind(scores), kind(Y), max_fpr, w) == pytest.approx(expected)
    fpr, tpr, _ = roc(scores, Y, weight)
    grid = np.linspace(0, max_fpr, 20_001)
    area = np.trapezoid(np.interp(grid, fpr, tpr), grid)
    assert partial_auroc(kind(scores), kind(Y), max_fpr, w, standardized=False) == pytest.approx(area, abs=2e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: brier_score([1.2], [1]), r"lie in \[0, 1\]"),
        (lambda: brier_score([0.2, 0.3], [1]), "2 scores"),
        (lambda: brier_score([[0.9, 0.3]], [1]), "sum to 1"),
        (lambda: expected_calibration_error([0.2], [1], bins=0), "at least 1"),
        (lambda: partial_auroc([0.2, 0.3], [1, 0], 0), "max_fpr"),
        (lambda: partial_auroc([0.2, 0.3], [1, 1], 0.5), "ROC curve"),
    ],
)
def test_input_that_has_no_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()
