"""Checks of tables, in the way scikit-learn checks them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from metricfit.data.columns import did_you_mean
from metricfit.data.reading import ParquetTable, to_frame
from metricfit.errors import InvalidTypeError, InvalidValueError, quote


def checked_table(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return X as a float array, a sparse matrix or, if it holds more than numbers, a pandas DataFrame.

    Parquet files of many rows stay as they are.
    """
    if hasattr(X, "collect") and not hasattr(X, "to_pandas"):
        raise InvalidTypeError(f"X is a {type(X).__name__}, a query that has no rows yet: X.collect() runs it")
    if isinstance(X, ParquetTable):
        validate_data(estimator, X.head(), reset=reset, skip_check_array=True)
        return X
    if hasattr(X, "to_pandas"):
        X = to_pandas(X)
    if isinstance(X, pd.DataFrame):
        X = X if reset else columns_of_fit(estimator, X)
        check_names_differ(X)
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


def to_pandas(X: Any) -> Any:
    """Convert a table of polars or Arrow to pandas, as the tables of files are."""
    return to_frame(X, Path("X")) if type(X).__module__.startswith("pyarrow") else X.to_pandas()


def columns_of_fit(estimator: BaseEstimator, X: Any, source: str = "X") -> Any:
    """Return the columns of a DataFrame that an estimator was trained on, in their order; others are ignored.

    What is no DataFrame is returned as it is, and so is everything for an estimator that knows no names.

    Args:
        estimator: A fitted estimator.
        X: A table.
        source: What an error calls the table.

    Raises:
        InvalidValueError: Columns are missing.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or not isinstance(X, pd.DataFrame):
        return X
    names = np.asarray(names).tolist()  # LightGBM's are strings of NumPy
    if X.columns.tolist() == names:
        return X
    missing = [name for name in names if name not in X.columns]
    if missing:
        listed = ", ".join(quote(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        hint = did_you_mean(str(missing[0]), [str(name) for name in X.columns if name not in names])
        raise InvalidValueError(
            f"{source} lacks {len(missing)} of the columns the model was trained on: {listed}.{hint}"
        )
    check_names_differ(X)
    return X[names]


def check_names_differ(X: pd.DataFrame) -> None:
    """Refuse a DataFrame with several columns of one name."""
    if not X.columns.is_unique:
        duplicates = ", ".join(map(repr, X.columns[X.columns.duplicated()].unique()))
        raise InvalidValueError(f"X has several columns of one name, {duplicates}: rename or drop all but one")


def describe_unseen(unseen: Mapping[str, int], total: int) -> str:
    """Say which columns have categories that the training rows did not have, and in how many rows.

    >>> describe_unseen({"carrier": 3}, 200)
    "New categories: 'carrier' in 3 of 200 rows (1.5 %). The model treats them as unknown."
    """
    listed = [
        f"{quote(name)} in {count:,} of {total:,} rows ({100 * count / total:.2g} %)" for name, count in unseen.items()
    ]
    return f"New categories: {'; '.join(listed)}. The model treats them as unknown."


def rows(X: Any, selected: NDArray[np.bool_]) -> Any:
    """Return the selected rows of a table."""
    return X[selected] if not isinstance(X, pd.DataFrame) else X.loc[selected].reset_index(drop=True)


def parts(X: Any, rows: int) -> list[Any]:
    """Return the rows of a table in parts of at most this many; a smaller table is returned as it is."""
    if X.shape[0] <= rows:
        return [X]
    by_position = X.iloc if isinstance(X, pd.DataFrame) else X
    return [by_position[first : first + rows] for first in range(0, X.shape[0], rows)]
