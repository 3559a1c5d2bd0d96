"""The value of a metric for decisions about labelled rows."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length
from torch import Tensor

from metricfit.core.counting import count_labels
from metricfit.core.types import LabelAverage, ScalarAverage
from metricfit.decide.costs.row_costs import RowCosts, mean_cost
from metricfit.decide.estimators.row_checks import checked_label_matrix, checked_weights
from metricfit.decide.labels.label_search import label_value
from metricfit.errors import InvalidValueError
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Metric


def value_of_classes(
    metric: Metric,
    decided: Tensor,
    y: Tensor,
    classes: int,
    weight: Tensor | None = None,
    *,
    average: ScalarAverage = "macro",
    costs: RowCosts | None = None,
) -> float:
    """Return the value of a metric for decided classes.

    Args:
        metric: The metric.
        decided: Class numbers that were decided; of two classes, 1 is the positive one.
        y: The true class numbers.
        classes: Number of classes.
        weight: One weight per row, or None.
        average: The average over several classes.
        costs: The costs of the rows, for a metric with costs in columns.

    Example:
        >>> from metricfit import metrics
        >>> round(value_of_classes(metrics.f1, torch.tensor([1, 1, 0]), torch.tensor([1, 0, 0]), 2), 4)
        0.6667
    """
    if costs is not None:
        return mean_cost(costs.of_decisions(decided, y), weight)
    several = None if classes == 2 else classes
    counts = count_labels(decided, y, num_classes=several, weight=weight, matrix=metric.needs_matrix)
    return float(averaged(metric, counts, average))


def value_of_labels(
    metric: Metric, predicted: NDArray[Any], y: Any, sample_weight: Any, average: LabelAverage
) -> float:
    """Return the value of a metric for several labels per row.

    Args:
        metric: The metric.
        predicted: The decided labels, 0 and 1, ``(n, c)``.
        y: The true labels.
        sample_weight: One weight per row, or None.
        average: The average over the labels, or over the rows.

    Raises:
        InvalidValueError: ``y`` has another number of labels.
    """
    labels = checked_label_matrix(y)
    check_consistent_length(predicted, labels)
    if labels.shape != predicted.shape:
        raise InvalidValueError(f"y has {labels.shape[1]} labels, the model {predicted.shape[1]}")
    weight = checked_weights(sample_weight, labels)
    parts = torch.from_numpy(predicted), torch.from_numpy(labels)
    return label_value(*parts, None if weight is None else torch.from_numpy(weight), metric, average)


def average_of_classes(average: LabelAverage) -> ScalarAverage:
    """Return the average, if it is one over classes.

    Raises:
        InvalidValueError: It is "samples", an average for several labels.
    """
    if average == "samples":
        raise InvalidValueError(
            "average='samples' is for several labels; of classes use 'macro', 'micro' or 'weighted'"
        )
    return average
