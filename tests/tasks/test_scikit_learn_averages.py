"""Averages and whole-matrix metrics against scikit-learn: random labels, absent classes, weights, several labels."""

import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from metricfit import Counts, MetricLoss, metrics
from metricfit.metrics import averaged, confusion_matrix

ZERO = {"zero_division": 0}
AVERAGED = {
    "f1": sk.f1_score,
    "fbeta(beta=2)": lambda y, d, **k: sk.fbeta_score(y, d, beta=2, **k),
    "precision": sk.precision_score,
    "recall": sk.recall_score,
    "jaccard": sk.jaccard_score,
}
WHOLE = {
    "accuracy": sk.accuracy_score,
    "mcc": sk.matthews_corrcoef,
    "kappa": lambda y, d, **k: sk.cohen_kappa_score(y, d, replace_undefined_by=0.0, **k),
    "balanced_accuracy": sk.balanced_accuracy_score,
}


def scikit(function, *given, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its remarks on absent classes, which are the point here
        return function(*given, **settings)


def random_labels(seed, classes=7):
    """Labels of a few classes only: some are never true, some never decided, some neither."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    true, decided = (rng.choice(classes, size=int(rng.integers(1, 5)), replace=False) for _ in range(2))
    target = rng.choice(true, size=n)
    decision = np.where(rng.random(n) < 0.5, target, rng.choice(decided, size=n))
    return target, decision, rng.random(n) + 0.1


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_matrix_metrics(name, weighted):
    for seed in range(25):
        target, decision, weight = random_labels(seed)
        weight = weight if weighted else None
        counts = Counts.from_labels(*map(torch.from_numpy, (decision, target)), num_classes=7, weight=_tensor(weight))
        expected = scikit(WHOLE[name], target, decision, sample_weight=weight)
        for average in ("macro", "micro", "weighted", None):
            value = averaged(metrics.get_metric(name), counts, average)
            assert value.shape == ()
            assert value.item() == pytest.approx(expected, abs=1e-6), seed


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("name", AVERAGED)
def test_averages_of_exclusive_classes(name, average, weighted):
    for seed in range(25):
        target, decision, weight = random_labels(seed)
        weight = weight if weighted else None
        counts = Counts.from_labels(*map(torch.from_numpy, (decision, target)), num_classes=7, weight=_tensor(weight))
        value = averaged(metrics.get_metric(name), counts, average)
        expected = scikit(AVERAGED[name], target, decision, average=average, sample_weight=weight, **ZERO)
        assert value.item() == pytest.approx(expected, abs=1e-12), seed


@pytest.mark.parametrize("name", AVERAGED)
def test_values_per_class(name):
    for seed in range(15):
        target, decision, _ = random_labels(seed)
        counts = Counts.from_labels(*map(torch.from_numpy, (decision, target)), num_classes=7)
        expected = scikit(AVERAGED[name], target, decision, average=None, labels=range(7), **ZERO)
        assert averaged(metrics.get_metric(name), counts, None).tolist() == pytest.approx(expected, abs=1e-12)


def labels_of_several(seed, weighted, classes=5):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 20))
    target = (rng.random((n, classes)) < rng.choice([0, 0.3, 1], size=classes)).astype(int)
    scores = rng.normal(size=(n, classes)) + rng.choice([-9, 0, 9], size=classes)
    return target, scores, rng.random(n) + 0.1 if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("name", AVERAGED)
def test_averages_of_several_labels(name, average, weighted):
    """scikit-learn's classes are then all the columns, those without a true or predicted sample included, as 0."""
    for seed in range(25):
        target, scores, weight = labels_of_several(seed, weighted)
        counts = Counts.hard(torch.from_numpy(scores), torch.from_numpy(target), weight=_tensor(weight))
        value = averaged(metrics.get_metric(name), counts, average)
        settings = {"average": average, "sample_weight": weight, **ZERO}
        expected = scikit(AVERAGED[name], target, (scores >= 0).astype(int), **settings)
        assert value.item() == pytest.approx(expected, abs=1e-12), seed


@pytest.mark.parametrize("weighted", [False, True])
def test_decisions_from_logits_and_their_matrix(weighted):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 30))
        target, logits = rng.integers(0, 4, n), np.round(rng.normal(size=(n, 6)), 1)  # rounded: ties
        weight = rng.random(n) if weighted else None
        decision = logits.argmax(1)  # numpy takes the first on ties
        x, y, w = torch.from_numpy(logits), torch.from_numpy(target), _tensor(weight)
        counts = Counts.hard(x, y, weight=w)
        cells = sk.multilabel_confusion_matrix(target, decision, labels=range(6), sample_weight=weight)
        for found, expected in zip(
            counts, (cells[:, 1, 1], cells[:, 0, 1], cells[:, 1, 0], cells[:, 0, 0]), strict=True
        ):
            np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
        matrix = sk.confusion_matrix(target, decision, labels=range(6), sample_weight=weight)
        np.testing.assert_allclose(confusion_matrix(x, y, weight=w).numpy(), matrix, atol=1e-12)
        for name, function in WHOLE.items():
            expected = scikit(function, target, decision, sample_weight=weight)
            assert metrics.get_metric(name)(counts).item() == pytest.approx(expected, abs=1e-10)


