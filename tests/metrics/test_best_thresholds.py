"""Thresholds of many columns against one column at a time by the sweep."""

import math

import numpy as np
import pytest
import torch

from metricfit import curves, metric
from metricfit.metrics import get_metric
from metricfit.metrics import sweep as module
from metricfit.metrics.curves import best_of_sweep
from metricfit.metrics.sweep import search_long_column, sweep

METRICS = ["f1", "mcc", "balanced_accuracy", "cost(fp=1, fn=10)", "fbeta(beta=2)", "tp / (tp + fp)", "precision", "fpr"]


def table(n=60, c=7, seed=0):
    """Scores with many ties, one column of equal scores, one without positives and one without negatives."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.rand(n, c, generator=generator) < 0.3).long()
    target[:, 0], target[:, 1] = 0, 1
    scores = ((torch.randn(n, c, generator=generator) + target) * 4).round() / 4
    scores[:, c - 1] = 0.5
    return scores, target


def by_sweep(scores, target, name):
    return best_of_sweep(sweep(scores, target, None), get_metric(name), [])


@pytest.mark.parametrize("name", METRICS)
def test_columns_find_what_a_sweep_of_each_column_finds(name):
    scores, target = table()
    found = curves.best_thresholds(scores, target, name)
    expected = [by_sweep(scores[:, place], target[:, place], name) for place in range(scores.shape[1])]
    assert found.thresholds.tolist() == [best.threshold for best in expected]
    assert found.values.tolist() == pytest.approx([best.value for best in expected], abs=1e-14)
    for place, best in enumerate(expected):
        single = curves.best_threshold(scores[:, place], target[:, place], name)
        assert single == (best.threshold, pytest.approx(best.value, abs=1e-14))


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("block", [1, 7, 30])
@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_blocks_of_a_long_column_find_what_its_sweep_finds(name, block, kind, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    scores, target = table()
    for place in range(scores.shape[1]):
        s, y = scores[:, place], target[:, place]
        s, y = (s.numpy(), y.numpy()) if kind == "arrays" else (s, y)
        found, expected = search_long_column(s, y, get_metric(name)), by_sweep(s, y, name)
        assert found == (expected.threshold, pytest.approx(expected.value, abs=1e-14))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float32, torch.bfloat16])
def test_labels_of_any_type_count(dtype):
    scores, target = table()
    expected = curves.best_thresholds(scores, target, "f1")
    assert curves.best_thresholds(scores, target.to(dtype), "f1").thresholds.tolist() == expected.thresholds.tolist()


def test_arrays_give_arrays_and_half_precision_the_smallest_number_that_is_rounded_to_the_score():
    scores, target = table()
    found = curves.best_thresholds(scores.numpy(), target.numpy(), "f1")
    assert isinstance(found.thresholds, np.ndarray)
    half = scores.bfloat16()
    thresholds = curves.best_thresholds(half, target, "f1").thresholds.tolist()
    assert thresholds == [curves.best_threshold(half[:, j], target[:, j], "f1").threshold for j in range(7)]


def test_a_metric_that_is_infinite_everywhere_chooses_the_largest_threshold():
    @metric(minimize=True)
    def always_infinite_for_best_thresholds(c):
        return c.tp + math.inf

    found = curves.best_threshold([0.2, 0.2, 0.1], [1, 0, 1], always_infinite_for_best_thresholds)
    assert found == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("scores", "target", "message"),
    [
        ([[0.1, math.nan], [0.2, 0.3]], [[0, 1], [1, 0]], "column 1: 1 of 2 scores are NaN"),
        ([[0.1, -math.inf], [0.2, 0.3]], [[0, 1], [1, 0]], "column 1: 1 of 2 scores are infinite"),
        ([[0.1, 0.2], [0.2, 0.3]], [[0, 2], [1, 0]], "column 1: target must hold 0 and 1 only"),
        ([[0.1, 0.2], [0.2, 0.3]], [[0, 1], [0.5, 0]], "column 0: target must hold 0 and 1 only"),
        ([[0.1, 0.2], [0.2, 0.3]], [[0, 1]], r"scores have shape \(2, 2\), but target has \(1, 2\)"),
        ([0.1, 0.2], [0, 1], r"scores must have shape \(n, c\), got \(2,\)"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "there are no scores"),
    ],
)
def test_wrong_tables_are_refused(scores, target, message):
    with pytest.raises(ValueError, match=message):
        curves.best_thresholds(scores, target, "f1")


@pytest.mark.parametrize("name", ["recall[1]", "fbeta(beta=[1, 2])"])
def test_a_metric_that_differs_between_columns_is_refused(name):
    with pytest.raises(ValueError, match="call best_threshold for each"):
        curves.best_thresholds(*table(c=2), name)


def test_weights_of_samples_and_of_scores():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(50, 3, generator=generator), torch.randint(2, (50, 3), generator=generator)
    weight = torch.randint(3, (50, 3), generator=generator)
    for weights in (weight, weight[:, 0], weight[:, :1]):
        found = curves.best_thresholds(scores, target, "f1", weight=weights)
        for label in range(3):
            own = weights[:, label] if weights.shape == scores.shape else weights.reshape(-1)
            expected = curves.best_threshold(scores[:, label], target[:, label], "f1", weight=own)
            assert (float(found.thresholds[label]), float(found.values[label])) == expected
    with pytest.raises(ValueError, match=r"scores have shape \(50, 3\), but weight has \(3,\)"):
        curves.best_thresholds(scores, target, "f1", weight=torch.ones(3))
    with pytest.raises(ValueError, match="column 1: all weights are 0"):
        curves.best_thresholds(scores, target, "f1", weight=torch.tensor([1, 0, 1]).expand(50, 3))
    assert isinstance(
        curves.best_thresholds(scores.numpy(), target.numpy(), "f1", weight=weight.numpy()).values, np.ndarray
    )
