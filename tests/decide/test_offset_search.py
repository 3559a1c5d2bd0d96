"""Offsets from several starts, on labels and on class probabilities, against a search over a grid of offsets."""

import itertools
from functools import partial

import pytest
import torch
from sklearn.metrics import cohen_kappa_score, f1_score, matthews_corrcoef

from metricfit import metrics
from metricfit.decide import offsets
from metricfit.decide.offsets import best_offsets


def problem(seed, n=120):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=generator)
    logits = torch.randn(n, 3, generator=generator).double() + 0.5 * torch.nn.functional.one_hot(y, 3)
    return logits, y


def best_of_grid(logits, score, steps=25, limit=3.0):
    """The best score of the decisions over a grid of the offsets of the second and the third class."""
    places = torch.linspace(-limit, limit, steps, dtype=torch.float64)
    grid = ((logits + torch.tensor([0.0, a, b])).argmax(1) for a, b in itertools.product(places, places))
    distinct = {tuple(decided.tolist()) for decided in grid}
    return max(score(torch.tensor(decided)) for decided in distinct)


def expected_f1(probabilities, weight, decided):
    """Macro F1 of the expected confusion matrix, class by class."""
    values = []
    for k in range(3):
        chosen = decided == k
        tp = float((weight * probabilities[:, k])[chosen].sum())
        total = float(weight[chosen].sum()) + float(weight @ probabilities[:, k])
        values.append(2 * tp / total)
    return sum(values) / 3


def test_several_starts_find_what_a_grid_finds_and_a_single_start_does_not():
    """A single start stops at F1 0.539, where the grid and several starts find 0.546."""
    logits, y = problem(46)
    shares, equal = torch.nn.functional.one_hot(y, 3).double(), torch.ones(len(y)).double()
    grid = best_of_grid(logits, lambda decided: expected_f1(shares, equal, decided), steps=41)
    single = best_offsets(logits, y, "f1", rounds=50, starts=1).value
    assert single < 0.540 < 0.546 < grid
    assert best_offsets(logits, y, "f1").value >= grid - 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_expected_counts_against_a_grid(seed):
    logits, _ = problem(seed, n=60)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.rand(60, generator=generator, dtype=torch.float64) + 0.1
    probabilities = torch.softmax(1.5 * logits, 1)
    found = best_offsets(logits, probabilities, "f1", weight=weight)
    decided = (logits + found.offsets).argmax(1)
    assert found.value == pytest.approx(expected_f1(probabilities, weight, decided))
    grid = best_of_grid(logits, lambda decided: expected_f1(probabilities, weight, decided))
    assert found.value >= grid - 1e-9


@pytest.mark.parametrize(
    ("metric", "score"),
    [
        ("mcc", matthews_corrcoef),
        ("kappa", cohen_kappa_score),
        ("weighted_kappa(power=1)", partial(cohen_kappa_score, weights="linear")),
        ("weighted_kappa(power=2)", partial(cohen_kappa_score, weights="quadratic")),
    ],
)
def test_metrics_of_the_whole_matrix_against_a_grid(metric, score):
    logits, y = problem(5, n=60)
    found = best_offsets(logits, y, metric)
    assert found.value == pytest.approx(score(y, (logits + found.offsets).argmax(1)))
    assert found.value >= best_of_grid(logits, lambda decided: score(y, decided)) - 1e-9


COSTS = torch.tensor([[0.0, 1.0, 4.0], [2.0, 0.0, 1.0], [9.0, 3.0, 0.0]], dtype=torch.float64)


def expected_cost(shares, weight, decided):
    return float((weight * (shares * COSTS[:, decided].T).sum(1)).sum() / weight.sum())


def expected_kappa(shares, weight, decided):
    """The quadratic kappa of the expected matrix, cell by cell."""
    matrix = torch.stack([(weight[:, None] * shares)[decided == k].sum(0) for k in range(3)], 1)
    distance = (torch.arange(3)[:, None] - torch.arange(3)) ** 2
    by_chance = torch.outer(matrix.sum(1), matrix.sum(0)) / matrix.sum()
    return float(1 - (matrix * distance).sum() / (by_chance * distance).sum())


@pytest.mark.parametrize("seed", range(2))
def test_expected_matrices_against_a_grid(seed):
    logits, _ = problem(seed, n=60)
    weight = torch.rand(60, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    shares = torch.softmax(1.5 * logits, 1)
    for metric, expected, sign in (
        (metrics.weighted_kappa(power=2), expected_kappa, 1),
        (metrics.cost_matrix(COSTS), expected_cost, -1),
    ):
        found = best_offsets(logits, shares, metric, weight=weight)
        assert found.value == pytest.approx(expected(shares, weight, (logits + found.offsets).argmax(1)))
        grid = best_of_grid(logits, lambda decided, of=expected, sign=sign: sign * of(shares, weight, decided))
        assert sign * found.value >= grid - 1e-9


@pytest.mark.parametrize(
    "metric", ["accuracy", "mcc", "kappa", "balanced_accuracy", "f1", "cost(fp=1, fn=5)", "weighted_kappa(power=2)"]
)
def test_shares_of_1_and_0_are_labels(metric):
    logits, y = problem(7, n=60)
    of_labels = best_offsets(logits, y, metric)
    of_shares = best_offsets(logits, torch.nn.functional.one_hot(y, 3).double(), metric)
    torch.testing.assert_close(of_shares.offsets, of_labels.offsets)
    assert of_shares.value == of_labels.value


def test_the_expected_accuracy_is_best_at_the_argmax():
    """Calibrated probabilities: no offsets can better the expected accuracy of the most probable class."""
    logits, _ = problem(2)
    found = best_offsets(logits, torch.softmax(logits, 1), "accuracy")
    assert found.value == pytest.approx(float(torch.softmax(logits, 1).max(1).values.mean()))


def test_a_coarse_search_on_part_of_the_rows_ends_at_nearly_the_same_value(monkeypatch):
    logits, y = problem(11, n=600)
    all_rows = best_offsets(logits, y, "f1").value
    monkeypatch.setattr(offsets, "COARSE_ROWS", 200)
    monkeypatch.setattr(offsets, "COARSE_CANDIDATES", 16)
    monkeypatch.setattr(offsets, "FINE_CANDIDATES_TIMES_CLASSES", 96)
    found = best_offsets(logits, y, "f1")
    assert found.value == pytest.approx(f1_score(y, (logits + found.offsets).argmax(1), average="macro"))
    assert found.value >= all_rows - 0.01


def test_a_search_without_starts_is_refused():
    with pytest.raises(ValueError, match="at least 1 start, got starts=0"):
        best_offsets(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), "f1", starts=0)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (torch.full((4, 3), 0.5), "sum to 1"),
        (torch.tensor([[2.0, -1.0, 0.0]]).repeat(4, 1), "at least 0"),
        (torch.full((4, 2), 0.5), r"got \(4, 3\) and \(4, 2\)"),
    ],
)
def test_shares_that_are_refused(shares, message):
    with pytest.raises(ValueError, match=message):
        best_offsets(torch.zeros(4, 3), shares, "f1")
