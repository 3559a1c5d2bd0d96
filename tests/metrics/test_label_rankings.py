"""AUROC and average precision of several labels and classes: scikit-learn's values, and what is refused."""

import functools

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from metricfit import curves, metrics
from metricfit.core.tasks import canonical
from metricfit.curves import UndefinedRankingWarning, auroc, average_precision
from metricfit.metrics import areas

N, C = 120, 4


def labels(seed=0):
    """Scores with many ties, labels and weights, some of them 0."""
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=(N, C)), 1)
    return scores, (scores + rng.normal(size=(N, C)) > 0.8).astype(int), rng.integers(0, 3, N).astype(float)


def classes(seed=0):
    rng = np.random.default_rng(seed)
    rounded = np.round(np.exp(rng.normal(size=(N, C))), 0) + 1
    return rounded / rounded.sum(1, keepdims=True), rng.integers(0, C, N), rng.integers(0, 3, N).astype(float)


@pytest.mark.parametrize("make", [labels, classes])
@pytest.mark.parametrize("average", ["macro", "weighted", "micro", None])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_scikit_learns(make, average, weighted):
    scores, target, weight = make()
    weight = weight if weighted else None
    settings = {"average": average, "sample_weight": weight}
    expected = roc_auc_score(target, scores, multi_class="ovr", **settings)
    assert auroc(scores, target, weight, average=average) == pytest.approx(expected)
    assert average_precision(scores, target, weight, average=average) == pytest.approx(
        average_precision_score(target, scores, **settings)
    )
    assert metrics.auroc(torch.tensor(scores), torch.tensor(target), weight, average=average) == pytest.approx(expected)


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_pairs_of_classes_are_scikit_learns(average):
    scores, target, _ = classes()
    expected = roc_auc_score(target, scores, multi_class="ovo", average=average)
    assert auroc(scores, target, average=average, versus="one") == pytest.approx(expected)
    assert metrics.auroc_ovo(scores, target, average=average) == pytest.approx(expected)


def test_the_weights_of_pairs_are_repeated_rows():
    """Which scikit-learn does not have."""
    scores, target, weight = classes()
    rows = np.repeat(np.arange(N), weight.astype(int))
    for average in ("macro", "weighted"):
        expected = roc_auc_score(target[rows], scores[rows], multi_class="ovo", average=average)
        assert auroc(scores, target, weight, average=average, versus="one") == pytest.approx(expected)


def test_a_weight_for_every_score_leaves_unknown_labels_out():
    scores, target, weight = labels()
    known = np.random.default_rng(1).random((N, C)) < 0.7
    values = auroc(scores, target, known * weight[:, None], average=None)
    for label in range(C):
        rows = known[:, label]
        expected = roc_auc_score(target[rows, label], scores[rows, label], sample_weight=weight[rows])
        assert values[label] == pytest.approx(expected)


def test_columns_are_sorted_in_blocks(monkeypatch):
    scores, target, _ = labels()
    probabilities, numbers, weight = classes()
    calls = (
        functools.partial(auroc, scores, target, average=None),
        functools.partial(average_precision, scores, target, average=None),
        functools.partial(auroc, probabilities, numbers, weight, versus="one"),
    )
    together = [call() for call in calls]
    monkeypatch.setattr(areas, "SORTED_AT_ONCE", 2 * N)
    for call, expected in zip(calls, together, strict=True):
        assert call() == pytest.approx(expected, abs=0)


@pytest.mark.parametrize("average", ["macro", "weighted", None])
def test_labels_that_lack_a_class_are_reported_and_have_scikit_learns_value(average):
    scores, target, _ = labels()
    target[:, 1] = 0
    with pytest.warns(UndefinedRankingWarning, match="label 1: there are no positives or no negatives, so the AUROC"):
        value = auroc(scores, target, average=average)
    with pytest.warns(UndefinedRankingWarning, match="label 1: there are no positives, so the average precision is 0"):
        precision = average_precision(scores, target, average=average)
    with pytest.warns(UserWarning, match="Only one class"):
        expected = roc_auc_score(target, scores, average=average)
    with pytest.warns(UserWarning, match="No positive class"):
        expected_precision = average_precision_score(target, scores, average=average)
    assert precision == pytest.approx(expected_precision)
    assert value == pytest.approx(expected, nan_ok=True)
    target[:, 2] = 1
    with pytest.warns(UndefinedRankingWarning, match="label 1, 2"):
        assert np.isnan(auroc(scores, target, average="weighted"))
    assert 0 < auroc(scores, target, average="micro") < 1


