"""The weights of families: greedy steps, for the metric and for the cross-entropy, feasible mixtures first."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss

from metricfit.metrics import get_metric, parse_requirement
from metricfit.metrics.curves import best_or_nearest
from metricfit.metrics.sweep import sweep
from metricfit.tabular.ensemble import Selection, _best_of_all_thresholds


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.2).astype(np.int64)
    noise = rng.normal(size=(3, 400, 1))
    return y, np.stack([2.5 * y[:, None] - 3 + noise[0], y[:, None] - 2 + noise[1], noise[2]])


@pytest.mark.parametrize("metric", ["f1", "mcc", "cost(fp=1, fn=10)", "gmean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_quick_search_finds_what_the_sweep_finds(rows, metric, weighted):
    y, (logits, *_) = rows
    weight = np.linspace(0.5, 2, 400) if weighted else None
    scores = logits[:, 0].round(1)  # with ties
    chosen = best_or_nearest(sweep(scores, y, weight), get_metric(metric), [])
    sign = -1 if get_metric(metric).minimize else 1
    found = _best_of_all_thresholds(np.stack([-scores, scores]), y, weight, get_metric(metric))
    assert float(found[1]) == pytest.approx(sign * chosen.value)


def test_useful_families_get_the_weight(rows):
    y, logits = rows
    weights = Selection(y, None, get_metric("f1"), "macro").weights(logits)
    assert weights.sum() == pytest.approx(1)
    assert weights[0] > weights[1] >= weights[2]


def test_only_one_family_has_all_the_weight(rows):
    y, logits = rows
    assert Selection(y, None, get_metric("f1"), "macro").weights(logits[:1]).tolist() == [1.0]


def test_feasible_mixtures_come_before_better_ones(rows):
    """No threshold of noise reaches this precision and recall together, whatever its F1."""
    y, (good, _, noise) = rows
    requirements = [parse_requirement("precision >= 0.6"), parse_requirement("recall >= 0.3")]
    selection = Selection(y, None, get_metric("recall"), "macro", requirements)
    assert selection.score(good) > selection.score(noise)
    assert np.argmax(selection.weights_for_metric(np.stack([noise, good]))) == 1


def test_of_infeasible_mixtures_the_one_that_violates_less_comes_first(rows):
    """The other one has the better recall, because its nearest threshold calls 60 % of the rows positive."""
    y, (good, weak, _) = rows
    good = good.clip(max=good[y == 0].max())  # a negative is among the highest scores
    coarse = weak.clip(max=np.quantile(weak, 0.4))
    selection = Selection(y, None, get_metric("recall"), "macro", [parse_requirement("precision >= 0.999")])
    precision = [
        best_or_nearest(sweep(logits[:, 0], y, None), get_metric("precision"), []).value for logits in (good, coarse)
    ]
    scores = [selection.score(logits) for logits in (good, coarse)]
    assert [score[0] for score in scores] == pytest.approx([value - 0.999 for value in precision])
    assert scores[0][0] > scores[1][0]
    assert scores[0][1] < scores[1][1]
    assert np.argmax(selection.weights_for_metric(np.stack([coarse, good]))) == 1


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_log_loss_is_that_of_scikit_learn(classes, weighted):
    rng = np.random.default_rng(1)
    y = rng.integers(classes, size=60)
    logits = rng.normal(size=(60, 1 if classes == 2 else classes))
    weight = np.linspace(0.5, 2, 60) if weighted else None
    both = np.concatenate([np.zeros((60, 1)), logits], axis=1) if classes == 2 else logits
    wanted = log_loss(y, softmax(both, axis=1), sample_weight=weight)
    selection = Selection(y, weight, get_metric("f1"), "macro")
    assert selection.log_loss(logits) == pytest.approx(wanted)
    assert selection._log_losses(np.stack([-logits, logits]))[1] == pytest.approx(wanted)
