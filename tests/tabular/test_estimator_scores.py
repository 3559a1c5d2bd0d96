"""Scores of classifiers that are not what they should be."""

import lightgbm
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from metricfit import TunedDecisionClassifier, boosting
from metricfit.errors import InvalidValueError
from metricfit.tabular.estimator_scores import class_scores, label_scores


class Fixed(ClassifierMixin, BaseEstimator):
    """Its predict_proba gives fixed numbers."""

    def __init__(self, values, classes=2):
        self.values, self.classes_ = np.asarray(values), np.arange(classes)

    def predict_proba(self, X):
        return self.values


@pytest.mark.filterwarnings("ignore:Cannot compute class probabilities:UserWarning")
@pytest.mark.parametrize("classes", [2, 3])
def test_logits_in_place_of_probabilities_are_refused(classes):
    X = np.random.default_rng(0).normal(size=(90, 2))
    trees = lightgbm.LGBMClassifier(objective=boosting.objective("f1"), n_estimators=2, verbose=-1)
    with pytest.raises(InvalidValueError, match="sigmoid"):
        TunedDecisionClassifier(trees).fit(X, np.arange(90) % classes)


@pytest.mark.parametrize("values", [[[-0.5, 0.5], [0.5, 0.5]], [[0.0, 1.5], [0.5, 0.5]]])
def test_probabilities_are_between_0_and_1(values):
    with pytest.raises(InvalidValueError, match="between 0 and 1"):
        class_scores(Fixed(values), np.zeros((2, 1)), np.arange(2))
    with pytest.raises(InvalidValueError, match="between 0 and 1"):
        label_scores(Fixed(values), np.zeros((2, 1)), 2)


def test_probabilities_beyond_1_by_rounding_are_clipped():
    scores = class_scores(Fixed([[-1e-7, 1 + 1e-7]]), np.zeros((1, 1)), np.arange(2))
    assert scores.values.tolist() == [[0.0, 1.0]]
