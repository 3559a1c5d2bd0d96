"""The bootstrap's intervals: against scipy and exact laws, their coverage by simulation, and what is refused."""

import math
import re

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from metricfit import Counts, curves, metric, metrics
from metricfit.stats import bootstrap, bootstrap_difference
from metricfit.stats.results import compute_interval, compute_p_value

SHIFT = 1.5


def normal_scores(rng, positives=40, negatives=160, shift=SHIFT):
    target = np.repeat([1, 0], [positives, negatives])
    return rng.normal(size=len(target)) + shift * target, target


def test_recall_at_a_threshold_has_the_binomials_quantiles():
    """Stratified, tp is binomial exactly; 20,000 draws find its quantiles."""
    scores, target = normal_scores(np.random.default_rng(0))
    tp, positives = int((scores[:40] >= 1).sum()), 40
    found = bootstrap(scores, target, "recall", threshold=1.0, resamples=20_000, method="percentile")
    law = scipy_stats.binom(positives, tp / positives)
    assert found.value == tp / positives
    assert found.interval == (law.ppf(0.025) / positives, law.ppf(0.975) / positives)
    assert found.values.std() == pytest.approx(math.sqrt(found.value * (1 - found.value) / positives), rel=0.02)
    assert found.threshold == 1
    assert found.threshold_interval is None
    assert found.optimism is None


