"""Methods of a comparison under requirements on classes, and with a confidence."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import recall_score

from metricfit import parse_requirement
from metricfit.decide.class_requirements import class_requirements
from metricfit.tabular.compare.comparison import Comparison
from metricfit.tabular.compare.judging import Judge
from metricfit.tabular.compare.methods import METHODS
from metricfit.tabular.compare.trainings import ComparedRows, TrainedLogits, TrainingTask

LOGISTIC = next(method for method in METHODS if method.name == "logistic regression")


def logits(y, classes, rng):
    scores = rng.normal(size=(len(y), classes)) + 1.5 * np.eye(classes)[y]
    return scores if classes > 2 else scores[:, 1:] - scores[:, :1]


def task(train, test, names, requirements, confidence):
    """Rows of which the first are learned from and the others judged."""
    numbers, places = np.concatenate([train, test]), np.arange(len(train) + len(test))
    X, y, labels = pd.DataFrame({"a": numbers}), pd.Series(np.array(names)[numbers]), np.array(names)
    rows = ComparedRows(X, y, None, None, places, len(places), "y", None, None, numbers, labels)
    splits = [(places[: len(train)], places[len(train) :])]
    return TrainingTask(rows, splits, "f1", "macro", requirements, [], confidence, None, 0, None, 1)


@pytest.mark.parametrize("confidence", [None, 0.8])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_method_meets_the_requirements_of_a_class_by_its_name(classes, confidence):
    rng = np.random.default_rng(0)
    train, test = (rng.choice(classes, 240) for _ in range(2))
    names = ["bronze", "gold", "none"][:classes]
    requirements = class_requirements([parse_requirement("recall[gold] >= 0.85")], classes, names=names)
    judge, plain = (Judge(task(train, test, names, requirements, each), 0) for each in (confidence, None))
    folds = np.arange(len(train)) % 5
    trained = TrainedLogits(1.0, logits(train, classes, rng), logits(test, classes, rng), folds)
    result = judge.method(LOGISTIC, [trained])[LOGISTIC.name]
    assert result.not_reachable is None
    recall = recall_score(test, result.decided, labels=[1], average=None)[0]
    assert result.held == (recall >= 0.85)
    assert recall > 0.75
    if confidence is not None:
        assert plain.method(LOGISTIC, [trained])[LOGISTIC.name].value != result.value


def test_the_recommended_method_keeps_the_requirements_and_the_confidence():
    nothing = np.zeros(0, dtype=np.int64)
    found = Comparison("f1", [], "", nothing, LOGISTIC.name, subject_to=("recall >= 0.9",), confidence=0.9)
    model = found.classifier()
    assert (model.subject_to, model.confidence) == (["recall >= 0.9"], 0.9)
