"""Checks of what users pass, as scikit-learn makes them: parameters, tables, labels, weights and groups."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from metricfit.core.decisions import count_labels
from metricfit.core.types import LabelAverage, ScalarAverage
from metricfit.data.columnar import to_frame
from metricfit.data.columns import did_you_mean
from metricfit.data.reading import ParquetTable
from metricfit.decide.bounds import check_confidence
from metricfit.decide.costs import RowCosts, mean_cost
from metricfit.decide.labels import label_value
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.average import AVERAGES, averaged
from metricfit.metrics.metric import Metric
from metricfit.metrics.metric_parameters import as_float
from metricfit.metrics.requirements import Requirement

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


def check_whole(name: str, value: Any, minimum: int, description: str) -> None:
    """Raise an error that names the parameter, unless the value is a whole number of at least a minimum.

    >>> check_whole("members", 1, 2, "folds")
    Traceback (most recent call last):
    metricfit.errors.InvalidValueError: members is a whole number of folds, at least 2; got 1
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidTypeError(f"{name} is a whole number of {description}, at least {minimum}; got {quote(value)}")
    if value < minimum:
        raise InvalidValueError(f"{name} is a whole number of {description}, at least {minimum}; got {quote(value)}")


def check_positive(name: str, value: Any, description: str) -> None:
    """Raise an error that names the parameter, unless the value is a finite number above 0."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidTypeError(f"{name} is {description}, a number above 0; got {quote(value)}")
    if not 0 < as_float(value, name) < math.inf:
        raise InvalidValueError(f"{name} is {description}, a number above 0; got {quote(value)}")


QUALITIES = ("fast", "default", "best")
DECISIONS = ("auto", "plugin", "empirical")


def check_parameters(model: MetricClassifier) -> None:
    """Raise a TypeError or a ValueError that names the parameter and what it can be.

    The metric, the models and the folds are checked where they are looked up.
    """
    if model.members is not None:
        check_whole("members", model.members, 2, "folds, each held out by one model of every family")
    if model.time_budget is not None:
        check_positive("time_budget", model.time_budget, "seconds of training, or None for no limit")
    check_calibration(model.calibration)
    if model.quality not in QUALITIES:
        raise InvalidValueError(f"quality is one of {', '.join(map(repr, QUALITIES))}; got {quote(model.quality)}")
    check_decision_parameters(model, tuple(average for average in AVERAGES if average is not None))
    if model.device is not None:
        _check_device(model.device)


def check_calibration(share: Any) -> None:
    """Raise a TypeError or a ValueError for what is no share of the rows and not None."""
    if share is not None:
        check_positive("calibration", share, "the share of the rows that is kept apart, or None")
        if share >= 1:
            raise InvalidValueError(f"calibration is a share of the rows below 1, such as 0.3; got {share}")


def check_decision_parameters(model: Any, averages: tuple[str, ...]) -> None:
    """Raise a TypeError or a ValueError for ``n_jobs``, ``decision``, ``average`` or ``subject_to``."""
    if model.n_jobs is not None:
        _check_jobs(model.n_jobs)
    if model.decision not in DECISIONS:
        raise InvalidValueError(f"decision is one of {', '.join(map(repr, DECISIONS))}; got {quote(model.decision)}")
    if model.average not in averages:
        named = ", ".join(map(repr, averages))
        raise InvalidValueError(f"average is one of {named}; got {quote(model.average)}")
    if model.subject_to is not None:
        _check_requirements(model.subject_to)
    if model.confidence is not None:
        check_confidence(model.confidence)


def threads_of(n_jobs: int | None) -> int:
    """Return how many folds are fitted at a time: -1 is one per core, -2 one less, as in scikit-learn; None is 1."""
    if n_jobs is None:
        return 1
    if n_jobs > 0:
        return int(n_jobs)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, cores + 1 + int(n_jobs))


def _check_jobs(value: Any) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidTypeError(f"n_jobs is a whole number of threads, or -1 for one per core; got {quote(value)}")
    if value == 0:
        raise InvalidValueError("n_jobs is a number of threads, or -1 for one per core; got 0")


def _check_device(value: Any) -> None:
    if not re.fullmatch(r"(cpu|cuda|mps|xpu)(:\d+)?", str(value)):
        raise InvalidValueError(f"device is a device of torch, such as 'cpu' or 'cuda:1', or None; got {quote(value)}")


def _check_requirements(value: Any) -> None:
    several = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for requirement in several:
        if not isinstance(requirement, (str, Requirement)):
            raise InvalidTypeError(
                f"subject_to is a requirement such as 'recall >= 0.9' or a list of them; got {quote(value)}"
            )


def checked_table(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return X as a float array, a sparse matrix or, if it holds more than numbers, a pandas DataFrame.

    Parquet files of many rows stay as they are.
    """
    X = with_rows(X)
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