@pytest.mark.parametrize("name", ["f1", "auroc"])
def test_intervals_are_those_of_scipy(name):
    scores, target = normal_scores(np.random.default_rng(1))

    def statistic(s, y):
        if name == "auroc":
            return curves.auroc(s, y)
        called = s >= 1
        return 2 * (called * y).sum() / (called.sum() + y.sum())

    theirs = scipy_stats.bootstrap(
        (scores, target),
        statistic,
        paired=True,
        vectorized=False,
        n_resamples=3000,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    threshold = {} if name == "auroc" else {"threshold": 1.0}
    ours = bootstrap(scores, target, name, **threshold, stratified=False, resamples=3000, method="percentile")
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert ours.interval == pytest.approx(tuple(theirs.confidence_interval), abs=0.05 * width)
    assert ours.values.std() == pytest.approx(theirs.standard_error, rel=0.06)


def test_bias_correction_by_hand():
    """1,000 values 1 to 1,000; 300 lie below the centre, so z0 is the normal quantile of 0.3."""
    values = np.random.default_rng(0).permutation(np.arange(1, 1001)).astype(float)
    z0 = norm.ppf(0.3)
    low, high = norm.cdf(2 * z0 - norm.ppf(0.975)), norm.cdf(2 * z0 + norm.ppf(0.975))
    found = compute_interval(values, 300.5, 0.95)
    assert found == (math.floor(999 * low) + 1, math.ceil(999 * high) + 1)
    assert compute_interval(values, 500.5, 0.95) == compute_interval(values, None, 0.95) == (25, 976)


@pytest.mark.parametrize("centre", [None, 0.7, 0.9])
def test_the_p_value_is_where_the_interval_ends_at_0(centre):
    values = np.random.default_rng(0).normal(0.8, 0.5, size=20_000)
    p = compute_p_value(values, centre)
    assert 0.01 < p < 0.6
    inside, outside = (compute_interval(values, centre, 1 - p * factor) for factor in (0.95, 1.05))
    assert inside.low < 0 < outside.low
    assert compute_p_value(-values, None if centre is None else -centre) == pytest.approx(p)


def best_f1(positives, negatives):
    thresholds = np.linspace(-3, 5, 4001)
    tp, fp = positives * norm.sf(thresholds - SHIFT), negatives * norm.sf(thresholds)
    values = 2 * tp / (positives + tp + fp)
    return values.max(), thresholds[values.argmax()]


def within(share, expected, runs):
    return abs(share - expected) < 3.3 * math.sqrt(expected * (1 - expected) / runs)


def test_coverage():
    """150 test sets of 200. At a fixed threshold and for the threshold itself 95 % intervals hold the truth about as
    often as they say. For the best value the bias-corrected one does less well, the percentile one much less."""
    truth, threshold = best_f1(40, 160)
    runs, held = 150, {"fixed": 0, "threshold": 0, "corrected": 0, "percentile": 0}
    optimism = []
    for seed in range(runs):
        scores, target = normal_scores(np.random.default_rng(seed))
        fixed = bootstrap(scores, target, "f1", threshold=threshold, resamples=500, seed=seed)
        best = bootstrap(scores, target, "f1", resamples=500, seed=seed)
        held["fixed"] += fixed.interval.low <= truth <= fixed.interval.high
        held["threshold"] += best.threshold_interval.low <= threshold <= best.threshold_interval.high
        held["corrected"] += best.interval.low <= truth <= best.interval.high
        low, high = compute_interval(best.values, None, 0.95)
        held["percentile"] += low <= truth <= high
        optimism.append(best.optimism)
    assert within(held["fixed"] / runs, 0.95, runs)
    assert within(held["threshold"] / runs, 0.95, runs)
    assert within(held["corrected"] / runs, 0.9, runs)
    assert held["percentile"] < held["corrected"] - 10
    assert 0.02 < np.mean(optimism) < 0.06


def test_equal_models_and_a_plain_difference():
    rng = np.random.default_rng(0)
    scores, target = normal_scores(rng)
    for given in ({"threshold": 1.0}, {}):
        same = bootstrap_difference(scores, scores, target, "f1", **given, resamples=200)
        assert (same.difference, same.interval, same.p_value) == (0, (0, 0), 1)
    worse = scores + 3 * rng.normal(size=200)
    found = bootstrap_difference(scores, worse, target, "auroc", resamples=400)
    assert found.p_value == 2 / 401
    assert found.difference == pytest.approx(curves.auroc(scores, target) - curves.auroc(worse, target))
    other_way = bootstrap_difference(worse, scores, target, "auroc", resamples=400)
    assert other_way.interval.high < 0 < found.interval.low


@pytest.mark.parametrize("given", [{"threshold": 1.0}, {}], ids=["fixed", "best"])
def test_the_level_of_the_test_holds_where_nothing_differs(given):
    runs, called = 150, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        shared, target = normal_scores(rng)
        a, b = shared + 0.5 * rng.normal(size=200), shared + 0.5 * rng.normal(size=200)
        called += bootstrap_difference(a, b, target, "f1", **given, resamples=300, seed=seed).p_value < 0.05
    assert within(called / runs, 0.05, runs)


def test_models_are_compared_on_the_same_resamples():
    """The paired difference of two like models varies much less than the two apart."""
    rng = np.random.default_rng(2)
    a, target = normal_scores(rng)
    b = a + 0.05 * rng.normal(size=200)
    together = bootstrap_difference(a, b, target, "f1", threshold=(1.0, 1.0), resamples=500).values.std()
    apart = bootstrap(a, target, "f1", threshold=1.0, resamples=500).values.std()
    assert together < 0.5 * apart
    explicit = []
    for _ in range(500):
        which = np.concatenate([rng.integers(0, 40, 40), rng.integers(40, 200, 160)])
        values = [metrics.f1(Counts.from_labels(s[which] >= 1.0, target[which])) for s in (a, b)]
        explicit.append((values[0] - values[1]).item())
    assert together == pytest.approx(np.std(explicit), rel=0.2)


def test_repeated_samples_need_groups():
    """Each sample four times: by groups the resamples are those of the samples once; alone the interval is half."""
    scores, target = normal_scores(np.random.default_rng(3))
    once = bootstrap(scores, target, "f1", resamples=80)
    four = [np.repeat(given, 4) for given in (scores, target, np.arange(200))]
    grouped = bootstrap(four[0], four[1], "f1", groups=four[2], resamples=80)
    assert grouped == once
    alone = bootstrap(four[0], four[1], "auroc", resamples=400).values.std()
    assert alone == pytest.approx(bootstrap(scores, target, "auroc", resamples=400).values.std() / 2, rel=0.15)


def test_a_weight_of_two_is_not_two_samples():
    """Weights change the metric, not how many samples there are."""
    scores, target = normal_scores(np.random.default_rng(4))
    doubled = bootstrap(scores, target, "f1", threshold=1.0, weight=np.full(200, 2.0), resamples=2000)
    plain = bootstrap(scores, target, "f1", threshold=1.0, resamples=2000)
    assert doubled.value == plain.value
    assert doubled.values.std() == pytest.approx(plain.values.std(), rel=0.1)


def test_samples_of_weight_0_are_not_there():
    scores, target = normal_scores(np.random.default_rng(5))
    weight = (np.arange(200) % 3 > 0).astype(float)
    groups = np.arange(200) // 2
    kept = weight > 0
    found = bootstrap(scores, target, "f1", weight=weight, groups=groups, resamples=100)
    assert found == bootstrap(scores[kept], target[kept], "f1", weight=weight[kept], groups=groups[kept], resamples=100)


def test_infeasible_resamples_are_counted():
    scores, target = normal_scores(np.random.default_rng(6))
    reach = curves.best_threshold(scores, target, "precision", "recall >= 0.8").value
    found = bootstrap(scores, target, "f1", subject_to=["recall >= 0.8", metrics.precision >= reach], resamples=300)
    assert found.infeasible == np.isnan(found.values).sum() == np.isnan(found.thresholds).sum()
    assert 50 < found.infeasible < 250
    assert math.isfinite(sum(found.interval) + sum(found.threshold_interval) + found.optimism)
    missing = bootstrap([4, 3, 2, 1], [1, 0, 0, 0], "auroc", stratified=False, resamples=300)
    assert missing.infeasible / 300 == pytest.approx(0.75**4 + 0.25**4, abs=0.1)
    with pytest.raises(curves.InfeasibleError, match="no threshold gives"):
        bootstrap(scores, target, "f1", subject_to=["recall >= 0.99", "precision >= 0.99"])


def test_resamples_without_a_class_are_infeasible_for_functions_too():
    """Six groups, the positives' negatives in two of them: 4/6 to the power of six have no negative."""
    target, groups, scores = [1] * 6 + [0] * 4, [0, 1, 2, 3, 4, 5, 0, 0, 1, 1], list(range(10))
    given = {"groups": groups, "resamples": 1000}
    found = bootstrap(scores, target, lambda s, t: curves.fpr_at_tpr(s, t, tpr=0.9), **given)
    assert found.infeasible / 1000 == pytest.approx((4 / 6) ** 6, abs=0.04)
    assert found.infeasible == bootstrap(scores, target, "auroc", **given).infeasible
    assert bootstrap(scores, target, lambda s, t: t.mean(), **given).infeasible == 0  # has a value without negatives

    def breaks_on_resamples(s, t):
        if len(np.unique(s)) < len(s) and len(np.unique(t)) == 2:
            raise ValueError("ties")
        return curves.auroc(s, t)

    with pytest.raises(ValueError, match="ties"):
        bootstrap(scores, target, breaks_on_resamples, **given)
    one_class = bootstrap(scores[:6], target[:6], lambda s, t: s.mean(), resamples=100)
    assert one_class.infeasible == 0
    with pytest.raises(ValueError, match="needs positives and negatives"):
        bootstrap(scores[:6], target[:6], lambda s, t: curves.auroc(s, t), resamples=100)


def test_optimism_is_subtracted_in_both_directions():
    scores, target = normal_scores(np.random.default_rng(7))
    accuracy, error = metrics.accuracy, metric(minimize=True)(lambda c: (c.fp + c.fn) / c.n)
    up, down = (bootstrap(scores, target, which, resamples=100) for which in (accuracy, error))
    assert up.optimism > 0
    assert 1 - (down.value - down.optimism) == pytest.approx(up.value - up.optimism)


def test_tensors_of_any_kind():
    scores, target = normal_scores(np.random.default_rng(10))
    weight = np.arange(200) % 3 / 2
    groups = np.arange(200) // 2
    expected = bootstrap(scores, target, "f1", weight=weight, groups=groups, resamples=50)
    half = torch.tensor(weight, dtype=torch.bfloat16)
    for given in (half, torch.tensor(weight, requires_grad=True), half.unsqueeze(1)):
        for labels in (torch.tensor(groups), torch.tensor(groups, dtype=torch.bfloat16), groups.astype(str).tolist()):
            found = bootstrap(scores, target, "f1", weight=given, groups=labels, resamples=50)
            assert found.value == expected.value
            assert found.infeasible == 0
    for number in (torch.tensor(1.0), np.array(1.0), torch.tensor(1.0, requires_grad=True)):
        found = bootstrap(scores, target, "f1", threshold=number, resamples=50)
        assert found == bootstrap(scores, target, "f1", threshold=1.0, resamples=50)
    both = bootstrap_difference(scores, scores, target, "f1", threshold=(1.0, 1.2), resamples=50)
    for pair in ([1.0, 1.2], np.array([1.0, 1.2]), torch.tensor([1.0, 1.2], dtype=torch.float64)):
        assert bootstrap_difference(scores, scores, target, "f1", threshold=pair, resamples=50) == both


def test_what_a_function_takes():
    scores, target = normal_scores(np.random.default_rng(11))
    expected = bootstrap(scores, target, "auroc", resamples=50).values
    for function in (lambda *given: curves.auroc(*given), lambda s, y, **rest: curves.auroc(s, y)):
        assert bootstrap(scores, target, function, resamples=50).values == pytest.approx(expected)
    with pytest.raises(TypeError, match=r"scores, then targets; write lambda s, y: roc_auc_score\(y, s\)"):
        bootstrap(scores, target, roc_auc_score, resamples=50)
    turned = bootstrap(scores, target, lambda s, y: roc_auc_score(y, s), resamples=50)
    assert turned.values == pytest.approx(expected)


def test_a_user_defined_metric_and_a_function_of_scores():
    scores, target = normal_scores(np.random.default_rng(7))

    @metric(minimize=True)
    def alarms_and_misses_for_bootstrap(c):
        return (c.fp + 4 * c.fn) / c.n

    own = bootstrap(scores, target, alarms_and_misses_for_bootstrap, resamples=100)
    named = bootstrap(scores, target, "cost(fp=1, fn=4)", resamples=100)
    assert own.interval == pytest.approx(named.interval)
    assert own.optimism < 0
    plain = bootstrap(scores, target, lambda c: c.tp / c.predicted, threshold=1.0, resamples=100)
    assert plain.interval == bootstrap(scores, target, "precision", threshold=1.0, resamples=100).interval
    weight = np.random.default_rng(0).random(200)
    for given in ({}, {"weight": weight}):
        function = bootstrap(scores, target, lambda s, y, w=None: curves.auroc(s, y, w), resamples=60, **given)
        assert function.values == pytest.approx(bootstrap(scores, target, "auroc", resamples=60, **given).values)
    assert bootstrap(scores, target, curves.average_precision, resamples=60).metric == "average_precision"


def test_an_infinite_threshold_has_an_interval():
    found = bootstrap([0.4, 0.3, 0.2, 0.1], [0, 0, 0, 1], "accuracy", resamples=100)
    assert found.threshold == math.inf
    assert found.threshold_interval == (math.inf, math.inf)
    assert bootstrap([0.4, 0.3, 0.2], [0, 1, 1], "recall", threshold=math.inf, resamples=100).value == 0


@pytest.mark.parametrize("make", [list, np.array, lambda values: torch.tensor(values, dtype=torch.float64)])
def test_lists_arrays_and_tensors_and_a_seed(make):
    scores, target = normal_scores(np.random.default_rng(8))
    expected = bootstrap(scores, target, "f1", resamples=60)
    found = bootstrap(make(scores.tolist()), make(target.tolist()), "f1", resamples=60)
    assert found == expected
    assert (found.values == expected.values).all()
    assert (bootstrap(scores, target, "f1", resamples=60, seed=1).values != expected.values).any()


def test_more_than_one_block():
    scores, target = normal_scores(np.random.default_rng(9), 1000, 4000)
    assert len(np.unique(bootstrap(scores, target, "f1", resamples=60).values)) > 50


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"threshold": "optimal"}, ValueError, "threshold is 'best' or a number, got 'optimal'"),
        ({"threshold": math.nan}, ValueError, "threshold is 'best' or a number, got nan"),
        ({"threshold": True}, ValueError, "threshold is 'best' or a number, got True"),
        ({"metric": "auroc", "threshold": 0.5}, ValueError, "auroc is computed from all scores"),
        ({"metric": "auroc", "subject_to": "recall >= 0.5"}, ValueError, "needs a metric and threshold='best'"),
        ({"threshold": 0.5, "subject_to": "recall >= 0.5"}, ValueError, "needs a metric and threshold='best'"),
        ({"level": 0.99}, ValueError, "level=0.99 needs at least 200 resamples, got 100"),
        ({"level": 95}, ValueError, "did you mean 0.95"),
        ({"method": "bca"}, ValueError, "method must be one of 'bias_corrected', 'percentile', got 'bca'"),
        ({"groups": [1, 2]}, ValueError, "groups needs one label per row, 4; got 2"),
        ({"groups": [1, 1, 1, 1]}, ValueError, "one group cannot be resampled: every resample would equal the data"),
        ({"groups": [1, 2, 1, 2], "target": [0, 1, 0, 1]}, ValueError, "one group with a positive, and one without,"),
        ({"groups": [1, None, 2, 3]}, ValueError, "groups has rows without a group"),
        ({"groups": [1.0, math.nan, 2.0, math.nan]}, ValueError, "groups has rows without a group"),
        ({"groups": [1.5, 2, 3, 4]}, TypeError, "groups must be integers or texts, got 1.5"),
        ({"scores": [1, 2], "target": [0, 1]}, ValueError, "one sample with a positive, and one without,"),
        ({"threshold": [0.5, 0.5]}, ValueError, "threshold is 'best' or a number, got [0.5, 0.5]"),
        ({"target": [0, 1, 2, 1]}, ValueError, "target must hold 0 and 1 only"),
        ({"scores": [1, 2, 3]}, ValueError, "3 scores, but 4 values of target"),
        ({"metric": metrics.fbeta}, TypeError, "needs its parameters"),
        ({"metric": "f7"}, ValueError, "f7"),
        ({"metric": "auroc", "target": [1, 1, 1, 1]}, ValueError, "needs positives and negatives"),
    ],
)
def test_what_is_refused(changed, error, message):
    given = {"scores": [1, 2, 3, 4], "target": [0, 1, 0, 1], "metric": "f1", "resamples": 100} | changed
    with pytest.raises(error, match=re.escape(message)):
        bootstrap(**given)


def test_what_the_difference_refuses():
    with pytest.raises(ValueError, match="b: 3 scores, but 4 values"):
        bootstrap_difference([1, 2, 3, 4], [1, 2, 3], [0, 1, 0, 1], "f1")
    for wrong in (("best", 0.5), (0.5,)):
        with pytest.raises(ValueError, match="a pair of numbers for a and b"):
            bootstrap_difference([1, 2, 3, 4], [1, 2, 3, 4], [0, 1, 0, 1], "f1", threshold=wrong)


def test_what_it_prints():
    scores, target = normal_scores(np.random.default_rng(0))
    assert re.fullmatch(
        r"BootstrapResult\(metric='f1', value=0\.\d{1,4}, interval=\(0\.\d{1,4}, 0\.\d{1,4}\), level=0\.95, "
        r"threshold=1, threshold_interval=None, optimism=None, resamples=100, infeasible=0\)",
        repr(bootstrap(scores, target, "f1", threshold=1.0, resamples=100)),
    )
