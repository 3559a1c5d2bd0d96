"""Values of metrics against scikit-learn and against exact fractions."""

import math
import random
import warnings

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from metricfit import Counts, get_metric, metrics
from oracles import EXACT, INSTANCES, Table, value

BINARY = {
    "f1": lambda y, d, w: sk.f1_score(y, d, sample_weight=w, zero_division=0),
    "fbeta": lambda y, d, w: sk.fbeta_score(y, d, beta=2, sample_weight=w, zero_division=0),
    "precision": lambda y, d, w: sk.precision_score(y, d, sample_weight=w, zero_division=0),
    "recall": lambda y, d, w: sk.recall_score(y, d, sample_weight=w, zero_division=0),
    "specificity": lambda y, d, w: sk.recall_score(y, d, pos_label=0, sample_weight=w, zero_division=0),
    "npv": lambda y, d, w: sk.precision_score(y, d, pos_label=0, sample_weight=w, zero_division=0),
    "selection_rate": lambda y, d, w: np.average(d, weights=w),
    "jaccard": lambda y, d, w: sk.jaccard_score(y, d, sample_weight=w, zero_division=0),
    "accuracy": lambda y, d, w: sk.accuracy_score(y, d, sample_weight=w),
    "balanced_accuracy": lambda y, d, w: sk.balanced_accuracy_score(y, d, sample_weight=w),
    "mcc": lambda y, d, w: sk.matthews_corrcoef(y, d, sample_weight=w),
    "kappa": lambda y, d, w: sk.cohen_kappa_score(y, d, sample_weight=w),
    "informedness": lambda y, d, w: sk.balanced_accuracy_score(y, d, sample_weight=w, adjusted=True),
}
WHOLE_MATRIX = {name: BINARY[name] for name in ("accuracy", "balanced_accuracy", "mcc", "kappa")}


def labels(seed, classes, n=30):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, classes, n)
    decided = np.where(rng.random(n) < 0.5, target, rng.integers(0, classes, n))
    target[:2], decided[:2] = (0, 1), (1, 0)
    return target, decided, rng.choice([0.25, 0.5, 1.0, 3.0], n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", BINARY)
def test_binary_values_equal_scikit_learn(name, weighted):
    for seed in range(8):
        target, decided, weight = labels(seed, 2)
        weight = weight if weighted else None
        counts = Counts.from_labels(torch.tensor(decided), torch.tensor(target), weight=weight)
        expected = BINARY[name](target, decided, weight)
        assert float(get_metric(INSTANCES.get(name, name))(counts)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", WHOLE_MATRIX)
def test_whole_matrix_values_equal_scikit_learn_with_absent_classes(name, weighted):
    for seed in range(12):
        target, decided, weight = labels(seed, 3 + seed % 3)
        if seed % 2:  # a class that is decided for but never true, and one that is true but never decided for
            target, decided = np.where(target == 2, 0, target), np.where(decided == 1, 0, decided)
        weight = weight if weighted else None
        counts = Counts.from_labels(torch.tensor(decided), torch.tensor(target), num_classes=7, weight=weight)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
            expected = WHOLE_MATRIX[name](target, decided, weight)
        result = getattr(metrics, name)(counts)
        assert result.shape == ()
        assert float(result) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["f1", "fbeta", "precision", "recall", "jaccard"])
def test_values_per_class_equal_scikit_learn(name):
    target, decided, _ = labels(3, 4)
    scores = {
        "f1": sk.f1_score,
        "precision": sk.precision_score,
        "recall": sk.recall_score,
        "jaccard": sk.jaccard_score,
    }
    score = scores.get(name, lambda *given, **more: sk.fbeta_score(*given, beta=2, **more))
    expected = score(target, decided, average=None, labels=range(5), zero_division=0)
    counts = Counts.from_labels(torch.tensor(decided), torch.tensor(target), num_classes=5)
    np.testing.assert_allclose(get_metric(INSTANCES.get(name, name))(counts), expected, atol=1e-12)


@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_equals_its_fraction_zeros_included(name):
    r = random.Random(7)
    rows = [Table(*(r.choice([0, 0, 1, 2, 5, 17]) for _ in range(4))) for _ in range(80)]
    counts = Counts(*(torch.tensor(column, dtype=torch.float64).unsqueeze(-1) for column in zip(*rows, strict=True)))
    values = get_metric(INSTANCES.get(name, name))(counts).squeeze(-1).tolist()
    assert values == pytest.approx([value(name, EXACT[name](row)) for row in rows], abs=1e-12)


@pytest.mark.parametrize("name", metrics.names())
def test_counts_of_1e10_do_not_overflow_float32(name):
    table = Table(4 * 10**10, 10**10, 2 * 10**10, 3 * 10**10)
    counts = Counts(*(torch.tensor([float(cell)]) for cell in table))
    found = get_metric(INSTANCES.get(name, name))(counts)
    assert float(found) == pytest.approx(value(name, EXACT[name](table)), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("beta", [1e20, 1e200, math.inf])
def test_fbeta_of_a_large_beta_is_recall(beta, dtype):
    counts = Counts(tp=3, fp=4, fn=2, tn=1).to(dtype)
    assert metrics.fbeta(beta=beta)(counts).item() == pytest.approx(0.6)
    assert metrics.fbeta(beta=[beta])(counts).item() == pytest.approx(0.6)
    assert metrics.get_metric(metrics.fbeta(beta=beta).name) == metrics.fbeta(beta=beta)


@pytest.mark.parametrize("beta", [0.0, 1e-200])
def test_fbeta_of_a_small_beta_is_precision(beta):
    assert metrics.fbeta(beta=beta)(Counts(tp=3, fp=1, fn=2, tn=4)).item() == pytest.approx(0.75)


@pytest.mark.parametrize("make", [lambda: metrics.tversky(math.inf, 1), lambda: metrics.fbeta(beta=-math.inf)])
def test_other_infinite_parameters_are_refused(make):
    with pytest.raises(ValueError, match="must be at least 0"):
        make()
