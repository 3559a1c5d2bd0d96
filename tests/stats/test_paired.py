"""Comparisons over datasets and over splits: scipy, baycomp, and a Dirichlet Monte Carlo of our own."""

import itertools
import math

import baycomp
import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from metricfit.stats import compare, compare_splits


def values(seed, datasets=15, gain=0.02):
    rng = np.random.default_rng(seed)
    b = rng.uniform(0.6, 0.9, datasets)
    return b + gain + rng.normal(0, 0.02, datasets), b


def test_over_datasets_with_scipy():
    a, b = values(0)
    found = compare(a, b, samples=500)
    assert found.p_value == scipy_stats.wilcoxon(a, b).pvalue
    plain = scipy_stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.interval == pytest.approx((plain.low, plain.high))
    assert found.difference == pytest.approx(np.mean(a - b))
    assert (found.wins, found.losses, found.ties) == ((a > b).sum(), (a < b).sum(), 0)
    assert found.datasets == 15
    assert found.smallest_p_value == 2**-14


def test_over_datasets_with_baycomp():
    for seed, rope in itertools.product(range(3), (0.01, 0.0)):
        a, b = values(seed, gain=0.005)
        found = compare(a, b, rope=rope, samples=3000, seed=7)
        theirs = baycomp.SignedRankTest(a, b, rope, nsamples=3000, random_state=7).probs()
        assert tuple(found.probabilities) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(("gain", "rope"), [(0.01, 0.01), (0.0, 0.02), (-0.02, 0.01)])
def test_the_signed_rank_posterior_by_our_own_monte_carlo(gain, rope):
    """Dirichlet weights on the differences and half a dataset at 0; the mass of pairs whose mean is beyond the rope."""
    a, b = values(4, datasets=12, gain=gain)
    rng = np.random.default_rng(0)
    points = np.append(a - b, 0.0)
    gamma = rng.gamma(np.append(np.ones(12), 0.5), size=(20_000, 13))
    weight = gamma / gamma.sum(1, keepdims=True)
    means = (points[:, None] + points) / 2
    left, right = (
        np.einsum("ri,ij,rj->r", weight, mask.astype(float), weight) for mask in (means > rope, means < -rope)
    )
    winner = np.argmax(np.stack([left, 1 - left - right, right]), axis=0)
    expected = np.bincount(winner, minlength=3) / len(winner)
    found = compare(a, b, rope=rope, samples=20_000).probabilities
    assert tuple(found) == pytest.approx(tuple(expected), abs=0.02)
    assert max(found) < 1 or gain < 0


def test_wilcoxon_with_ties_by_all_signs():
    """Eight differences, equal ones among them: the exact p-value is a count over all 256 signs.

    0.3 - 0.2 and 0.9 - 0.8 differ in the last bit, and must still share a rank.
    """
    a = np.array([0.3, 0.9, 0.5, 0.7, 0.6, 0.8, 0.4, 0.75])
    b = np.array([0.2, 0.8, 0.6, 0.5, 0.4, 0.5, 0.7, 0.70])
    ranks = scipy_stats.rankdata([2, 2, 2, 4, 4, 6, 6, 1])
    signs = np.array(list(itertools.product([-1, 1], repeat=8)))
    observed = abs(ranks @ np.array([1, 1, -1, 1, 1, 1, -1, 1]))
    assert compare(a, b, samples=200).p_value == pytest.approx(np.mean(np.abs(signs @ ranks) >= observed - 1e-9))


def test_equal_pairs_are_left_out():
    a, b = values(1)
    more_a, more_b = np.append(a, [0.5, 0.1 + 0.2]), np.append(b, [0.5, 0.3])
    found, fewer = compare(more_a, more_b, samples=200), compare(a, b, samples=200)
    assert found.ties == 2
    assert found.p_value == fewer.p_value
    assert found.smallest_p_value == fewer.smallest_p_value


def test_nothing_differs():
    for rope in (0.01, 0.0):
        found = compare([0.5, 0.6, 0.1 + 0.2], [0.5, 0.6, 0.3], rope=rope, samples=500)
        assert (found.p_value, found.difference, found.interval, found.ties) == (1, 0, (0, 0), 3)
        assert found.probabilities == (0, 1, 0)
        assert found.smallest_p_value == 1
        assert found.verdict == "practically equal"
    assert compare([0.0, 0.0], [0.0, 0.0], samples=100).p_value == 1


def test_minimize_reverses_the_direction():
    a, b = values(2, gain=0.05)
    up, down = compare(a, b, samples=2000), compare(a, b, minimize=True, samples=2000)
    assert (up.wins, up.losses) == (down.losses, down.wins)
    assert (up.verdict, down.verdict) == ("a is better", "b is better")
    assert up.interval == down.interval
    assert tuple(up.probabilities) == pytest.approx(tuple(reversed(down.probabilities)), abs=0.02)


def test_repeats_are_averaged_and_any_array_will_do():
    a, b = values(3)
    noise = np.array([-0.01, 0.0, 0.01])
    expected = compare(a, b, samples=200)
    found = compare(torch.tensor(a[:, None] + noise), (b[:, None] + noise).tolist(), samples=200)
    assert found.difference == pytest.approx(expected.difference)
    assert found.p_value == expected.p_value
    assert compare(torch.tensor(a), list(b), samples=200) == expected
    assert compare(torch.tensor([0.5, 1.0]).bfloat16(), [0.25, 0.25], samples=100).difference == 0.5