def test_leading_axes_are_averaged_each_for_itself():
    labels = [random_labels(seed) for seed in range(6)]
    each = [Counts.from_labels(*map(torch.from_numpy, (d, y)), num_classes=7) for y, d, _ in labels]
    stacked = Counts(*(torch.stack(cells).reshape(2, 3, 7) for cells in zip(*each, strict=True)))
    for name in ("f1", "mcc", "kappa", "accuracy", "balanced_accuracy"):
        metric = metrics.get_metric(name)
        for average in ("macro", "micro", "weighted"):
            expected = torch.stack([averaged(metric, one, average) for one in each]).reshape(2, 3)
            torch.testing.assert_close(averaged(metric, stacked, average), expected)


def _tensor(weight):
    return None if weight is None else torch.from_numpy(weight)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["mcc", "kappa"])
def test_one_class_alone_is_0_whatever_the_weights_round_to(name, dtype):
    """0/0: with fractions for weights neither is exactly 0, and their ratio is noise unless it is looked after."""
    metric = metrics.get_metric(name)
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        n = int(torch.randint(1, 12, (1,), generator=generator))
        weight, y = torch.rand(n, generator=generator, dtype=dtype) + 0.1, torch.full((n,), 2)
        logits = (torch.nn.functional.one_hot(y, 4) * 2e4 - 1e4).to(dtype)
        for counts in (
            Counts.from_labels(y, y, num_classes=4, weight=weight),
            Counts.hard(logits, y, weight=weight),
            Counts.soft(logits, y, weight=weight),
        ):
            assert metric(counts).item() == pytest.approx(0.0, abs=1e-3), seed


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("accuracy", sk.accuracy_score),
        ("mcc", sk.matthews_corrcoef),
        ("kappa", sk.cohen_kappa_score),
        ("balanced_accuracy", sk.balanced_accuracy_score),
    ],
)
def test_a_metric_of_the_whole_matrix_is_one_of_each_multilabel_column(name, oracle):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(80, 4, generator=generator)
    target = (torch.rand(80, 4, generator=generator) < 0.4).long()
    metric, counts = metrics.get_metric(name), Counts.hard(logits, target)
    expected = [oracle(target[:, k].numpy(), (logits[:, k] >= 0).long().numpy()) for k in range(4)]
    assert metric(counts).tolist() == pytest.approx(expected)
    assert averaged(metric, counts).item() == pytest.approx(sum(expected) / 4)
    columns = [MetricLoss(name)(logits[:, k], target[:, k]) for k in range(4)]
    torch.testing.assert_close(MetricLoss(name)(logits, target), torch.stack(columns).mean())
