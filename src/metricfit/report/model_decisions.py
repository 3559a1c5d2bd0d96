"""What a fitted model decides on labelled rows: scores, counts, and intervals of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit import metrics, stats
from metricfit.core.counting import count_labels
from metricfit.core.counts import Counts
from metricfit.decide.costs import RowCosts, cost_columns, interval_of_costs, row_costs
from metricfit.decide.decision import REFERRED
from metricfit.metrics import averaged, get_metric, names
from metricfit.stats.multinomial import percentile_interval, resampled_counts
from metricfit.tabular import MetricClassifier

Pair = tuple[float, float]


def metrics_without_parameters() -> list[metrics.Metric]:
    """Return the metrics that need no parameters."""
    found = (getattr(metrics, name, None) for name in names())
    return [metric for metric in found if isinstance(metric, metrics.Metric)]


def metric_label(model: MetricClassifier, metric: metrics.Metric | None = None) -> str:
    """Return the name of the model's metric, or of another one; with its average if there are several classes."""
    metric = get_metric(model.metric if metric is None else metric)
    return metric.name if len(model.classes_) == 2 or metric.whole_matrix else f"{model.average} {metric.name}"


def class_names(model: MetricClassifier) -> tuple[str, str]:
    """Return the names of the negative and of the positive class."""
    column = _positive_column(model)
    return str(model.classes_[1 - column]), str(model.classes_[column])


def class_labels(model: MetricClassifier) -> list[Any]:
    """Return the labels in the order of the class numbers, which metrics of the whole matrix depend on."""
    labels: list[Any] = model.classes_[model._order].tolist()
    return labels


def class_numbers(model: MetricClassifier, labels: Any) -> NDArray[np.int64]:
    """Return the class number of each label."""
    numbers: NDArray[np.int64] = model._numbers_of(np.asarray(labels)).numpy()
    return numbers


def positive_scores(model: MetricClassifier, X: Any) -> NDArray[np.float64]:
    """Return the probability of the positive class for each row."""
    scores: NDArray[np.float64] = model.predict_proba(X)[:, _positive_column(model)]
    return scores


def positive_labels(model: MetricClassifier, y: Any) -> NDArray[np.int64]:
    """Return 1 for rows of the positive class and 0 for the others."""
    labels: NDArray[np.int64] = (np.asarray(y) == model.classes_[_positive_column(model)]).astype(np.int64)
    return labels


def decision_counts(model: MetricClassifier, X: Any, y: Any, threshold: float | None = None) -> Counts:
    """Count a model's decisions on labelled rows.

    Args:
        model: The fitted model.
        X: The rows.
        y: Their labels.
        threshold: A threshold for two classes; by default the model's.

    Returns:
        The counts, of the positive class alone if there are two classes. Rows that are referred do not count.
    """
    if len(model.classes_) > 2:
        return count_labels(
            torch.from_numpy(class_numbers(model, model.predict(X))),
            torch.from_numpy(class_numbers(model, y)),
            num_classes=len(model.classes_),
            matrix=True,
        )
    called, labels = positive_decisions(model, X, threshold), positive_labels(model, y)
    decided = called != REFERRED
    return Counts.from_labels(torch.from_numpy(called[decided]), torch.from_numpy(labels[decided]))


def positive_decisions(model: MetricClassifier, X: Any, threshold: float | None = None) -> NDArray[np.int64]:
    """Return 1 for rows that a model of two classes calls positive, and -1 for those that it refers to a person.

    At another threshold, if one is given, every row is decided.
    """
    if threshold is not None:
        return np.asarray(positive_scores(model, X) >= threshold, dtype=np.int64)
    predicted = model.predict(X)
    called = np.asarray(predicted == model.pos_label_, dtype=np.int64)
    referred = predicted == model.refer_label_ if model.refer_region_ is not None else np.zeros(len(called), bool)
    return np.where(referred, REFERRED, called)


def costs_of(model: MetricClassifier, X: Any) -> RowCosts:
    """Return the costs of each row, for a model whose metric takes costs from columns."""
    metric = get_metric(model.metric)
    return row_costs(metric, cost_columns(metric, X), len(X))


def metric_values(
    model: MetricClassifier, X: Any, y: Any, counts: Counts, several: Sequence[metrics.Metric]
) -> dict[str, float]:
    """Return the values of metrics on labelled rows.

    Args:
        model: The fitted model.
        X: The rows.
        y: Their labels.
        counts: The counts of its decisions there, for metrics of counts.
        several: The metrics.

    Returns:
        The value of each metric by its name.
    """
    values = {}
    for metric in several:
        if metric.columns:
            values[metric.name] = float(_paid(model, X, y).mean())
        else:
            values[metric.name] = float(averaged(metric, counts, model.average))
    return values


def metric_intervals(
    model: MetricClassifier, X: Any, y: Any, threshold: float | None, several: Sequence[metrics.Metric]
) -> dict[str, Pair | None]:
    """Compute 95 % bootstrap intervals of metrics on labelled rows.

    Args:
        model: The fitted model.
        X: The rows.
        y: Their labels.
        threshold: A threshold for two classes; None for the model's.
        several: The metrics.

    Returns:
        The interval of each metric by its name; None if all rows are of one class.
    """
    if len(np.unique(np.asarray(y))) < 2:
        return {metric.name: None for metric in several}
    if len(model.classes_) > 2:
        predicted, truth = class_numbers(model, model.predict(X)), class_numbers(model, y)
        matrix = any(metric.needs_matrix for metric in several)
        resampled = resampled_counts(predicted, truth, len(model.classes_), matrix=matrix)
        return {metric.name: percentile_interval(averaged(metric, resampled, model.average)) for metric in several}
    called, labels = positive_decisions(model, X, threshold).astype(np.float64), positive_labels(model, y)
    decided = called != REFERRED
    called, labels = called[decided], labels[decided]
    if len(np.unique(labels)) < 2:
        return {metric.name: None for metric in several}
    return {
        metric.name: interval_of_costs(_paid(model, X, y))
        if metric.columns
        else stats.bootstrap(called, labels, metric, threshold=0.5, stratified=False).interval
        for metric in several
    }


def _paid(model: MetricClassifier, X: Any, y: Any) -> NDArray[np.float64]:
    """Return what the decision about each row costs."""
    called, labels = torch.from_numpy(positive_decisions(model, X)), torch.from_numpy(positive_labels(model, y))
    paid: NDArray[np.float64] = costs_of(model, X).of_decisions(called, labels).numpy()
    return paid


def _positive_column(model: MetricClassifier) -> int:
    return int(model.classes_.tolist().index(model.pos_label_))
