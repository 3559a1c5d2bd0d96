"""Checks of labels, weights and groups, in the way scikit-learn checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from metricfit.errors import InvalidValueError, quote


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
    )  # a copy, because torch takes no read-only arrays, and those of polars are read-only
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
