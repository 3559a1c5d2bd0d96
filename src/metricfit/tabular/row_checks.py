"""Checks of labels, weights and groups as scikit-learn makes them, and the value of decisions about such rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from metricfit.core.decisions import count_labels
from metricfit.core.types import LabelAverage, ScalarAverage
from metricfit.decide.costs import RowCosts, mean_cost
from metricfit.decide.labels import label_value
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Metric


def checked_labels(estimator: object, y: Any) -> NDArray[Any]:
    """Return labels of shape ``(n,)``; missing labels, and numbers that are not labels, are refused."""
    if y is None:
        raise InvalidValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    labels: NDArray[Any] = column_or_1d(np.asarray(y), warn=True)
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    if pd.isna(labels).any():
        raise InvalidValueError("Input y contains NaN: drop the rows without a label")
    _check_label_types(y, labels)
    check_classification_targets(labels)
    return labels


def has_several_labels(y: Any) -> bool:
    """Return whether y has one column per label, and not one label per row.

    Raises:
        InvalidValueError: The rows of y have different lengths.
    """
    if hasattr(y, "toarray"):
        return True
    try:
        return np.asarray(y).ndim == 2 and np.asarray(y).shape[1] > 1
    except ValueError:
        raise InvalidValueError(
            "the rows of y have different lengths: sklearn.preprocessing.MultiLabelBinarizer makes a matrix of them"
        ) from None


def checked_label_matrix(y: Any) -> NDArray[np.int64]:
    """Return labels 0 and 1, one column per label; a sparse matrix becomes an array."""
    matrix = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    if matrix.ndim != 2 or matrix.shape[1] < 2 or not np.isin(matrix, (0, 1)).all():
        raise InvalidValueError(
            f"several labels are a matrix of 0 and 1 with one column per label, at least two; got {_describe(matrix)}"
        )
    return matrix.astype(np.int64)


def checked_weights(sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
    """Return one weight per row, at least 0; None if there are no weights."""
    if sample_weight is None:
        return None
    weight: NDArray[np.float64] = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True, copy=True
    )  # a copy, because arrays of polars are read-only
    if not (weight > 0).any():
        raise InvalidValueError("all sample weights are 0, so no class has a row")
    return weight


def checked_groups(groups: Any, X: Any) -> NDArray[Any] | None:
    """Return one group per row; None if there are no groups."""
    if groups is None:
        return None
    values: NDArray[Any] = column_or_1d(np.asarray(groups))
    check_consistent_length(X, values)
    missing = int(pd.isna(values).sum())
    if missing:
        raise InvalidValueError(f"groups is missing in {missing} of {len(values)} rows: give every row a group")
    return values


def _check_label_types(y: Any, labels: NDArray[Any]) -> None:
    """Refuse objects that are not all text; NumPy would turn the numbers of a list that also holds text into text."""
    if labels.dtype.kind not in "OU":
        return
    types = {type(label) for label in (y if isinstance(y, (list, tuple)) else labels.tolist())}
    if not all(issubclass(label_type, str) for label_type in types):
        listed = " and ".join(sorted(label_type.__name__ for label_type in types))
        raise InvalidValueError(
            f"Unknown label type: y holds Python objects of type {listed}; make them all text, y = [str(label) for "
            "label in y], or an array of whole numbers"
        )


def _describe(matrix: NDArray[Any]) -> str:
    values = ", ".join(map(quote, np.unique(matrix.astype(str))[:3].tolist()))
    return f"shape {matrix.shape} with values such as {values}"


def value_of_classes(
    metric: Metric,
    decided: NDArray[np.int64],
    y: NDArray[np.int64],
    classes: int,
    weight: NDArray[np.float64] | None = None,
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
        >>> round(value_of_classes(metrics.f1, np.array([1, 1, 0]), np.array([1, 0, 0]), 2), 4)
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
    return label_value(predicted, labels, weight, metric, average)


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


@contextmanager
def unchanged_if_it_fails(estimator: object) -> Iterator[None]:
    """Restore an object's attributes if the code inside raises an error or is interrupted.

    Otherwise a fit that stops halfway would leave a mixture of two models that predicts without an error. Inside,
    attributes must be replaced, not changed in place.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(classes_=[0, 1])
    >>> try:
    ...     with unchanged_if_it_fails(model):
    ...         model.classes_, model.threshold_ = ["a", "b"], 0.5
    ...         raise ValueError
    ... except ValueError:
    ...     print(model)
    namespace(classes_=[0, 1])
    """
    attributes = vars(estimator)
    before = dict(attributes)
    try:
        yield
    except BaseException:
        for name in attributes.keys() - before.keys():
            del attributes[name]
        attributes.update(before)
        raise
