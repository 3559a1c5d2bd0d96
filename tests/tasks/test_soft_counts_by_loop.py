"""Soft counts and matrix entries of exclusive classes against a loop over samples, and their continuity at ties."""

import math

import pytest
import task_twins as twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit import Counts, steps
from metricfit.metrics import confusion_matrix

BATCHES = {
    "random": [[0.3, -1.2, 2.0, 0.1], [1.0, 0.9, -3.0, 0.0], [-0.5, 0.2, 0.1, 0.3], [4.0, 1.0, 0.5, -2.0]],
    "tie of the first two": [[1.0, 1.0, 0.0, -1.0], [0.0, 2.0, 2.0, 1.0], [-1.0, 0.0, 3.0, 3.0], [1.0, 0.0, 0.0, 1.0]],
    "tie of the second and third": [[2.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]],
    "all tied": [[0.0] * 4, [5.0] * 4],
    "probability 1 and 0": [[1e4, -1e4, -1e4, -1e4], [-1e4, 1e4, 0.0, 3.0]],
    "halves": [[1e4, 1e4, -1e4, -1e4], [-1e4, 0.0, 0.0, -1e4]],
    "sure": [[30.0, 0.0, -5.0, 1.0], [-40.0, 2.0, 50.0, 0.0]],
}
LABELS = [0, 1, 2, 3]
WEIGHT = [1.0, 0.5, 2.0, 0.25]


def checked(logits, labels, weight, step, threshold=None):
    """Counts and matrix at a threshold, both compared with the loop."""
    expected = twins.python_matrix(logits, labels, weight, step, threshold)
    x, y, w = (torch.tensor(each, dtype=torch.float64) for each in (logits, labels, weight))
    y = y.long() if y.dim() == 1 else y
    settings = {"weight": w, "step": step, "threshold": threshold}
    counts = Counts.soft(x, y, task="multiclass", **settings)
    for found, cells in zip(counts, twins.counts_of_matrix(expected), strict=True):
        assert found.tolist() == pytest.approx(cells, abs=1e-12)
    if isinstance(step, steps.StraightThrough):
        return  # test_class_gradients looks at its matrix
    matrix = confusion_matrix(x, y, soft=True, **settings)
    for found, cells in zip(matrix.tolist(), expected, strict=True):
        assert found == pytest.approx(cells, abs=1e-12)
    torch.testing.assert_close(matrix.diagonal(), counts.tp)
    torch.testing.assert_close(matrix.sum(1), counts.positives)
    torch.testing.assert_close(matrix.sum(0), counts.predicted)


