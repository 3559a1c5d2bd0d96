"""Requirements on the test rows of all folds together, beside scikit-learn's values and its bootstrap by hand."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

from metricfit import parse_requirement
from metricfit.decide.class_requirements import class_requirements
from metricfit.tabular.compare.judging import judge_pooled


@pytest.fixture(scope="module")
def decisions():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 500)
    return np.where(rng.random(500) < 0.7, labels, rng.integers(0, 3, 500)), labels


def test_two_classes_have_the_values_and_intervals_of_a_bootstrap(decisions):
    decided, labels = (each > 1 for each in decisions)
    requirements = [parse_requirement("recall >= 0.5"), parse_requirement("precision >= 0.95")]
    met, failed = judge_pooled(decided.astype(np.int64), labels.astype(np.int64), 2, requirements)
    assert met.value == pytest.approx(recall_score(labels, decided))
    assert failed.value == pytest.approx(precision_score(labels, decided))
    assert (met.held, met.clearly_fails, failed.held, failed.clearly_fails) == (True, False, False, True)
    rng = np.random.default_rng(1)
    index = rng.integers(0, 500, (2000, 500))
    drawn = (labels[index] & decided[index]).sum(1) / labels[index].sum(1)
    assert met.interval == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)


def test_several_classes_are_judged_by_class_and_as_a_whole(decisions):
    required = class_requirements([parse_requirement("recall[2] >= 0.9"), parse_requirement("kappa >= 0.2")], 3)
    of_class, kappa = judge_pooled(*decisions, 3, required)
    assert of_class.value == pytest.approx(recall_score(decisions[1], decisions[0], average=None)[2])
    assert kappa.value == pytest.approx(cohen_kappa_score(decisions[1], decisions[0]))
    assert (of_class.clearly_fails, kappa.held) == (True, True)
    assert judge_pooled(*decisions, 3, []) == ()
