"""scikit-learn's threshold search on fixed scores; imported only if scikit-learn is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import TunedThresholdClassifierCV


class GivenScores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier whose only feature is the probability it predicts, so that the search alone is timed."""

    def fit(self, X: Any, y: Any) -> GivenScores:
        """Set the classes."""
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return the feature as probabilities of the two classes."""
        return np.concatenate([1 - X, X], axis=1)

    def predict(self, X: Any) -> Any:
        """Return decisions at the threshold 0.5."""
        return self.classes_[(X[:, 0] >= 0.5).astype(int)]


def tuned_threshold(probabilities: Any, target: Any, thresholds: int) -> float:
    """Return the best F1 that TunedThresholdClassifierCV finds among this many thresholds."""
    features = probabilities.reshape(-1, 1)
    model = GivenScores().fit(features, target)
    search = TunedThresholdClassifierCV(model, scoring="f1", thresholds=thresholds, cv="prefit", refit=False)
    return float(search.fit(features, target).best_score_)
