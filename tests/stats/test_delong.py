"""DeLong's test and interval against R's pROC, and against placements counted pair by pair."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from metricfit.stats import delong_interval, delong_test


def recorded_data():
    """120 samples, 38 of them positive, two models; scores in steps of 1/20 and 1/15, so both have many ties."""
    state, rows = 1, []
    for _ in range(120):
        draws = []
        for _ in range(3):
            state = (state * 1103515245 + 12345) % 2**31
            draws.append(state // 2**16 % 1000)
        y = int(draws[0] < 350)
        a, b = (draws[1] * 3 // 4 + 250 * y) // 50 / 20, (draws[1] // 2 + draws[2] // 2 + 120 * y) // 67 / 15
        rows.append((a, b, y))
    return [list(column) for column in zip(*rows, strict=True)]


# pROC 1.18.0 (Debian's r-cran-proc) on recorded_data() written to data.csv with columns a, b, y:
#   library(pROC); options(digits = 15); d <- read.csv("data.csv")
#   ra <- roc(d$y, d$a, direction = "<"); rb <- roc(d$y, d$b, direction = "<")
#   t <- roc.test(ra, rb, method = "delong", paired = TRUE)
#   print(c(t$estimate, t$statistic, t$p.value, t$conf.int))
#   print(c(ci.auc(ra, method = "delong"), ci.auc(rb, method = "delong"),
#           ci.auc(ra, method = "delong", conf.level = 0.9)))
AUROCS = 0.7581835686777920, 0.6962451861360719
Z, P_VALUE = 1.4419179600649388, 0.1493255189166136
OF_DIFFERENCE = -0.0222529531685089, 0.1461297182519491
OF_A, OF_B = (0.669779159746849, 0.846587977608735), (0.595696060885233, 0.796794311386911)
OF_A_AT_90 = 0.683992249951756, 0.832374887403828


def exactly(*values):
    return pytest.approx(values if len(values) > 1 else values[0], rel=1e-12, abs=1e-13)


def test_the_test_is_that_of_proc():
    a, b, target = recorded_data()
    found = delong_test(a, b, target)
    assert (found.auroc_a, found.auroc_b) == exactly(*AUROCS)
    assert found.difference == exactly(AUROCS[0] - AUROCS[1])
    assert found.statistic == exactly(Z)
    assert found.p_value == exactly(P_VALUE)
    assert found.interval == exactly(*OF_DIFFERENCE)


def test_the_interval_is_that_of_proc():
    a, b, target = recorded_data()
    assert delong_interval(a, target).interval == exactly(*OF_A)
    assert delong_interval(b, target).interval == exactly(*OF_B)
    assert delong_interval(a, target, level=0.9).interval == exactly(*OF_A_AT_90)
    assert delong_interval(a, target).value == exactly(AUROCS[0])


def naive(a, b, target):
    """AUROC, and the variances of the AUROC and of the difference, from every pair."""
    placements = []
    for scores in (a, b):
        x, y = scores[target == 1], scores[target == 0]
        wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
        placements.append((wins.mean(1), wins.mean(0)))
    (a10, a01), (b10, b01) = placements
    s10, s01 = np.cov(a10, b10), np.cov(a01, b01)
    covariance = s10 / len(a10) + s01 / len(a01)
    return a10.mean(), b10.mean(), covariance


samples = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(0, 2), st.booleans()),
    min_size=4,
    max_size=40,
).filter(lambda rows: 2 <= sum(y for *_, y in rows) <= len(rows) - 2)


@given(samples)
def test_mid_ranks_are_the_placements_of_all_pairs(rows):
    a, b, target = (np.array(column) for column in zip(*rows, strict=True))
    auroc_a, auroc_b, covariance = naive(a, b, target)
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    if variance < 1e-12 and auroc_a != auroc_b:
        with pytest.warns(UserWarning, match="variance of 0"):
            assert delong_test(a, b, target).p_value == 0
        return
    found = delong_test(a, b, target)
    assert (found.auroc_a, found.auroc_b) == pytest.approx((auroc_a, auroc_b), abs=1e-12)
    assert found.interval.high - found.difference == pytest.approx(
        norm.ppf(0.975) * math.sqrt(max(variance, 0)), abs=1e-7
    )
    if variance > 1e-9:
        z = (auroc_a - auroc_b) / math.sqrt(variance)
        assert found.statistic == pytest.approx(z, abs=1e-9)
        assert found.p_value == pytest.approx(2 * norm.cdf(-abs(z)), abs=1e-9)
        assert delong_test(b, a, target).statistic == -found.statistic


def test_models_that_rank_alike_have_no_difference():
    a, _, target = recorded_data()
    transformed = [math.exp(3 * score) for score in a]
    for other in (a, transformed):
        found = delong_test(a, other, target)
        assert (found.difference, found.p_value, found.interval, found.statistic) == (0, 1, (0, 0), 0)


def test_the_level_of_the_test_holds_where_nothing_differs():
    """Two equally good models, 300 samples, 400 times: 5 % are called different, within 3.3 standard errors."""
    rng = np.random.default_rng(0)
    target = np.repeat([1, 0], [100, 200])
    called = 0
    for _ in range(400):
        shared = rng.normal(size=300) + target
        a, b = shared + rng.normal(size=300), shared + rng.normal(size=300)
        called += delong_test(a, b, target).p_value < 0.05
    assert abs(called / 400 - 0.05) < 3.3 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("make", [list, np.array, torch.tensor, lambda v: torch.tensor(v).to(torch.float32)])
def test_lists_arrays_and_tensors(make):
    a, b, target = recorded_data()
    assert delong_test(make(a), make(b), make(target)).p_value == pytest.approx(P_VALUE, rel=1e-9)


def test_auroc_of_200_000_samples_equals_scikit_learn():
    rng = np.random.default_rng(1)
    target = (rng.random(200_000) < 0.1).astype(int)
    scores = rng.normal(size=200_000) + target
    assert delong_interval(scores, target).value == pytest.approx(roc_auc_score(target, scores), abs=1e-12)


@pytest.mark.parametrize(
    ("target", "message"),
    [([1, 1, 1, 1], "holds 4 and 0"), ([0, 0, 0, 0], "holds 0 and 4"), ([1, 0, 0, 0], "2 positives and 2 negatives")],
)
def test_too_few_of_a_class(target, message):
    with pytest.raises(ValueError, match=message):
        delong_test([1, 2, 3, 4], [1, 2, 3, 4], target)
    with pytest.raises(ValueError, match=message):
        delong_interval([1, 2, 3, 4], target)


def test_other_mistakes_are_reported():
    with pytest.raises(ValueError, match="b: 3 scores, but 4 values of target"):
        delong_test([1, 2, 3, 4], [1, 2, 3], [1, 1, 0, 0])
    with pytest.raises(ValueError, match=r"a: 1 of 4 scores are NaN"):
        delong_test([1, 2, 3, math.nan], [1, 2, 3, 4], [1, 1, 0, 0])
    with pytest.raises(ValueError, match=r"did you mean 0\.95"):
        delong_interval([1, 2, 3, 4], [1, 1, 0, 0], level=95)


def test_an_auroc_of_one_has_no_width_and_says_so():
    with pytest.warns(UserWarning, match="AUROC is 1 with an estimated variance of 0"):
        found = delong_interval([4, 3, 2, 1], [1, 1, 0, 0])
    assert found.interval == (1, 1)
    with pytest.warns(UserWarning, match="differ by 1 with an estimated variance of 0"):
        assert delong_test([4, 3, 2, 1], [1, 2, 3, 4], [1, 1, 0, 0]).statistic == math.inf


def test_what_it_prints():
    assert repr(delong_interval(*recorded_data()[::2])) == (
        "DeLongInterval(value=0.7582, interval=(0.6698, 0.8466), level=0.95, standard_error=0.04511)"
    )
