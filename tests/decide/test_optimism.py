"""The corrected value: each row judged by choices made without it, and closer to the truth than the value itself."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import cohen_kappa_score, f1_score

from metricfit import metrics
from metricfit.decide import optimism
from metricfit.decide.held_out import HeldOut
from metricfit.decide.optimism import draw_balances, draw_multiplicities
from metricfit.decide.rules import Goal, choose_threshold
from metricfit.stats import bootstrap


def rows_of(y, classes=2, weight=None, groups=None, known=False):
    shares = np.bincount(y, minlength=classes) / len(y)
    return HeldOut(np.zeros((len(y), 1 if classes == 2 else classes)), y, weight, groups, shares, balance_known=known)


def corrected_value(fit, y, metric, *, resamples=None, seed=0, **settings):
    return optimism.corrected_value(fit, rows_of(y, **settings), Goal(metric, seed=seed), resamples=resamples)


def interval_of_decisions(decided, y, metric, **settings):
    return optimism.interval_of_decisions(decided, rows_of(y, **settings), Goal(metric))


def noise(n, positives, seed):
    """Scores that say nothing about the labels."""
    z = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z.numpy(), (np.arange(n) < positives).astype(int)


def with_empirical_threshold(z, y, metric):
    return lambda weight: (z >= choose_threshold(z, y, weight, metric, rule="empirical").threshold).astype(int)


def test_it_is_the_value_of_the_decisions_of_resamples_that_left_the_row_out():
    """The naive twin keeps every decision, and averages those about rows that were not drawn."""
    z, y = noise(30, 10, seed=0)
    weight = torch.rand(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64).numpy() + 0.5
    fit = with_empirical_threshold(z, y, metrics.f1)
    found = corrected_value(fit, y, metrics.f1, weight=weight, resamples=25, seed=3)
    about = [[] for _ in range(30)]
    for drawn in draw_multiplicities(y, None, 25, 3):
        for row, decided in enumerate(fit(weight * drawn).tolist()):
            if drawn[row] == 0:
                about[row].append(decided)
    share = np.array([np.mean(decisions) for decisions in about])
    tp, predicted, positives = (weight * share * y).sum(), (weight * share).sum(), (weight * y).sum()
    assert found.value == pytest.approx(float(2 * tp / (predicted + positives)))
    apparent = f1_score(y, fit(weight), sample_weight=weight)
    assert found.optimism == pytest.approx(float(apparent) - found.value)


@pytest.mark.parametrize("metric", ["mcc", "balanced_accuracy"])
def test_noise_is_worth_nothing(metric):
    """The best threshold of noise looks good; corrected, it is worth about what chance gives."""
    measure = metrics.get_metric(metric)
    chance = 0.5 if metric == "balanced_accuracy" else 0.0
    apparent, corrected = [], []
    for seed in range(5):
        z, y = noise(200, 20, seed)
        found = corrected_value(with_empirical_threshold(z, y, measure), y, measure, resamples=60)
        apparent.append(found.value + found.optimism - chance)
        corrected.append(found.value - chance)
    assert np.mean(apparent) > 0.05
    assert abs(np.mean(corrected)) < 0.4 * np.mean(apparent)


@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy", "cost(fp=1, fn=10)"])
def test_the_corrected_value_is_never_better_than_the_value_on_the_rows(metric):
    """On so few rows, with ties, the resamples alone would at times estimate a better value."""
    measure = metrics.get_metric(metric)
    for seed in range(60):
        z, y = noise(20, 5, seed)
        found = corrected_value(
            with_empirical_threshold((z + y * (seed % 2)).round(), y, measure), y, measure, resamples=10, seed=seed
        )
        assert found.optimism <= 0 if measure.minimize else found.optimism >= 0


def test_a_fixed_decision_has_no_optimism_and_an_interval_around_its_value():
    z, y = noise(400, 100, seed=2)
    found = corrected_value(lambda _: (z + y >= 0.5).astype(int), y, metrics.recall, resamples=400)
    assert found.optimism == pytest.approx(0.0)
    spread = (found.value * (1 - found.value) / 100) ** 0.5
    assert found.value - found.interval[0] == pytest.approx(1.96 * spread, rel=0.35)
    assert found.interval[1] - found.value == pytest.approx(1.96 * spread, rel=0.35)


def test_a_metric_that_is_minimised():
    z, y = noise(200, 20, seed=4)
    measure = metrics.cost(fp=1, fn=10)
    found = corrected_value(with_empirical_threshold(z, y, measure), y, measure, resamples=60)
    assert found.optimism < 0
    assert found.interval[0] < found.value < found.interval[1]


def test_several_classes_in_the_order_of_their_numbers():
    y = np.arange(90) % 3
    decided = np.where(np.arange(90) < 60, y, (y + 1) % 3)
    found = corrected_value(lambda _: decided, y, metrics.f1, classes=3, resamples=20)
    assert found.value == pytest.approx(f1_score(y, decided, average="macro"))
    kappa = corrected_value(lambda _: decided, y, metrics.weighted_kappa(power=2), classes=3, resamples=20)
    assert kappa.value == pytest.approx(cohen_kappa_score(y, decided, weights="quadratic"))
    assert kappa.interval[0] < kappa.value < kappa.interval[1]


def test_rows_of_one_class_and_whole_groups_are_drawn():
    y = np.array([0] * 12 + [1] * 6 + [2] * 2)
    for drawn in draw_multiplicities(y, None, 10, 0):
        assert [float(drawn[y == label].sum()) for label in range(3)] == [12, 6, 2]
    groups = np.array(list("aabbccddeeff" + "ggaahh" + "ij"))
    for drawn in draw_multiplicities(y, groups, 10, 0):
        for group in np.unique(groups):
            assert len(set(drawn[groups == group].tolist())) == 1
        with_a_rare_class = [float(drawn[groups == group][0]) for group in "ij"]
        assert sum(with_a_rare_class) == 2
    again = [drawn.tolist() for drawn in draw_multiplicities(y, groups, 3, 7)]
    assert again == [drawn.tolist() for drawn in draw_multiplicities(y, groups, 3, 7)]


def test_one_group_per_class_cannot_be_resampled():
    y = np.array([0, 0, 1, 1])
    with pytest.raises(ValueError, match="one group per class"):
        list(draw_multiplicities(y, np.array(["a", "a", "b", "b"]), 2, 0))


@pytest.mark.parametrize("right", [2, 20, 200])
def test_the_interval_of_right_decisions_is_that_of_the_beta_distribution(right):
    y = (np.arange(3 * right) < right).astype(int)
    low, high = interval_of_decisions(y, y, metrics.recall)
    assert low == pytest.approx(stats.beta(right + 0.5, 0.5).ppf(0.025), rel=0.05)
    assert high == 1.0


def test_the_interval_of_decisions_with_errors_is_about_that_of_the_bootstrap():
    z, y = noise(400, 100, seed=2)
    decided = (z + 2 * y >= 1).astype(int)
    low, high = interval_of_decisions(decided, y, metrics.f1)
    drawn = bootstrap(decided.astype(float), y, metrics.f1, threshold=0.5, resamples=1000).interval
    assert (low, high) == pytest.approx((drawn.low, drawn.high), abs=0.02)


def test_groups_and_weights_widen_the_interval_of_decisions():
    y = np.arange(200) % 2
    low, _ = interval_of_decisions(y, y, metrics.f1)
    in_pairs, _ = interval_of_decisions(y, y, metrics.f1, groups=np.arange(200) // 4)
    unequal, _ = interval_of_decisions(y, y, metrics.f1, weight=np.logspace(-3, 0, 200))
    assert max(in_pairs, unequal) < low


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_without_an_error_are_not_certain(classes):
    y = np.arange(30 * classes) % classes
    found = corrected_value(lambda _: y, y, metrics.f1, classes=classes)
    assert found.value == found.interval[1] == 1.0
    assert 0.85 < found.interval[0] < 0.99


def test_the_interval_counts_that_the_class_balance_of_the_rows_is_a_sample():
    y = (np.arange(1000) % 20 == 0).astype(int)
    nothing = np.zeros(1000, dtype=int)  # right about every negative: accuracy is 1 minus the share
    low, high = corrected_value(lambda w: nothing, y, metrics.accuracy, resamples=400).interval
    binomial = 2 * 1.96 * (0.95 * 0.05 / 1000) ** 0.5
    assert 0.8 * binomial < high - low < 1.2 * binomial
    known = corrected_value(lambda w: nothing, y, metrics.accuracy, resamples=100, known=True).interval
    assert known[1] - known[0] < 0.5 * binomial


def test_balances_vary_as_those_of_resampled_groups_do():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 5)
    y, weight = (rng.random(60) < 0.3)[groups].astype(int), rng.random(300)
    balances = draw_balances(y, weight, groups, seed=0)
    drawn = [float((weight * next(balances))[y == 1].sum() / weight.sum()) for _ in range(2000)]
    shares = []
    for _ in range(2000):
        rows = (5 * rng.integers(0, 60, 60)[:, None] + np.arange(5)).ravel()
        shares.append(float(weight[rows] @ y[rows] / weight[rows].sum()))
    assert np.mean(drawn) == pytest.approx(np.mean(shares), abs=0.005)
    assert np.std(drawn) == pytest.approx(np.std(shares), rel=0.1)
