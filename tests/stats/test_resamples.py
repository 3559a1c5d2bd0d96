"""Every statistic of a drawn resample is that of the resample written out, by the library's own exact functions."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats
from sklearn.metrics import f1_score

from metricfit import curves, metrics
from metricfit.metrics.sweep import area_under_precision_recall, area_under_roc
from metricfit.stats.resampling import AtBest, AtThreshold, OfResample, Resampler, Table, UnderCurve, resampled_counts


def problem(seed, *, n=24, levels=9, weighted=False, grouped=False):
    rng = np.random.default_rng(seed)
    target = (rng.random(n) < 0.4).astype(float)
    target[:2] = 0, 1
    scores = np.round((rng.random(n) + 0.4 * target) * levels) / levels
    weight = rng.integers(1, 5, n) / 2 if weighted else None
    group = rng.integers(0, 7, n) if grouped else None
    return scores, target, weight, group


def written_out(drawn, table):
    for row in drawn:
        which = np.repeat(np.arange(len(row)), row)
        yield table.columns[0][which], table.target[which], None if table.weight is None else table.weight[which]


def draws(table, resamples=40, stratified=True, seed=0):
    return np.concatenate(list(Resampler(table, stratified=stratified, seed=seed).draw(resamples)))


kinds = pytest.mark.parametrize(
    ("weighted", "grouped", "stratified"), list(itertools.product([False, True], repeat=3)), ids=str
)


@kinds
@pytest.mark.parametrize("metric", ["f1", "mcc", "cost(fp=1, fn=3)", "precision", "accuracy"])
def test_the_best_threshold_of_a_resample_is_that_of_best_threshold(metric, weighted, grouped, stratified):
    scores, target, weight, group = problem(1, weighted=weighted, grouped=grouped)
    table = Table.from_samples((scores,), target, weight, group)
    drawn = draws(table, stratified=stratified)
    value, threshold = AtBest(table, scores, metrics.get_metric(metric), [])(drawn)
    for k, (s, y, w) in enumerate(written_out(drawn, table)):
        best = curves.best_threshold(s, y, metric, weight=w)
        assert (threshold[k], value[k]) == (best.threshold, pytest.approx(best.value, abs=1e-12))


@pytest.mark.parametrize("weighted", [False, True])
def test_requirements_hold_in_every_resample_or_it_is_infeasible(weighted):
    scores, target, weight, _ = problem(3, weighted=weighted)
    table = Table.from_samples((scores,), target, weight, None)
    drawn = draws(table, 200)
    wanted = ["recall >= 0.7", "precision >= 0.7"]
    statistic = AtBest(table, scores, metrics.f1, [metrics.parse_requirement(each) for each in wanted])
    value, threshold = statistic(drawn)
    infeasible = 0
    for k, (s, y, w) in enumerate(written_out(drawn, table)):
        try:
            best = curves.best_threshold(s, y, "f1", wanted, weight=w)
        except curves.InfeasibleError:
            infeasible += 1
            assert math.isnan(value[k])
            assert math.isnan(threshold[k])
        else:
            assert (threshold[k], value[k]) == (best.threshold, pytest.approx(best.value, abs=1e-12))
    assert 10 < infeasible < 190


@kinds
def test_areas_are_those_of_the_curves(weighted, grouped, stratified):
    scores, target, weight, group = problem(2, weighted=weighted, grouped=grouped)
    table = Table.from_samples((scores,), target, weight, group)
    drawn = draws(table, stratified=stratified)
    for area, function in ((area_under_roc, curves.auroc), (area_under_precision_recall, curves.average_precision)):
        expected = [function(*given) for given in written_out(drawn, table)]
        assert UnderCurve(table, scores, area)(drawn).value == pytest.approx(expected, abs=1e-12)
        assert OfResample(table, scores, function)(drawn).value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_fixed_threshold_gives_scikit_learns_value(weighted):
    scores, target, weight, _ = problem(4, n=30, weighted=weighted)
    table = Table.from_samples((scores,), target, weight, None)
    drawn = draws(table)
    values = AtThreshold(table, (scores >= 0.6).astype(float), metrics.f1)(drawn).value
    for k, (s, y, w) in enumerate(written_out(drawn, table)):
        assert values[k] == pytest.approx(f1_score(y, s >= 0.6, sample_weight=w, zero_division=0), abs=1e-12)


def test_equal_samples_become_rows_of_a_table():
    rng = np.random.default_rng(0)
    a, b, target = rng.integers(0, 2, (3, 500)).astype(float)
    table = Table.from_samples((a, b), target, None, None)
    assert len(table.target) == 8
    for x, y, z, size in zip(*table.columns, table.target, table.size, strict=True):
        assert size == ((a == x) & (b == y) & (target == z)).sum()
    assert table.size.sum() == 500


def test_stratified_resamples_keep_the_classes_and_others_do_not():
    for scores, target, weight, group in (problem(5), problem(5, n=600, levels=3)):
        table = Table.from_samples((scores,), target, weight, group)
        kept, free = (draws(table, 200, stratified=given) for given in (True, False))
        assert (kept @ table.target == target.sum()).all()
        assert (kept.sum(1) == len(target)).all()
        assert (free.sum(1) == len(target)).all()
        varied = free @ table.target
        p = target.mean()
        assert varied.std() == pytest.approx(math.sqrt(len(target) * p * (1 - p)), rel=0.2)


def test_tabulated_multiplicities_are_multinomial():
    """Each row of a stratum is binomial with its share: the chi-squared distance of 4000 draws is ordinary."""
    target = np.repeat([1.0, 0.0], [90, 210])
    called = np.concatenate([np.repeat([1.0, 0.0], [60, 30]), np.repeat([1.0, 0.0], [10, 200])])
    table = Table.from_samples((called,), target, None, None)
    drawn = draws(table, 4000)
    (row,) = np.flatnonzero((table.target == 1) & (table.columns[0] == 1))
    edges = np.arange(50, 71)
    observed = [(drawn[:, row] <= 50).sum(), *[(drawn[:, row] == k).sum() for k in edges[1:-1]]]
    law = scipy_stats.binom(90, 60 / 90)
    expected = np.array([law.cdf(50), *law.pmf(edges[1:-1])]) * 4000
    rest = 4000 - np.sum(observed), 4000 - expected.sum()
    assert scipy_stats.chisquare([*observed, rest[0]], [*expected, rest[1]]).pvalue > 0.001


def test_whole_groups_are_drawn():
    scores, target, weight, group = problem(6, grouped=True)
    table = Table.from_samples((scores,), target, weight, group)
    for stratified in (True, False):
        drawn = draws(table, 100, stratified=stratified)
        for label in np.unique(group):
            assert (drawn[:, group == label] == drawn[:, group == label][:, :1]).all()
        per_group = np.stack([drawn[:, group == label][:, 0] for label in np.unique(group)], axis=1)
        assert (per_group.sum(1) == len(np.unique(group))).all()
        with_positive = np.array([target[group == label].any() for label in np.unique(group)])
        same = (per_group[:, with_positive].sum(1) == with_positive.sum()).all()
        assert same == (stratified or with_positive.all())


@pytest.mark.parametrize("matrix", [False, True])
def test_resampled_decisions_of_several_classes_vary_as_resampled_rows_do(matrix):
    rng = np.random.default_rng(0)
    target, predicted = rng.integers(0, 3, 200) // 2, rng.integers(0, 3, 200)
    counts = resampled_counts(predicted, target, 3, matrix=matrix)
    rows = rng.integers(0, 200, (1000, 200))
    for k in range(3):
        naive = (
            ((predicted == k) & (target == k))[rows].sum(1),
            (predicted == k)[rows].sum(1),
            (target == k)[rows].sum(1),
        )
        for ours, theirs in zip((counts.tp, counts.predicted, counts.positives), naive, strict=True):
            assert float(ours[:, k].mean()) == pytest.approx(theirs.mean(), abs=1)
            assert float(ours[:, k].std()) == pytest.approx(theirs.std(), rel=0.15)
    assert bool((counts.n == 200).all())
