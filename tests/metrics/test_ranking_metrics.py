"""Measures of scores as objects: values, names, copies, and what they are refused for."""

import copy
import math
import pickle

import pytest
import torch

from metricfit import MetricLoss, curves, get_metric, metrics

SCORES, LABELS, WEIGHT = [0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0], [1.0, 2.0, 1.0, 0.5]
BOTH = [metrics.auroc, metrics.average_precision]


@pytest.mark.parametrize("ranking", BOTH, ids=repr)
def test_values_are_those_of_the_curves(ranking):
    function = getattr(curves, ranking.name)
    assert ranking(SCORES, LABELS) == ranking.measure(SCORES, LABELS) == function(SCORES, LABELS)
    assert ranking(torch.tensor(SCORES), torch.tensor(LABELS), WEIGHT) == pytest.approx(
        function(SCORES, LABELS, WEIGHT)
    )


@pytest.mark.parametrize("ranking", BOTH, ids=repr)
def test_found_by_name_and_as_it_is(ranking):
    assert metrics.get_measure(ranking.name) is metrics.get_measure(ranking) is ranking
    assert ranking.is_ranking
    assert not ranking.minimize
    assert ranking.summary
    assert metrics.get_measure("fbeta(beta=2)") == metrics.fbeta(beta=2)
    assert not metrics.get_measure("f1").is_ranking


@pytest.mark.parametrize("ranking", BOTH, ids=repr)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_the_same_object(ranking, again):
    assert again(ranking) is ranking


@pytest.mark.parametrize("ranking", BOTH, ids=repr)
def test_they_are_no_metrics_of_decisions(ranking):
    with pytest.raises(TypeError, match=f"'{ranking.name}' is not a metric of decisions"):
        get_metric(ranking)
    with pytest.raises(ValueError, match=f"'{ranking.name}' is not a metric of decisions"):
        MetricLoss(ranking.name)


def test_a_users_metric_cannot_take_their_names():
    def auroc(c):
        return c.tp

    with pytest.raises(ValueError, match="'auroc' is the name of a metric of this library"):
        metrics.metric(auroc)


def test_pairs_of_two_classes_are_the_auroc_and_a_micro_average_without_a_class_is_not_known():
    assert metrics.auroc_ovo([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0]) == metrics.auroc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
    with pytest.warns(curves.UndefinedRankingWarning, match="all columns together"):
        assert math.isnan(metrics.auroc([[0.9, 0.1], [0.4, 0.2]], [[0, 0], [0, 0]], average="micro"))