def test_classes_without_samples_are_reported():
    scores, target, _ = classes()
    target[target == 3] = 0
    with pytest.warns(UndefinedRankingWarning, match="class 3"):
        values = auroc(scores, target, average=None)
    assert np.isnan(values).tolist() == [False, False, False, True]
    for average in ("macro", "weighted"):  # scikit-learn leaves out their pairs too
        expected = roc_auc_score(target, scores, multi_class="ovo", average=average, labels=range(4))
        with pytest.warns(UndefinedRankingWarning, match="class 3: there are no samples, so its pairs are left out"):
            assert auroc(scores, target, versus="one", average=average) == pytest.approx(expected)


def test_one_column_is_what_it_was():
    scores, target, weight = labels()
    one = scores[:, :1], target[:, 0], weight
    assert auroc(*one) == pytest.approx(roc_auc_score(target[:, 0], scores[:, 0], sample_weight=weight))
    assert auroc(*one, average=None) == pytest.approx([auroc(*one)])
    with pytest.raises(ValueError, match="the AUROC needs positives and negatives"):
        auroc(scores[:, :1], np.zeros((N, 1)))


def test_two_columns_of_probabilities_have_the_area_of_one():
    scores, target, _ = labels()
    positive = 1 / (1 + np.exp(-scores[:, 0]))
    both = np.stack([1 - positive, positive], axis=1)
    for value in (auroc(both, target[:, 0]), auroc(both, target[:, 0], versus="one")):
        assert value == pytest.approx(auroc(positive, target[:, 0]))


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int32, np.float32])
def test_labels_of_any_type(kind):
    scores, target, _ = labels()
    assert auroc(scores, target.astype(kind)) == auroc(scores, target)
    probabilities, numbers, _ = classes()
    if kind is not np.bool_:
        assert auroc(probabilities.astype(np.float32), numbers.astype(kind)) == pytest.approx(
            auroc(probabilities, numbers)
        )


WRONG = {
    "logits": (lambda s, k: auroc(s, k), "probabilities that sum to 1: pass logits.softmax"),
    "class_number": (lambda s, k: auroc(s, k + 1), "class numbers from 0 to 3, got 1 to 4"),
    "fractions": (lambda s, k: auroc(s, k + 0.5), "class numbers, got fractions"),
    "labels": (lambda s, k: auroc(s, s), "0 and 1 only, got values from"),
    "shape": (lambda s, k: auroc(s, np.zeros((N, 2))), r"target has shape \(120, 2\); for scores \(120, 4\)"),
    "nan": (lambda s, k: auroc(np.where(s > 1, np.nan, s), k), "scores are NaN"),
    "weight": (lambda s, k: auroc(s, s > 0, np.ones(3)), r"\(120, 4\), but weight has \(3,\)"),
    "no_weight": (lambda s, k: auroc(s, s > 0, np.zeros(N)), "all weights are 0"),
    "negative_weight": (lambda s, k: average_precision(s, s > 0, -np.ones(N)), "finite and at least 0"),
    "empty": (lambda s, k: auroc(s[:0], k[:0]), "there are no scores"),
    "average": (lambda s, k: auroc(s, s > 0, average="samples"), "average must be 'macro'"),
    "versus": (lambda s, k: auroc(s, s > 0, versus="ovo"), "versus is 'rest' or 'one', got 'ovo'"),
    "pairs_micro": (lambda s, k: metrics.auroc_ovo(s, k, average="micro"), "pairs of classes is 'macro' or 'weighted'"),
    "pairs_of_labels": (lambda s, k: auroc(s, s > 0, versus="one"), "need classes that exclude each other"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arrays_are_refused(call, message):
    scores, _, _ = labels()
    _, numbers, _ = classes()
    with pytest.raises(ValueError, match=message):
        call(scores, numbers)


def test_log_odds_of_classes_rank_where_probabilities_are_rounded_to_1():
    logits = torch.tensor([[60.0, 0.0, 0.0], [50.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    batch = canonical(logits, torch.tensor([0, 1, 1, 2]))
    odds = areas.class_log_odds(batch)
    others = torch.stack([torch.cat([logits[:, :k], logits[:, k + 1 :]], 1).double().logsumexp(1) for k in range(3)])
    torch.testing.assert_close(odds, logits.T.double() - others)
    assert metrics.auroc.measure_samples(batch) == pytest.approx((1.0 + 0.75 + 1.0) / 3)


def test_curves_and_metrics_are_one_function():
    assert curves.auroc is auroc
    assert metrics.get_measure("auroc_ovo") is metrics.auroc_ovo
    assert metrics.get_measure("roc_auc_ovo") is metrics.auroc_ovo