@pytest.mark.parametrize("threshold", [None, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("name", BATCHES)
def test_counts_and_matrix_are_those_of_a_loop(name, threshold, any_step):
    logits = BATCHES[name]
    checked(logits, LABELS[: len(logits)], WEIGHT[: len(logits)], any_step, threshold)


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_two_classes(any_step, threshold):
    logits = [[0.3, -1.0], [0.2, 0.2], [1e4, -1e4], [-3.0, 2.0]]
    checked(logits, [0, 1, 1, 0], WEIGHT, any_step, threshold)


def test_two_classes_at_the_dynamic_threshold_are_the_binary_problem_at_one_half(any_step):
    """t is 1/2 and each step is odd about it, so that the masses add up to 1 already."""
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(20) % 2
    of_two = Counts.soft(x, y, step=any_step)
    binary = Counts.soft(x[:, 1] - x[:, 0], y, step=any_step)
    for two, one in zip(of_two, binary, strict=True):
        torch.testing.assert_close(two[1:], one)


@pytest.mark.parametrize("step", [None, steps.Linear(0.2)])
def test_the_default_is_linear_02_at_the_dynamic_threshold(step):
    x, y = torch.tensor(BATCHES["random"], dtype=torch.float64), torch.tensor(LABELS)
    expected = twins.counts_of_matrix(twins.python_matrix(x.tolist(), LABELS, [1.0] * 4, steps.Linear(0.2)))
    for threshold in (None, "dynamic"):
        for found, cells in zip(Counts.soft(x, y, step=step, threshold=threshold), expected, strict=True):
            assert found.tolist() == pytest.approx(cells, abs=1e-12)


def test_several_thresholds_are_stacked(any_step):
    x, y = torch.tensor(BATCHES["random"], dtype=torch.float64), torch.tensor(LABELS)
    thresholds = [0.2, 0.5, 0.7]
    counts = Counts.soft(x, y, step=any_step, threshold=thresholds)
    for at, t in enumerate(thresholds):
        expected = twins.counts_of_matrix(twins.python_matrix(x.tolist(), LABELS, [1.0] * 4, any_step, t))
        for found, cells in zip(counts, expected, strict=True):
            assert found.shape == (3, 4)
            assert found[at].tolist() == pytest.approx(cells, abs=1e-12)


def test_a_threshold_in_a_tensor_is_the_number(any_step):
    x, y = torch.tensor(BATCHES["random"], dtype=torch.float64), torch.tensor(LABELS)
    by_tensor = Counts.soft(x, y, step=any_step, threshold=torch.tensor(0.3, dtype=torch.float64))
    for found, expected in zip(by_tensor, Counts.soft(x, y, step=any_step, threshold=0.3), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_step_that_no_class_reaches_leaves_the_softmax():
    x = torch.tensor([[0.0, 0.1, -0.1]], dtype=torch.float64)
    counts = Counts.soft(x, torch.tensor([1]), step=steps.RaisedCosine(0.1), threshold=0.9)
    torch.testing.assert_close(counts.predicted, torch.softmax(x, 1)[0])


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_shares_of_classes_as_target(any_step, threshold):
    shares = [[0.7, 0.3, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 1.0, 0.0], [0.1, 0.0, 0.0, 0.9]]
    checked(BATCHES["random"], shares, WEIGHT, any_step, threshold)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_matrix_of_shares_of_another_type_than_the_logits(dtype):
    x = torch.tensor(BATCHES["random"], dtype=torch.float64)
    shares = torch.tensor([[0.75, 0.25, 0.0, 0.0], [0.25] * 4, [0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.0, 0.5]])
    expected = twins.python_matrix(x.tolist(), shares.tolist(), [1.0] * 4, steps.Linear(0.2))
    matrix = confusion_matrix(x, shares.to(dtype), soft=True)
    torch.testing.assert_close(matrix.double(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_labels_of_every_whole_type(dtype):
    """Masks are stored as uint8."""
    x, y = torch.tensor(BATCHES["random"], dtype=torch.float64).requires_grad_(), torch.tensor(LABELS)
    for count in (
        lambda y: Counts.soft(x, y),
        lambda y: Counts.soft(x, y, step=steps.Sigmoid()),
        lambda y: Counts.hard(x, y),
    ):
        for found, expected in zip(count(y.to(dtype)), count(y), strict=True):
            torch.testing.assert_close(found, expected)


def test_a_class_masked_by_minus_infinity_gets_no_share():
    x = torch.tensor([[1.0, -math.inf, 0.0], [0.5, -math.inf, 2.0]], dtype=torch.float64, requires_grad=True)
    counts = Counts.soft(x, torch.tensor([0, 2]))
    counts.tp.sum().backward()
    without = x.detach()[:, [0, 2]]
    torch.testing.assert_close(counts.tp[[0, 2]], Counts.soft(without, torch.tensor([0, 1])).tp)
    assert counts.predicted[1] == 0
    assert x.grad.isfinite().all()


# Theorem 5.1: the entries are continuous in the probabilities. By a Lipschitz bound at ties, where the two classes that
# make the threshold change places.

probabilities = st.lists(st.integers(1, 12), min_size=2, max_size=6).map(lambda w: [each / sum(w) for each in w])


def entries(p, step):
    """The row of matrix entries of one sample with these probabilities."""
    logits = torch.log(torch.tensor([p], dtype=torch.float64))
    return confusion_matrix(logits, torch.tensor([0]), soft=True, step=step)[0]


@settings(max_examples=150, deadline=None)
@given(probabilities, st.integers(0, 10**6), st.sampled_from([1e-4, 1e-6, 1e-8]))
def test_entries_change_little_when_probabilities_do(p, seed, size):
    """Small integers make ties common; the steps' slopes here are at most 20, and the sum of masses at least 1/2."""
    moves = torch.empty(len(p)).uniform_(-1, 1, generator=torch.Generator().manual_seed(seed)).double()
    moves = (moves - moves.mean()) * size * min(p)
    moved = (torch.tensor(p, dtype=torch.float64) + moves).tolist()
    distance = moves.abs().max().item()
    for step in (steps.Linear(0.2), steps.Sigmoid(10), steps.Identity(), steps.RaisedCosine(0.1)):
        t = sum(sorted(p)[-2:]) / 2
        slope = max(2 * 0.2 / t, 2 / t, 20.0, 0.4 / max(1 - 1.5 * t, 0.25))
        bound = 8 * len(p) * slope * distance + 1e-13
        assert (entries(moved, step) - entries(p, step)).abs().max().item() <= bound, step


@settings(max_examples=60, deadline=None)
@given(probabilities)
def test_entries_are_those_of_a_loop_at_any_probabilities(p):
    for step in (steps.Linear(0.2), steps.Sigmoid(10), steps.Identity(), steps.RaisedCosine(0.1)):
        assert entries(p, step).tolist() == pytest.approx(twins.python_decision_of(p, step), abs=1e-12)


@pytest.mark.parametrize("step", [steps.Linear(0.2), steps.Sigmoid(10), steps.RaisedCosine(0.1)], ids=str)
def test_decisions_are_continuous_when_two_classes_change_places(step):
    gaps = [4.0**-k for k in range(2, 15)]
    jumps = [
        (entries([0.4 + gap, 0.4 - gap, 0.2], step) - entries([0.4 - gap, 0.4 + gap, 0.2], step)).abs().max().item()
        for gap in gaps
    ]
    assert all(jump <= 60 * gap for jump, gap in zip(jumps, gaps, strict=True))
    assert jumps[0] > 0.01
