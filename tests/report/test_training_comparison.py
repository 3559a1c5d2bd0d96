"""Whether a model does on new rows what training estimated: the verdict's error rate, and the intervals of rankings."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import average_precision_score, roc_auc_score

from metricfit.report import evaluation_result as ranking_module
from metricfit.report.evaluation import compare_with_training
from metricfit.report.evaluation_result import average_precision_interval, ranking_values
from metricfit.stats import delong_interval

MODEL = SimpleNamespace(label="f1", minimize=False, value=0.66, value_interval=(0.62, 0.7), threshold=0.3)


def verdict(value, interval, model=MODEL, **options):
    return compare_with_training(model, value, interval, positives=500, **options)


def test_the_sentence_is_plain():
    assert verdict(0.55, (0.5, 0.6)).sentence == (
        "f1 is 0.550 here (95 % interval 0.500 to 0.600), 0.660 at training time (interval 0.620 to 0.700): worse than "
        "expected. Look for what differs in these rows before you rely on the model."
    )
    assert verdict(0.64, (0.6, 0.68)).sentence.endswith("at training time (interval 0.620 to 0.700): as expected.")
    assert verdict(0.8, (0.76, 0.84)).verdict == "better"
    assert verdict(0.55, (0.5, 0.6)).difference == pytest.approx(-0.11)


def test_where_less_is_better_more_is_worse():
    cost = SimpleNamespace(**vars(MODEL) | {"label": "cost(fp=1, fn=5)", "minimize": True})
    assert verdict(0.8, (0.76, 0.84), cost).verdict == "worse"
    assert verdict(0.5, (0.46, 0.54), cost).verdict == "better"


def test_what_cannot_be_compared_says_so():
    assert verdict(0.5, None).verdict == "not comparable"
    assert "all of one class" in verdict(0.5, None).sentence
    assert "at the threshold 0.5, and the model's own is 0.3." in verdict(0.5, (0.4, 0.6), threshold=0.5).sentence
    assert verdict(0.64, (0.6, 0.68), threshold=0.3).verdict == "as expected"


def test_equal_models_are_seldom_called_different():
    """Two binomial shares of one probability: about 5 % of the differences are called one."""
    rng, shares = np.random.default_rng(0), []
    for _ in range(400):
        here, before = rng.binomial([200, 400], 0.7) / [200, 400]
        ends = [binom.ppf([0.025, 0.975], n, share) / n for n, share in ((200, here), (400, before))]
        model = SimpleNamespace(**vars(MODEL) | {"value": before, "value_interval": tuple(ends[1])})
        shares.append(verdict(here, tuple(ends[0]), model).verdict != "as expected")
    assert 0.02 < np.mean(shares) < 0.09


def test_rankings_are_those_of_scikit_learn_and_delong():
    rng = np.random.default_rng(1)
    labels = (rng.random(400) < 0.2).astype(int)
    scores = labels + rng.normal(size=400)
    found = ranking_values(scores, labels)
    assert found["auroc"]["value"] == pytest.approx(roc_auc_score(labels, scores))
    assert found["average_precision"]["value"] == pytest.approx(average_precision_score(labels, scores))
    assert found["auroc"]["interval"] == pytest.approx(tuple(delong_interval(scores, labels).interval))


def test_the_interval_of_the_average_precision_covers_it():
    rng, covered = np.random.default_rng(2), 0
    everyone = (rng.random(200_000) < 0.1).astype(int)
    scores = everyone + 0.8 * rng.normal(size=200_000)
    truth = average_precision_score(everyone, scores)
    for _ in range(200):
        rows = rng.integers(0, 200_000, 800)
        value = average_precision_score(everyone[rows], scores[rows])
        low, high = average_precision_interval(value, int(everyone[rows].sum()))
        covered += low <= truth <= high
    assert covered / 200 > 0.9


def test_perfect_rankings_are_not_certain():
    found = ranking_values(np.arange(20.0), np.repeat([0, 1], 10))
    for measured in found.values():
        assert measured["value"] == 1
        assert measured["interval"][0] == pytest.approx(10 / (10 + 1.96**2), abs=1e-4)
    worst = ranking_values(np.arange(20.0), np.repeat([1, 0], 10))["auroc"]
    assert worst["interval"] == pytest.approx((0, 1 - 10 / (10 + 1.96**2)), abs=1e-4)
    assert ranking_values(np.arange(5.0), np.ones(5, dtype=int))["auroc"] == {"value": None, "interval": None}
    assert ranking_values(np.arange(5.0), np.array([0, 0, 1, 0, 0]))["auroc"]["interval"] is None


def test_very_many_rows_are_sampled(monkeypatch):
    rng = np.random.default_rng(3)
    labels = (np.arange(8000) % 10 == 0).astype(int)
    scores = labels + rng.normal(size=8000)
    whole = ranking_values(scores, labels)
    monkeypatch.setattr(ranking_module, "MOST_ROWS", 4000)
    part = ranking_values(scores, labels)
    for name in whole:
        assert part[name]["value"] != whole[name]["value"]
        assert part[name]["interval"][0] < whole[name]["value"] < part[name]["interval"][1]
