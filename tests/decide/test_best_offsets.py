"""Offsets on the logits by coordinate ascent: each coordinate exact, by brute force; never below the plain argmax."""

import itertools

import pytest
import torch
from sklearn.metrics import cohen_kappa_score, f1_score

from metricfit import Counts, metrics
from metricfit.decide.offsets import best_offsets
from metricfit.metrics import averaged

METRICS = [
    "f1",
    "accuracy",
    "mcc",
    "kappa",
    "balanced_accuracy",
    "precision",
    "fpr",
    "fnr",
    "gmean",
    "cost(fp=1, fn=5)",
    "weighted_kappa(power=1)",
    "weighted_kappa(power=2)",
    "cost_matrix",
]
#: Costs of any order, for two and for three classes.
COSTS = {2: [[0, 1], [5, -1]], 3: [[0, 1, 4], [2, 0, 1], [9, 3, -1]]}


def problem(seed, n=8, c=3, *, ties=False, weighted=False, absent=False):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, c, generator=generator, dtype=torch.float64)
    if ties:
        logits = logits.round()
    target = torch.randint(0, c - absent, (n,), generator=generator)
    weight = torch.rand(n, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    return logits, target, weight


def value_at(logits, target, weight, offsets, metric, average="macro"):
    decided = (logits.double() + offsets).argmax(1)
    if metric == "cost_matrix" or str(metric).startswith("weighted_kappa"):
        return matrix_value(decided, target, weight, metric, logits.shape[1])
    counts = Counts.from_labels(decided, target, num_classes=logits.shape[1], weight=weight)
    return averaged(metrics.get_metric(metric), counts, average).item()


def matrix_value(decided, target, weight, metric, classes):
    """By scikit-learn, and for costs the mean over the rows."""
    if metric == "cost_matrix":
        costs = torch.tensor(COSTS[classes], dtype=torch.float64)[target, decided]
        weight = torch.ones_like(costs) if weight is None else weight
        return ((costs * weight).sum() / weight.sum()).item()
    kind = "linear" if "1" in metric else "quadratic"
    settings = {"weights": kind, "labels": range(classes), "replace_undefined_by": 0.0, "sample_weight": weight}
    return cohen_kappa_score(target, decided, **settings)


def of_classes(metric, classes):
    """The metric itself; costs depend on the number of classes."""
    return metrics.cost_matrix(COSTS[classes]) if metric == "cost_matrix" else metrics.get_metric(metric)


def best_of_one_coordinate(logits, target, weight, offsets, k, metric, average="macro"):
    """The best value over class k's offset: at, between and beyond all the places where a decision changes."""
    z = logits.double() + offsets
    others = z.clone()
    others[:, k] = -torch.inf
    places = sorted(set((others.max(1).values - z[:, k]).tolist()))
    between = [(a + b) / 2 for a, b in itertools.pairwise(places)]
    values = []
    for change in [places[0] - 1, *between, places[-1] + 1]:
        moved = offsets.clone()
        moved[k] += change
        values.append(value_at(logits, target, weight, moved, metric, average))
    return (min if of_classes(metric, z.shape[1]).minimize else max)(values)


SETTINGS = [{}, {"ties": True}, {"weighted": True}, {"weighted": True, "absent": True}, {"ties": True, "absent": True}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("metric", METRICS)
def test_value_is_that_of_the_decisions_and_no_single_offset_betters_it(metric, settings):
    sign = -1 if of_classes(metric, 3).minimize else 1
    for seed in range(3):
        logits, target, weight = problem(seed, **settings)
        found = best_offsets(logits, target, of_classes(metric, 3), weight=weight, rounds=50)
        assert found.value == pytest.approx(value_at(logits, target, weight, found.offsets, metric), abs=1e-9), seed
        plain = value_at(logits, target, weight, torch.zeros(3).double(), metric)
        assert sign * found.value >= sign * plain - 1e-9, seed
        for k in range(3):
            best = best_of_one_coordinate(logits, target, weight, found.offsets, k, metric)
            assert sign * found.value >= sign * best - 1e-9, (seed, k)


@pytest.mark.parametrize("metric", ["npv", "markedness", "f1", "p4"])
def test_sums_of_fractional_weights_that_should_be_0_are_not_divided_by_each_other(metric):
    """Weights taken from a sum one after the other leave 1e-17 of it, and 1e-17 of 1e-17 is any number."""
    for seed in range(6):
        logits, target, weight = problem(seed, c=4, weighted=True)
        found = best_offsets(logits, target, metric, weight=weight, rounds=50)
        assert found.value == pytest.approx(value_at(logits, target, weight, found.offsets, metric), abs=1e-9), seed
        best = max(best_of_one_coordinate(logits, target, weight, found.offsets, k, metric) for k in range(4))
        assert found.value >= best - 1e-9, seed


@pytest.mark.parametrize("metric", METRICS)
def test_one_coordinate_is_brute_force(metric):
    """The first round's first coordinate, told by one round on two classes, where there is no other."""
    for seed in range(8):
        logits, target, _ = problem(seed, n=7, c=2)
        found = best_offsets(logits, target, of_classes(metric, 2))
        sign = -1 if of_classes(metric, 2).minimize else 1
        best = best_of_one_coordinate(logits, target, None, torch.zeros(2).double(), 0, metric)
        plain = value_at(logits, target, None, torch.zeros(2).double(), metric)
        assert found.value == pytest.approx(sign * max(sign * best, sign * plain), abs=1e-12), seed


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_averages(average):
    for seed in range(5):
        logits, target, _ = problem(seed, n=12, c=4)
        found = best_offsets(logits, target, "f1", average=average)
        expected = f1_score(target, (logits + found.offsets).argmax(1), average=average, zero_division=0)
        assert found.value == pytest.approx(expected)
        assert found.value >= f1_score(target, logits.argmax(1), average=average, zero_division=0) - 1e-12


def test_it_betters_an_unfair_argmax():
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(300) % 3
    logits = torch.randn(300, 3, generator=generator) + 2 * torch.nn.functional.one_hot(target, 3)
    logits += torch.tensor([3.0, 0.0, -3.0])
    found = best_offsets(logits, target, "f1")
    assert found.value > f1_score(target, logits.argmax(1), average="macro") + 0.2
    assert found.offsets[2] > found.offsets[0] + 4


@pytest.mark.parametrize("rows", [1, 3, 10**6])
def test_positions_in_blocks(rows, monkeypatch):
    from metricfit.decide import offsets

    logits, target, weight = problem(3, n=20, weighted=True)
    expected = best_offsets(logits, target, "f1", weight=weight)
    monkeypatch.setattr(offsets, "CANDIDATES_TIMES_CLASSES", rows * 3)
    found = best_offsets(logits, target, "f1", weight=weight)
    torch.testing.assert_close(found.offsets, expected.offsets)
    assert found.value == pytest.approx(expected.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_value_holds_for_offsets_added_to_logits_as_given(dtype):
    """What a user does next: (logits + offsets).argmax(1)."""
    for seed in range(10):
        logits, target, _ = problem(seed, n=60)
        logits = logits.to(dtype)
        found = best_offsets(logits, target, "f1")
        decided = (logits + found.offsets).argmax(1)
        assert found.value == pytest.approx(f1_score(target, decided, average="macro", zero_division=0)), seed


def test_equal_logits_everywhere():
    found = best_offsets(torch.zeros(6, 3), torch.tensor([0, 1, 2, 2, 2, 1]), "accuracy")
    assert found.value == pytest.approx(0.5)
    assert found.offsets.argmax() == 2


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (torch.zeros(4), torch.zeros(4), r"best_offsets needs logits \(n, c\) and labels \(n,\)"),
        (torch.zeros(4, 1), torch.zeros(4), "best_offsets needs logits"),
        (torch.zeros(4, 3), torch.zeros(3), r"got \(4, 3\) and \(3,\)"),
        (torch.zeros(0, 3), torch.zeros(0), "best_offsets needs logits"),
        (torch.full((4, 3), torch.nan), torch.zeros(4), "12 of 12 logits are NaN"),
        (torch.zeros(4, 3), torch.full((4,), 3), "target labels must lie in 0..2"),
    ],
)
def test_what_is_refused(logits, target, message):
    with pytest.raises(ValueError, match=message):
        best_offsets(logits, target.long(), "f1")
