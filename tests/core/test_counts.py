"""The Counts object: hard counts against scikit-learn, its arithmetic, and what it refuses."""

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score, confusion_matrix, multilabel_confusion_matrix

from metricfit import Counts, metrics
from metricfit.metrics import averaged


def test_hard_counts_are_scikit_learns_confusion_matrix(batch):
    given = batch(200)
    for threshold in (0.1, 0.5, 0.9):
        counts = Counts.hard(given.logits, given.target, threshold=threshold, weight=given.weight)
        decisions = 1 / (1 + np.exp(-given.logits.numpy())) >= threshold
        matrix = confusion_matrix(given.target.numpy(), decisions, sample_weight=given.weight.numpy())
        assert [count.item() for count in counts] == pytest.approx(
            [matrix[1, 1], matrix[0, 1], matrix[1, 0], matrix[0, 0]]
        )
        assert all(count.shape == (1,) and count.dtype == torch.float64 for count in counts)


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_labels_of_several_classes_are_counted_one_against_the_rest(weighted):
    random = np.random.default_rng(0)
    predicted, target = random.integers(0, 4, 100), random.integers(0, 3, 100)
    weight = random.uniform(0.5, 2, 100) if weighted else None
    counts = Counts.from_labels(
        torch.from_numpy(predicted),
        torch.from_numpy(target),
        num_classes=5,
        weight=None if weight is None else torch.from_numpy(weight),
    )
    matrices = multilabel_confusion_matrix(target, predicted, labels=range(5), sample_weight=weight)
    for own, (i, j) in zip(counts, ((1, 1), (0, 1), (1, 0), (0, 0)), strict=True):
        assert own.tolist() == pytest.approx(matrices[:, i, j].tolist(), abs=1e-9)


def test_a_decision_at_the_threshold_itself_is_positive():
    counts = Counts.hard(torch.tensor([0.0]), torch.tensor([1]), threshold=0.5)
    assert [count.item() for count in counts] == [1, 0, 0, 0]


def test_several_thresholds_give_a_leading_axis(batch, naive, smooth_step):
    given, thresholds = batch(30), [0.2, 0.5, 0.7]
    counts = Counts.soft(given.logits, given.target, step=smooth_step, threshold=thresholds)
    assert counts.tp.shape == (3, 1)
    expected = [naive.counts(given.logits, given.target, None, smooth_step, t) for t in thresholds]
    torch.testing.assert_close(torch.stack(tuple(counts)).squeeze(-1), torch.stack(expected, dim=1))


def test_counts_past_two_to_the_24_stay_exact():
    weight = torch.tensor([2.0**24, 1.0, 2.0])
    assert Counts.hard(torch.ones(3), torch.ones(3), weight=weight).tp.item() == 2**24 + 3


def test_soft_targets_share_a_sample_between_the_classes():
    counts = Counts.hard(torch.tensor([3.0]), torch.tensor([0.3], dtype=torch.float64))
    assert [count.item() for count in counts] == pytest.approx([0.3, 0.7, 0, 0])


def test_margins_of_the_table():
    counts = Counts(tp=3, fp=1, fn=2, tn=4)
    margins = counts.positives, counts.negatives, counts.predicted, counts.n
    assert [margin.item() for margin in margins] == [5, 5, 4, 10]


def test_a_column_of_logits_gives_the_counts_of_a_vector(batch):
    given = batch(20)
    row = Counts.soft(given.logits, given.target)
    column = Counts.soft(given.logits.unsqueeze(1), given.target.unsqueeze(1))
    assert all(torch.equal(a, b) for a, b in zip(row, column, strict=True))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16], ids=str)
def test_the_type_of_the_labels_does_not_matter(batch, dtype):
    given = batch(20)
    expected = Counts.soft(given.logits, given.target)
    counts = Counts.soft(given.logits, given.target.to(dtype))
    assert all(torch.equal(a, b) for a, b in zip(counts, expected, strict=True))


X, Y = torch.tensor([0.5, -0.5, 1.0]), torch.tensor([1, 0, 1])


@pytest.mark.parametrize("count", [Counts.soft, Counts.hard])
@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        ((X, torch.tensor([1, 0, 2])), ValueError, "must be 0 or 1"),
        ((X, torch.tensor([1, -1, 1])), ValueError, r"\(target \+ 1\) / 2"),
        ((X, torch.tensor([1, 2, 2])), ValueError, "target - 1"),
        ((X, torch.tensor([1.0, torch.nan, 0.0])), ValueError, "drop those rows"),
        ((torch.tensor([0.5, torch.nan, 1.0]), Y), ValueError, "1 of 3 logits are NaN, the first at position 1"),
        ((X, Y[:2]), ValueError, "differ in length"),
        ((X.reshape(1, 3), Y), ValueError, r"logits \(1, 3\) with target \(3,\) fit no task"),
        ((X[0], Y), ValueError, "unsqueeze"),
        ((Y, Y), TypeError, "floating point"),
        (([0.5], Y), TypeError, "as_tensor"),
    ],
)
def test_a_mistake_is_refused_with_a_remedy(count, arguments, error, remedy):
    with pytest.raises(error, match=remedy):
        count(*arguments)


