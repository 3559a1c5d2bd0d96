"""Checks of X, y, weights and groups, in the way scikit-learn checks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from metricfit.errors import InvalidTypeError, InvalidValueError


def checked_table(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return X as a float array, a sparse matrix or, if it holds more than numbers, a pandas DataFrame."""
    if hasattr(X, "collect") and not hasattr(X, "to_pandas"):
        raise InvalidTypeError(f"X is a {type(X).__name__}, a query that has no rows yet: X.collect() runs it")
    if hasattr(X, "to_pandas"):  # polars, pyarrow
        X = X.to_pandas()
    if isinstance(X, pd.DataFrame):
        if not X.columns.is_unique:
            duplicates = ", ".join(map(repr, X.columns[X.columns.duplicated()].unique()))
            raise InvalidValueError(f"X has several columns of one name, {duplicates}: rename or drop all but one")
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        for size, what in zip(X.shape, ("sample(s)", "feature(s)"), strict=True):
            if not size:
                raise InvalidValueError(
                    f"Found array with 0 {what} (shape={X.shape}) while a minimum of 1 is required."
                )
        return X
    if issparse(X):
        return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=np.float64)
    values = X if hasattr(X, "dtype") else np.asarray(X)
    if getattr(values, "dtype", None) is not None and values.dtype.kind in "OUST":
        array = validate_data(estimator, values, reset=reset, dtype=None, ensure_all_finite=False)
        return pd.DataFrame(array).infer_objects()
    return validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")


def checked_labels(estimator: BaseEstimator, y: Any) -> NDArray[Any]:
    """Return labels of shape ``(n,)``; missing labels, and numbers that are not labels, are refused."""
    if y is None:
        raise InvalidValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    labels: NDArray[Any] = column_or_1d(np.asarray(y), warn=True)
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    if pd.isna(labels).any():
        raise InvalidValueError("Input y contains NaN: drop the rows without a label")
    check_classification_targets(labels)
    return labels


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
    return values


def rows(X: Any, selected: NDArray[np.bool_]) -> Any:
    """Return the selected rows of a table."""
    return X[selected] if not isinstance(X, pd.DataFrame) else X.loc[selected].reset_index(drop=True)
