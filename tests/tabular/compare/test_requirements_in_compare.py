"""Methods of a comparison under requirements on classes, and with a confidence."""

import numpy as np
import pytest
from sklearn.metrics import recall_score

from metricfit import metrics, parse_requirement
from metricfit.decide.class_requirements import class_requirements
from metricfit.tabular.compare.comparison import Comparison
from metricfit.tabular.compare.judging import Judge
from metricfit.tabular.compare.methods import METHODS
from metricfit.tabular.compare.trainings import TrainedLogits

LOGISTIC = next(method for method in METHODS if method.name == "logistic regression")


def logits(y, classes, rng):
    scores = rng.normal(size=(len(y), classes)) + 1.5 * np.eye(classes)[y]
    return scores if classes > 2 else scores[:, 1:] - scores[:, :1]


@pytest.mark.parametrize("confidence", [None, 0.8])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_method_meets_the_requirements_of_a_class_by_its_name(classes, confidence):
    rng = np.random.default_rng(0)
    train, test = (rng.choice(classes, 240) for _ in range(2))
    names = ["bronze", "gold", "none"][:classes]
    requirements = class_requirements([parse_requirement("recall[gold] >= 0.85")], classes, names=names)
    judge = Judge(train, test, None, classes, metrics.f1, "macro", requirements, confidence)
    folds = np.arange(len(train)) % 5
    trained = TrainedLogits(1.0, logits(train, classes, rng), logits(test, classes, rng), folds)
    result = judge.method(LOGISTIC, [trained])[LOGISTIC.name]
    assert result.not_reachable is None
    recall = recall_score(test, result.decided, labels=[1], average=None)[0]
    assert result.held == (recall >= 0.85)
    assert recall > 0.75
    if confidence is not None:
        plain = Judge(train, test, None, classes, metrics.f1, "macro", requirements).method(LOGISTIC, [trained])
        assert plain[LOGISTIC.name].value != result.value


def test_the_recommended_method_keeps_the_requirements_and_the_confidence():
    nothing = np.zeros(0, dtype=np.int64)
    found = Comparison("f1", [], "", nothing, LOGISTIC.name, subject_to=("recall >= 0.9",), confidence=0.9)
    model = found.classifier()
    assert (model.subject_to, model.confidence) == (["recall >= 0.9"], 0.9)