def with_rows(X: Any) -> Any:
    """Run a query of polars (a LazyFrame), and read a dataset of Arrow; other tables are returned as they are.

    Raises:
        InvalidTypeError: It is a query of another library.
    """
    if type(X).__name__ == "LazyFrame":
        return X.collect()
    if hasattr(X, "collect") and not hasattr(X, "to_pandas"):
        raise InvalidTypeError(f"X is a {type(X).__name__}, a query that has no rows yet: run it first")
    return X.to_table() if hasattr(X, "get_fragments") else X


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
        raise InvalidValueError(f"{source} lacks {len(missing)} of the columns of training: {listed}.{hint}")
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


def takes_row_numbers(cv: Any) -> bool:
    """Return whether ``cv`` is a splitter or a list of row numbers, which count all rows that were passed."""
    return cv is not None and not isinstance(cv, (str, Integral))


@dataclass(frozen=True)
class FitRows:
    """Rows as they are passed to ``fit``.

    Attributes:
        X: The table, in any form.
        y: One label per row, or a matrix of several labels.
        weight: One weight per row, or None.
        groups: One group per row, or None.
        numbers: The number of each row among all rows that were passed.
        total: The number of these.
    """

    X: Any
    y: Any
    weight: NDArray[np.float64] | None
    groups: NDArray[Any] | None
    numbers: NDArray[np.int64]
    total: int

    def take(self, index: NDArray[np.int64]) -> FitRows:
        """Return these rows."""
        X: Any = self.X.tocsr() if issparse(self.X) else self.X
        weight, groups = (None if part is None else part[index] for part in (self.weight, self.groups))
        table, y = _safe_indexing(X, index), _safe_indexing(self.y, index)
        return FitRows(table, y, weight, groups, self.numbers[index], self.total)


def checked_rows(X: Any, y: NDArray[Any], sample_weight: Any, groups: Any, cv: Any) -> FitRows:
    """Check weights and groups of rows; rows of weight 0 are left out.

    Args:
        X: The table.
        y: The labels, which are checked.
        sample_weight: One weight per row, or None.
        groups: One group per row, or None.
        cv: The parameter of the estimator, whose row numbers count all rows.

    Raises:
        InvalidValueError: A weight or a group cannot be used.
    """
    check_consistent_length(X, y)
    weight, group = checked_weights(sample_weight, y), checked_groups(groups, y)
    rows = FitRows(X, y, weight, group, np.arange(len(y)), len(y))
    if weight is None or weight.all():
        return rows
    if takes_row_numbers(cv):
        raise InvalidValueError("rows of weight 0 count as absent, and cv= counts all rows: pass the others alone")
    return rows.take(np.flatnonzero(weight))


def rows_of_table(X: Any, selected: NDArray[np.bool_]) -> Any:
    """Return the selected rows of a table."""
    return X[selected] if not isinstance(X, pd.DataFrame) else X.loc[selected].reset_index(drop=True)


def parts_of_table(X: Any, rows: int) -> list[Any]:
    """Return the rows of a table in parts of at most this many; a smaller table is returned as it is."""
    if X.shape[0] <= rows:
        return [X]
    by_position = X.iloc if isinstance(X, pd.DataFrame) else X
    return [by_position[first : first + rows] for first in range(0, X.shape[0], rows)]


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
            "the rows of y have different lengths: MultiLabelBinarizer makes a matrix of them"
        ) from None


def checked_label_matrix(y: Any) -> NDArray[np.int64]:
    """Return labels 0 and 1, one column per label; a sparse matrix becomes an array."""
    matrix = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    if matrix.ndim != 2 or matrix.shape[1] < 2 or not np.isin(matrix, (0, 1)).all():
        raise InvalidValueError(
            f"several labels are a matrix of 0 and 1, one column per label; got {_describe(matrix)}"
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
        raise InvalidValueError("average='samples' is for several labels; classes have 'macro', 'micro', 'weighted'")
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