@pytest.mark.parametrize("weight", [[1.0, -1.0, 1.0], [1.0, torch.inf, 1.0], [1.0, torch.nan, 1.0], [1.0, 1.0]])
def test_invalid_weights_are_refused(weight):
    with pytest.raises(ValueError, match="weight"):
        Counts.soft(X, Y, weight=torch.tensor(weight))


def test_counts_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        Counts(torch.ones(2), torch.ones(2), torch.ones(2), torch.ones(3))


@pytest.mark.parametrize(
    ("predicted", "target", "remedy"),
    [([0, 2], [0, 1], "num_classes="), ([0, 1], [0.5, 1], "fractions"), ([0, 1], [0, 1, 1], "2 predicted labels")],
)
def test_invalid_labels_are_refused(predicted, target, remedy):
    with pytest.raises(ValueError, match=remedy):
        Counts.from_labels(torch.tensor(predicted), torch.tensor(target))


@pytest.fixture
def multilabel():
    """Logits and targets of five labels, several of which can hold at once, and their kappa per label, averaged."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(60, 5, generator=generator) < 0.4).long()
    logits = torch.randn(60, 5, generator=generator) + target
    return logits, target


def kappa_of_columns(logits, target):
    return np.mean([cohen_kappa_score(y, x >= 0) for x, y in zip(logits.T.numpy(), target.T.numpy(), strict=True)])


SUMS = {
    "sum": sum,
    "+": lambda parts: parts[0] + parts[1] + parts[2],
    "stack": lambda parts: Counts.stack(parts).map(lambda cell: cell.sum(0)),
    "cells": lambda parts: Counts(*torch.stack([torch.stack(tuple(part)) for part in parts]).sum(0)),
}


@pytest.mark.parametrize("add", SUMS.values(), ids=SUMS)
def test_multilabel_counts_stay_multilabel_when_added(multilabel, add):
    logits, target = multilabel
    parts = [Counts.hard(*part) for part in zip(logits.split(25), target.split(25), strict=True)]
    value = averaged(metrics.kappa, add(parts))
    assert value.item() == pytest.approx(kappa_of_columns(logits, target))
    assert add(parts) == Counts.hard(logits, target)


def test_exclusive_counts_stay_exclusive_when_added():
    predicted, target = torch.tensor([0, 2, 1, 1, 2, 0]), torch.tensor([0, 1, 1, 2, 2, 0])
    parts = [
        Counts.from_labels(predicted[at], target[at], num_classes=3) for at in (slice(2), slice(2, 4), slice(4, 6))
    ]
    for add in SUMS.values():
        assert averaged(metrics.kappa, add(parts)).item() == pytest.approx(cohen_kappa_score(target, predicted))


def test_whether_classes_are_exclusive_is_inferred_unless_given():
    cells = [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0]  # one of the positives of each class is missing
    assert not Counts(*cells).exclusive
    assert Counts(*cells, exclusive=True).exclusive
    assert Counts([1, 0], [1, 1], [1, 1], [0, 1]).exclusive
    assert not Counts([1, 0], [1, 1], [1, 1], [0, 1], exclusive=False).exclusive
    assert Counts([1], [1], [0], [5], exclusive=False).exclusive  # one class is one class, however it is read


def test_counts_with_equal_numbers_and_equal_exclusivity_are_equal():
    counts = Counts(tp=[3, 1], fp=[1, 0], fn=[2, 0], tn=[4, 9], exclusive=False)
    same = Counts(*(torch.tensor(cell, dtype=torch.float32) for cell in counts), exclusive=False)
    assert (counts == same) is True
    assert (counts != same) is False
    assert counts != Counts(*counts, exclusive=True)
    assert counts != counts + counts
    assert counts != counts.map(lambda cell: cell[:1])
    assert counts != (3, 1, 2, 4)
    assert Counts(0, 0, 0, 1) != Counts(float("nan"), 0, 0, 1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counts)


def test_counts_move_to_another_type_or_device():
    counts = Counts(tp=[3, 1], fp=[1, 0], fn=[2, 0], tn=[4, 9], exclusive=False)
    moved = counts.to("cpu", torch.float32)
    assert all(cell.dtype == torch.float32 for cell in moved)
    assert moved == counts
    assert counts.to("meta").tp.device.type == "meta"


def test_counts_are_stacked_before_the_class_axis():
    parts = [Counts(tp=[3, 1], fp=[1, 0], fn=[2, 0], tn=[4, 9], exclusive=False)] * 3
    assert Counts.stack(parts).tp.shape == (3, 2)
    assert not Counts.stack(parts).exclusive
    for dim in (-1, 1):
        with pytest.raises(ValueError, match="before the class axis"):
            Counts.stack(parts, dim)
    with pytest.raises(ValueError, match="no counts"):
        Counts.stack([])


def test_counts_add_only_to_counts():
    counts = Counts(tp=3, fp=1, fn=2, tn=4)
    for other in (1, 0.0, torch.zeros(1)):
        with pytest.raises(TypeError):
            other + counts if isinstance(other, int) else counts + other
    assert counts.sum_over_ranks() == counts  # outside a distributed run
