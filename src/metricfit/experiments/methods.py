"""The methods that ``compare`` sets side by side, each trained on the same rows and tuned for the same metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import metricfit.train as engine  # its fit_folds is loaded when first used
from metricfit.data import folds
from metricfit.estimators import MetricClassifier
from metricfit.estimators.table import TableEncoder
from metricfit.metrics.curves import best_threshold

#: The method others are compared with: what one would do without this library.
REFERENCE = "cross-entropy, tuned threshold"
DEFAULT = "metricfit"
#: Trees stop early by a tenth of their rows; with a rarest class below this, too few of it would be among them.
ENOUGH_TO_STOP_BY = 20


@dataclass(frozen=True)
class Method:
    """How a method is trained: with a network, or with scikit-learn's models and a tuned threshold."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    #: What its decisions at 0.5 are called, where they are a method of their own.
    at_half: str | None = None
    trees: bool | None = None


def methods(constrained: bool) -> list[Method]:
    """Every method of a comparison; under requirements, training under them too."""
    found = [
        Method(DEFAULT, {"recipe": "mix"}),
        Method(REFERENCE, {"recipe": "bce"}, at_half="cross-entropy at 0.5"),
        Method("weighted cross-entropy", {"recipe": "bce", "class_weight": "balanced"}),
        Method("focal loss", {"recipe": "focal"}),
        Method("surrogate F-beta", {"recipe": "surrogate"}),
        Method("logistic regression", trees=False),
        Method("boosted trees", trees=True),
    ]
    if constrained:
        found.insert(1, Method("trained under the requirement", {"recipe": "constrained"}))
    return found


@dataclass(frozen=True)
class Fitted:
    """A trained method: scores of the positive class for new rows, and the threshold it chose."""

    model: Any
    threshold: float

    def scores(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """The positive class's probabilities."""
        found: NDArray[np.float64] = self.model.predict_proba(X)[:, 1]
        return found


def train(
    method: Method,
    X: pd.DataFrame,
    y: NDArray[np.int64],
    metric: str,
    subject_to: Sequence[str],
    *,
    groups: Any = None,
    seed: int = 0,
    **settings: Any,
) -> Fitted:
    """Train a method on rows with labels 0 and 1, and choose its threshold on out-of-fold scores."""
    if method.trees is None:
        model = network_of(method, metric, subject_to, seed=seed, **settings)
        model.fit(X, y, groups=groups)
        assert model.threshold_ is not None
        return Fitted(model, model.threshold_)
    inner = min(settings.get("members", 8), int(np.bincount(y).min()))
    parts = folds(X, y, inner, seed=seed, groups=groups)
    encoder = TableEncoder()
    x = encoder.fit(X).astype(np.float64)
    held_out = np.empty(len(y))
    for rest, part in parts:
        held_out[part] = _classical(method.trees, y[rest], seed).fit(x[rest], y[rest]).predict_proba(x[part])[:, 1]
    chosen = best_threshold(
        torch.from_numpy(held_out), torch.from_numpy(y), metric, subject_to=list(subject_to) or None
    )
    return Fitted(_OfTables(encoder, _classical(method.trees, y, seed).fit(x, y)), chosen.threshold)


@dataclass(frozen=True)
class _OfTables:
    """A model of numbers behind the encoding that the networks have, so that all take the same tables."""

    encoder: TableEncoder
    model: Any

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.model.predict_proba(self.encoder.transform(X).astype(np.float64))
        return found


def load_training() -> None:
    """Import what training needs: it takes seconds the first time, which are no method's."""
    assert callable(engine.fit_folds)


def network_of(
    method: Method, metric: str, subject_to: Sequence[str], *, seed: int = 0, **settings: Any
) -> MetricClassifier:
    """A network's method, not trained yet."""
    return MetricClassifier(
        metric, subject_to=list(subject_to) or None, random_state=seed, **(settings | method.settings)
    )


def _classical(trees: bool, y: NDArray[np.int64], seed: int) -> ClassifierMixin:
    if not trees:
        return LogisticRegression(max_iter=1000)
    enough = int(np.bincount(y).min()) >= ENOUGH_TO_STOP_BY
    return HistGradientBoostingClassifier(early_stopping=enough, random_state=seed)
