"""Curves refuse what they cannot answer, and say why."""

import math

import numpy as np
import pytest
import torch

from metricfit import curves

BOTH_CLASSES = {
    "the ROC curve": curves.roc,
    "the AUROC": curves.auroc,
    "FPR at a TPR": lambda s, y, w=None: curves.fpr_at_tpr(s, y, 0.5, w),
    "FPR at false negatives": lambda s, y, w=None: curves.fpr_at_fn(s, y, 0, w),
}
POSITIVES = {"the precision-recall curve": curves.precision_recall, "average precision": curves.average_precision}
ALL = [*BOTH_CLASSES.values(), *POSITIVES.values(), lambda s, y, w=None: curves.best_threshold(s, y, "f1", weight=w)]


@pytest.mark.parametrize("name", BOTH_CLASSES)
def test_one_class_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name} needs positives and negatives, but target holds only positives"):
        BOTH_CLASSES[name]([0.1, 0.2], [1, 1])
    with pytest.raises(ValueError, match=f"{name} needs positives and negatives, but target holds only negatives"):
        BOTH_CLASSES[name]([0.1, 0.2], [0, 0])


@pytest.mark.parametrize("name", POSITIVES)
def test_no_positives_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name} needs positives, but target holds none"):
        POSITIVES[name]([0.1, 0.2], [0, 0])


@pytest.mark.parametrize("curve", ALL)
def test_wrong_values_are_refused(curve):
    with pytest.raises(ValueError, match="there are no scores"):
        curve([], [])
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        curve([0.1, math.nan], [0, 1])
    with pytest.raises(ValueError, match="target must hold 0 and 1 only, got values from -1 to 1"):
        curve([0.1, 0.2], [-1, 1])
    with pytest.raises(ValueError, match="target must hold 0 and 1 only"):
        curve([0.1, 0.2, 0.3], [0, 1, 0.5])
    with pytest.raises(ValueError, match="target must hold 0 and 1 only"):
        curve([0.1, 0.2], [1, math.nan])


@pytest.mark.parametrize("curve", ALL)
@pytest.mark.parametrize("weight", [-0.5, math.nan, math.inf])
def test_wrong_weights_are_refused(curve, weight):
    with pytest.raises(ValueError, match="weights must be finite and at least 0"):
        curve([0.1, 0.2], [0, 1], [1.0, weight])


@pytest.mark.parametrize("curve", ALL)
def test_lengths_must_agree(curve):
    with pytest.raises(ValueError, match="3 scores, but 2 values of target"):
        curve([0.1, 0.2, 0.3], [0, 1])
    with pytest.raises(ValueError, match="2 scores, but 3 values of weight"):
        curve([0.1, 0.2], [0, 1], [1, 1, 1])


@pytest.mark.parametrize("curve", [curve for curve in ALL if curve not in (curves.auroc, curves.average_precision)])
def test_two_columns_of_probabilities_are_refused_with_the_remedy(curve):
    with pytest.raises(ValueError, match=r"scores must have shape \(n,\) or \(n, 1\), got \(3, 2\); pass the positive"):
        curve(np.zeros((3, 2)), [0, 1, 1])


def test_a_number_is_not_an_array():
    with pytest.raises(ValueError, match=r"scores must have shape \(n,\) or \(n, 1\), got \(\)"):
        curves.auroc(0.5, [1])
    with pytest.raises(ValueError, match=r"target must have shape \(n,\) or \(n, 1\), got \(2, 2\)"):
        curves.auroc(torch.zeros(4), torch.zeros(2, 2))


@pytest.mark.parametrize("scores", [None, "ab", ["a", "b"], [0.1, None], np.array(["a", "b"]), {1: 2}])
def test_inputs_that_are_not_arrays_of_numbers_are_refused_with_their_type(scores):
    with pytest.raises(TypeError, match=f"scores must be an array of numbers, got {type(scores).__name__}"):
        curves.auroc(scores, [0, 1])


def test_an_unknown_metric_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match="there is no metric 'precison'; did you mean 'precision'"):
        curves.best_threshold([0.1, 0.2], [0, 1], "precison")


def test_a_metric_that_is_not_one_value_per_threshold_is_refused():
    with pytest.raises(ValueError, match=r"one value per class, shape \(3, 1\), got \(\); .*whole_matrix=True"):
        curves.best_threshold([0.1, 0.2], [0, 1], lambda c: c.tp.sum())


def test_a_metric_of_another_class_is_refused():
    with pytest.raises(ValueError, match=r"recall\[1\]: the counts have 1 class"):
        curves.best_threshold([0.1, 0.2], [0, 1], "recall[1]")
