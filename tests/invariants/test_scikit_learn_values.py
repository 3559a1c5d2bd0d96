"""Every metric against scikit-learn, or where it has none against the textbook, on all kinds of tables."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from metricfit import Counts, metrics

TABLES = [table for table in itertools.product((0, 1, 4), repeat=4) if any(table)]
ZERO = {"zero_division": 0}


def weighted_kappa(target, decision, **settings):
    return sk.cohen_kappa_score(target, decision, labels=[0, 1], replace_undefined_by=0.0, **settings)


SCIKIT = {
    "f1": lambda y, d, **w: sk.f1_score(y, d, **ZERO, **w),
    "fbeta(beta=2)": lambda y, d, **w: sk.fbeta_score(y, d, beta=2, **ZERO, **w),
    "fbeta(beta=0.5)": lambda y, d, **w: sk.fbeta_score(y, d, beta=0.5, **ZERO, **w),
    "accuracy": sk.accuracy_score,
    "precision": lambda y, d, **w: sk.precision_score(y, d, **ZERO, **w),
    "recall": lambda y, d, **w: sk.recall_score(y, d, **ZERO, **w),
    "specificity": lambda y, d, **w: sk.recall_score(y, d, pos_label=0, **ZERO, **w),
    "fpr": lambda y, d, **w: sk.recall_score(1 - y, d, **ZERO, **w),
    "fnr": lambda y, d, **w: sk.recall_score(y, 1 - d, **ZERO, **w),
    "npv": lambda y, d, **w: sk.precision_score(y, d, pos_label=0, **ZERO, **w),
    "selection_rate": lambda y, d, **w: sk.recall_score(np.ones_like(y), d, **ZERO, **w),
    "jaccard": lambda y, d, **w: sk.jaccard_score(y, d, **ZERO, **w),
    "balanced_accuracy": sk.balanced_accuracy_score,
    "mcc": sk.matthews_corrcoef,
    "kappa": lambda y, d, **w: sk.cohen_kappa_score(y, d, labels=[0, 1], replace_undefined_by=0.0, **w),
    "weighted_kappa(power=1)": lambda y, d, **w: weighted_kappa(y, d, weights="linear", **w),
    "weighted_kappa(power=2)": lambda y, d, **w: weighted_kappa(y, d, weights="quadratic", **w),
}


def labels_of(tp, fp, fn, tn):
    target = np.repeat([1, 0, 1, 0], [tp, fp, fn, tn])
    decision = np.repeat([1, 1, 0, 0], [tp, fp, fn, tn])
    return target, decision


def expected_of(metric, naive, target, decision, weight=None):
    if metric.name in SCIKIT:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's remarks on a single class, which is the point here
            return SCIKIT[metric.name](target, decision, sample_weight=weight)
    weight = np.ones(len(target)) if weight is None else weight
    cells = [float(weight[(decision == d) & (target == y)].sum()) for y, d in ((1, 1), (0, 1), (1, 0), (0, 0))]
    return naive.metric(metric, *cells)


def test_value_equals_the_reference_on_every_small_table(any_metric, naive):
    for table in TABLES:
        target, decision = labels_of(*table)
        value = any_metric(Counts.from_labels(torch.from_numpy(decision), torch.from_numpy(target)))
        assert value.shape == (1,)
        assert value.item() == pytest.approx(expected_of(any_metric, naive, target, decision), abs=1e-12), table


@pytest.mark.parametrize("threshold", [0.25, 0.5, 0.8])
def test_weighted_decisions_at_a_threshold_equal_the_reference(any_metric, naive, batch, threshold):
    given = batch(101, seed=4)
    decision = (1 / (1 + np.exp(-given.logits.numpy())) >= threshold).astype(int)
    counts = Counts.hard(given.logits, given.target, threshold=threshold, weight=given.weight)
    expected = expected_of(any_metric, naive, given.target.numpy().astype(int), decision, given.weight.numpy())
    assert any_metric(counts).item() == pytest.approx(expected, rel=1e-12)


def test_fowlkes_mallows_and_gmean_are_the_geometric_means_of_scikit_learns_rates():
    target, decision = labels_of(7, 2, 3, 11)
    precision, recall = sk.precision_score(target, decision), sk.recall_score(target, decision)
    counts = Counts(7, 2, 3, 11)
    assert metrics.fowlkes_mallows(counts).item() == pytest.approx(math.sqrt(precision * recall))
    assert metrics.gmean(counts).item() == pytest.approx(math.sqrt(recall * sk.recall_score(1 - target, 1 - decision)))


def test_a_metric_is_the_same_for_counts_of_ten_billion_in_float32(any_metric, naive):
    table = 2e10, 1e10, 3e10, 5e10
    value = any_metric(Counts(*(torch.tensor([cell], dtype=torch.float32) for cell in table)))
    assert value.item() == pytest.approx(naive.metric(any_metric, *table), rel=1e-5)


def test_leading_axes_are_carried_through(any_metric, naive):
    cells = torch.tensor(TABLES[:24], dtype=torch.float64).reshape(4, 6, 1, 4)
    value = any_metric(Counts(*cells.unbind(-1)))
    assert value.shape == (4, 6, 1)
    expected = [naive.metric(any_metric, *map(float, table)) for table in TABLES[:24]]
    assert value.flatten().tolist() == pytest.approx(expected, abs=1e-12)