def test_few_datasets_cannot_be_significant():
    assert compare([1, 2, 3, 4, 5], [0, 0, 0, 0, 0], samples=100).p_value == 2**-4


@pytest.mark.parametrize(("runs", "rope"), [(1, 0.01), (4, 0.01), (4, 0.0)])
def test_over_splits_with_baycomp(runs, rope):
    """Five-fold cross-validation, once and four times: the correction with a test fraction of 1/5."""
    a, b = values(5, datasets=5 * runs, gain=0.01)
    found = compare_splits(a, b, test_fraction=0.2, rope=rope)
    theirs = baycomp.CorrelatedTTest(a, b, rope, runs=runs).probs()
    theirs = theirs if rope else (theirs[0], 0.0, theirs[1])
    assert tuple(found.probabilities) == pytest.approx(theirs, abs=1e-12)
    error = math.sqrt(np.var(a - b, ddof=1) * (1 / len(a) + 0.2 / 0.8))
    assert found.statistic == pytest.approx(np.mean(a - b) / error)
    law = scipy_stats.t(len(a) - 1, loc=np.mean(a - b), scale=error)
    assert found.interval == pytest.approx(law.interval(0.95))
    assert found.p_value == pytest.approx(2 * min(law.cdf(0), law.sf(0)))


def test_splits_that_share_samples_need_the_correction():
    """Two equal learners, 10 splits of 100 samples, 400 datasets: the plain t-test calls many different."""
    plain = corrected = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=100)
        a, b = [], []
        for _ in range(10):
            train = rng.permutation(100) < 80
            split = x[train].mean() / 5  # what each learns: the better of two constant answers depends on the sample
            a.append(np.mean(x[~train] > split))
            b.append(np.mean(x[~train] <= split))
        corrected += compare_splits(a, b, test_fraction=0.2).p_value < 0.05
        plain += scipy_stats.ttest_rel(a, b).pvalue < 0.05
    assert plain / 400 > 0.15
    assert corrected < plain / 2


def test_splits_without_variance():
    same = compare_splits([0.1, 0.2], [0.1, 0.2], test_fraction=0.5)
    assert (same.p_value, same.interval, same.statistic, same.verdict) == (1, (0, 0), 0, "practically equal")
    assert compare_splits([0.1, 0.2], [0.1, 0.2], test_fraction=0.5, rope=0).probabilities == (0, 1, 0)
    with pytest.warns(UserWarning, match=r"differ by 0\.1 on every split .* the p-value are not reliable") as seen:
        always = compare_splits([0.3, 0.4], [0.2, 0.3], test_fraction=0.5)
    assert seen[0].filename == __file__
    assert (always.p_value, always.statistic, always.verdict) == (0, math.inf, "a is better")
    with pytest.warns(UserWarning, match="variance of 0"):
        assert compare_splits([0.3, 0.4], [0.2, 0.3], test_fraction=0.5, minimize=True).verdict == "b is better"


def test_the_same_difference_on_all_datasets():
    with pytest.warns(UserWarning, match=r"differ by 0\.1 on every dataset .* the interval is not reliable"):
        found = compare([0.2, 0.3, 0.4], [0.1, 0.2, 0.3], samples=100)
    assert found.interval.low == found.interval.high == found.difference == pytest.approx(0.1)
    assert found.p_value == 0.25


def test_what_is_refused():
    with pytest.raises(ValueError, match="same 2 or more datasets, got 3 and 2"):
        compare([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="2 or more datasets, got 1 and 1"):
        compare([1], [2])
    with pytest.raises(ValueError, match="b holds 1 values that are not finite"):
        compare([1, 2], [1, math.nan])
    with pytest.raises(ValueError, match=r"shape \(datasets,\) or \(datasets, repeats\), got \(1, 1, 2\)"):
        compare([[[1, 2]]], [[[1, 2]]])
    with pytest.raises(ValueError, match="rope is the largest difference that does not matter"):
        compare([1, 2], [1, 2], rope=-0.1)
    with pytest.raises(ValueError, match="samples is the number of draws"):
        compare([1, 2], [1, 2], samples=0)
    with pytest.raises(ValueError, match="test_fraction is the share"):
        compare_splits([1, 2], [1, 2], test_fraction=20)
    with pytest.raises(ValueError, match="same 2 or more splits"):
        compare_splits([1, 2], [1, 2, 3], test_fraction=0.2)
    with pytest.raises(ValueError, match=r"did you mean 0\.9"):
        compare([1, 2], [1, 2], level=90)


def test_what_it_prints():
    assert repr(compare_splits([0.5, 0.25], [0.25, 0.25], test_fraction=0.5)) == (
        "SplitComparison(wins=1, losses=0, ties=1, difference=0.125, interval=(-2.626, 2.876), level=0.95, "
        "p_value=0.6667, probabilities=(0.6554, 0.02205, 0.3225), rope=0.01, splits=2, statistic=0.5774)"
    )
