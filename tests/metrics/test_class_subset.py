"""Averages over some of the classes, and of classes without samples, against scikit-learn's ``labels=``."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score, precision_score, recall_score

from metricfit import Counts, metrics
from metricfit.metrics import averaged

THEIRS = {"f1": f1_score, "jaccard": jaccard_score, "precision": precision_score, "recall": recall_score}
#: Class 4 is never there; class 3 is predicted only.
TRUE = torch.tensor([0, 0, 1, 2, 2, 0, 1, 0, 2, 0])
PREDICTED = torch.tensor([0, 1, 1, 2, 0, 3, 0, 0, 1, 2])
COUNTS = Counts.from_labels(PREDICTED, TRUE, num_classes=5)
CASES = [
    (average, classes)
    for average in ("macro", "micro", "weighted", None)
    for classes in ([1, 2], [2, 1, 3], [3, 4], [0, 1, 2, 3, 4])
    if (average, classes) != ("weighted", [3, 4])  # which has no weights
]


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize(("average", "classes"), CASES, ids=str)
@pytest.mark.parametrize("zero_division", [0, 1])
def test_some_classes_are_the_labels_of_scikit_learn(name, average, classes, zero_division):
    value = averaged(metrics.get_metric(name), COUNTS, average, classes=classes, zero_division=zero_division)
    expected = THEIRS[name](TRUE, PREDICTED, labels=classes, average=average, zero_division=zero_division)
    np.testing.assert_allclose(value, expected, atol=1e-12)


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("zero_division", [0, 1])
def test_several_labels_and_one_class(name, zero_division):
    generator = torch.Generator().manual_seed(0)
    true, decided = ((torch.rand(20, 3, generator=generator) < 0.3).long() for _ in range(2))
    true[:, 2] = decided[:, 2] = 0
    metric = metrics.get_metric(name)
    counts = Counts.hard(decided - 0.5, true)
    value = averaged(metric, counts, classes=[0, 2], zero_division=zero_division)
    expected = THEIRS[name](true, decided, labels=[0, 2], average="macro", zero_division=zero_division)
    assert value.item() == pytest.approx(expected)
    alone = averaged(metric, Counts.hard(decided[:, 2] - 0.5, true[:, 2]), zero_division=zero_division)
    assert alone.item() == zero_division


def test_skip_leaves_out_classes_without_true_samples():
    f1 = f1_score(TRUE, PREDICTED, average=None, labels=range(5), zero_division=0)
    assert averaged(metrics.f1, COUNTS, zero_division="skip").item() == pytest.approx(f1[:3].mean())
    assert averaged(metrics.f1, COUNTS, classes=[2, 3], zero_division="skip").item() == pytest.approx(f1[2])
    assert averaged(metrics.f1, COUNTS, classes=[3, 4], zero_division="skip").isnan()
    values = averaged(metrics.f1, COUNTS, None, classes=[4, 2, 0], zero_division="skip")
    np.testing.assert_allclose(values, [np.nan, f1[2], f1[0]])
    assert np.isnan(averaged(metrics.accuracy, Counts(0, 0, 0, 0), zero_division="skip"))


def test_a_beta_per_class_keeps_its_class():
    metric = metrics.fbeta(beta=[1, 1, 2, 1, 1])
    expected = metrics.fbeta(beta=2)(COUNTS)[2]
    assert averaged(metric, COUNTS, classes=[2]) == expected


def test_a_metric_written_by_a_user_has_its_undefined_values_found():
    written = metrics.get_metric("tp/(tp + 0.5*fp)")
    counts = Counts(tp=[0, 0, 2], fp=[0, 3, 0], fn=[1, 1, 1], tn=[9, 6, 7], exclusive=False)
    assert averaged(written, counts, None, zero_division=1).tolist() == [1, 0, 1]


def test_tiny_weights_are_samples():
    counts = Counts(tp=[0, 1e-12], fp=[1e-12, 0], fn=[0, 0], tn=[1e6, 1e6], exclusive=False)
    assert averaged(metrics.f1, counts, None, zero_division=1).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: averaged(metrics.f1, COUNTS, classes=[5]), "there are 5 classes, 0 to 4"),
        (lambda: averaged(metrics.f1, COUNTS, classes=[1, 1]), "each once"),
        (lambda: averaged(metrics.f1, COUNTS, classes=[]), "one or more"),
        (lambda: averaged(metrics.f1, COUNTS, classes=[-1]), "from 0 on"),
        (lambda: averaged(metrics.f1, COUNTS, classes="12"), "a list of class numbers"),
        (lambda: averaged(metrics.f1, COUNTS, classes=[1.0]), "a list of class numbers"),
        (lambda: averaged(metrics.f1[1], COUNTS, classes=[1]), "of one class already"),
        (lambda: averaged(metrics.accuracy, COUNTS, classes=[1]), "the whole confusion matrix"),
        (lambda: averaged(metrics.weighted_kappa(power=2), COUNTS, classes=[1]), "the whole confusion matrix"),
        (lambda: averaged(metrics.f1, Counts(1, 2, 3, 4), classes=[0]), "a binary problem has one"),
        (lambda: averaged(metrics.f1, COUNTS, zero_division=0.5), "0, 1 or 'skip'"),
        (lambda: averaged(metrics.mcc, COUNTS, zero_division=1), "a metric of all decisions"),
        (lambda: averaged(metrics.recall.gap(2), COUNTS, zero_division=1), "groups without samples"),
    ],
)
def test_wrong_use_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
