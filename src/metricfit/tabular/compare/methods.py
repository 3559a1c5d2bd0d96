"""The methods that ``compare`` compares, each trained on the same rows and tuned for the same metric."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import metricfit.train as engine  # its fit_folds is loaded when first used
from metricfit.data import folds
from metricfit.metrics import get_metric
from metricfit.metrics.curves import as_requirements, best_or_nearest
from metricfit.metrics.feasibility import InfeasibleWarning, what_is_reachable
from metricfit.metrics.sweep import sweep
from metricfit.tabular import MetricClassifier
from metricfit.tabular.encoding.columns import Category, Number
from metricfit.tabular.encoding.encoder import TableEncoder

#: The method that others are compared with: what one would do without this library.
REFERENCE = "cross-entropy, tuned threshold"
DEFAULT = "metricfit"
#: Trees stop early by a tenth of their rows; if the rarest class has fewer rows, too few of them would be there.
MIN_ROWS_FOR_EARLY_STOPPING = 20


@dataclass(frozen=True)
class Method:
    """How a method is trained: with a network, or with scikit-learn's models and a tuned threshold.

    Attributes:
        name: Name in tables and verdicts.
        complexity: Rank from simple to complex, by what has to be understood and kept running: one linear model, one
            model of trees, an ensemble of networks with the usual loss, with another loss, with two losses, with two
            losses and multipliers. Of methods that cannot be told apart, ``compare`` recommends the simplest.
        settings: Parameters of MetricClassifier.
        at_half: Name of its decisions at 0.5, if they are shown as a separate method.
        trees: True for boosted trees, False for logistic regression, None for networks.
    """

    name: str
    complexity: int
    settings: dict[str, Any] = field(default_factory=dict)
    at_half: str | None = None
    trees: bool | None = None


def methods(constrained: bool) -> list[Method]:
    """Return all methods of a comparison; with requirements, training under them is one more."""
    result = [
        Method(DEFAULT, 4, {"recipe": "mix"}),
        Method(REFERENCE, 2, {"recipe": "bce"}, at_half="cross-entropy at 0.5"),
        Method("weighted cross-entropy", 3, {"recipe": "bce", "class_weight": "balanced"}),
        Method("focal loss", 3, {"recipe": "focal"}),
        Method("surrogate F-beta", 3, {"recipe": "surrogate"}),
        Method("logistic regression", 0, trees=False),
        Method("boosted trees", 1, trees=True),
    ]
    if constrained:
        result.insert(1, Method("trained under the requirement", 5, {"recipe": "constrained"}))
    return result


@dataclass(frozen=True)
class Fitted:
    """A trained method: scores of the positive class for new rows, and the threshold it chose.

    Attributes:
        model: The fitted model.
        threshold: The chosen threshold; if the requirements cannot be met on the training rows, the nearest to them.
        not_reachable: What is reachable in place of the requirements; None if the threshold meets them.
    """

    model: Any
    threshold: float
    not_reachable: str | None = None

    def scores(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probabilities of the positive class."""
        probabilities: NDArray[np.float64] = self.model.predict_proba(X)[:, 1]
        return probabilities


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InfeasibleWarning)  # the row of the comparison is marked
            model.fit(X, y, groups=groups)
        assert model.threshold_ is not None
        return Fitted(model, model.threshold_, model.decision_.not_reachable)
    inner = min(settings.get("members", 8), int(np.bincount(y).min()))
    parts = folds(X, y, inner, seed=seed, groups=groups)
    encoder = TableEncoder()
    encoder.fit(X)
    whole = _TableModel(encoder, method.trees, seed)
    x = whole.numbers(X)
    held_out = np.empty(len(y))
    for rest, part in parts:
        held_out[part] = _TableModel(encoder, method.trees, seed).fit(x[rest], y[rest]).of_numbers(x[part])[:, 1]
    whole.fit(x, y)
    requirements = as_requirements(list(subject_to))
    chosen = best_or_nearest(sweep(held_out, y, None), get_metric(metric), requirements)
    if chosen.feasible:
        return Fitted(whole, chosen.threshold)
    reachable = what_is_reachable(requirements, chosen.requirements, chosen.threshold)
    return Fitted(whole, chosen.threshold, reachable)


class _TableModel:
    """A scikit-learn model behind the networks' encoding of a table, so that all methods take the same tables.

    Logistic regression gets the same numbers as the networks. Trees get the numbers before scaling, with NaN for
    missing values, and categories as codes instead of one column each.
    """

    def __init__(self, encoder: TableEncoder, trees: bool, seed: int) -> None:
        self.encoder, self.trees, self.seed = encoder, trees, seed

    def numbers(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the table as numbers, as the model takes them."""
        if not self.trees:
            return self.encoder.transform(X).astype(np.float64)
        columns = [Number() for _ in X] if self.encoder.columns is None else self.encoder.columns
        parts = []
        for index, column in enumerate(columns):
            if column is not None:
                part = column.transform(X.iloc[:, index])
                codes = np.arange(1.0, part.shape[1] + 1)[:, None]
                parts.append(part @ codes if isinstance(column, Category) else part)
        return np.concatenate(parts, axis=1)

    def fit(self, x: NDArray[np.float64], y: NDArray[np.int64]) -> _TableModel:
        """Train on the columns that are not empty in these rows, because trees cannot be grown on empty ones."""
        self.not_empty = ~np.isnan(x).all(axis=0)
        stop_early = int(np.bincount(y).min()) >= MIN_ROWS_FOR_EARLY_STOPPING
        self.model = (
            HistGradientBoostingClassifier(early_stopping=stop_early, random_state=self.seed)
            if self.trees
            else LogisticRegression(max_iter=1000)
        ).fit(x[:, self.not_empty], y)
        return self

    def of_numbers(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities of the classes, for rows of numbers."""
        probabilities: NDArray[np.float64] = self.model.predict_proba(x[:, self.not_empty])
        return probabilities

    def predict_proba(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probabilities of the classes, for rows of the table."""
        return self.of_numbers(self.numbers(X))


def load_training() -> None:
    """Import what training needs, because the first import takes seconds that belong to no method."""
    assert callable(engine.fit_folds)


def network_of(
    method: Method, metric: str, subject_to: Sequence[str], *, seed: int = 0, **settings: Any
) -> MetricClassifier:
    """Make the untrained classifier of a method that trains networks."""
    return MetricClassifier(
        metric, subject_to=list(subject_to) or None, random_state=seed, **(settings | method.settings)
    )
