"""From what a user passes to ``compare`` to features, class numbers and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from metricfit.decide.estimators.positive_class import choose_positive_class, classes_of, order_of
from metricfit.errors import InvalidValueError, quote
from metricfit.tabular.families.family import Integers


def split_columns(table: Any, target: Any, groups: Any) -> tuple[pd.DataFrame, pd.Series, Any, str | None, str]:
    """Return the features, the labels, the groups, and the names of the group and target columns.

    Args:
        table: A pandas or polars DataFrame, or an array.
        target: Name of a column, or the labels themselves.
        groups: Name of a column, one value per row, or None.

    Raises:
        InvalidValueError: A column is missing or cannot be used.
    """
    frame = table.to_pandas() if hasattr(table, "to_pandas") else pd.DataFrame(table)
    if not all(isinstance(column, str) for column in frame.columns):
        frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    y, target_name = _column(frame, target, "target")
    group_values, group_name = (None, None) if groups is None else _column(frame, groups, "groups")
    named = [column for column in (target, groups) if isinstance(column, str)]
    if len(set(named)) < len(named):
        raise InvalidValueError(f"target and groups both name the column {quote(target)}; groups need another column")
    X = frame.drop(columns=named)
    if X.shape[1] == 0:
        raise InvalidValueError("the table has no column to learn from")
    return X, y, None if group_values is None else group_values.to_numpy(), group_name, target_name


def _column(frame: pd.DataFrame, column: Any, parameter: str) -> tuple[pd.Series, str]:
    """Return a column that is given by its name or by its values, and what to call it."""
    if isinstance(column, str):
        if column not in frame.columns:
            raise InvalidValueError(f"{parameter}={quote(column)} is not a column of the table")
        values, name = frame[column], column
    else:
        values = pd.Series(np.asarray(column)) if not isinstance(column, pd.Series) else column
        name = str(getattr(column, "name", None) or parameter)
    if len(values) != len(frame):
        raise InvalidValueError(f"{parameter} has {len(values)} values for a table of {len(frame)} rows")
    missing = int(values.isna().sum())
    if missing:
        raise InvalidValueError(f"{parameter} is missing in {missing} of {len(frame)} rows; remove those rows")
    return values, name


def number_classes(y: pd.Series, pos_label: Any, folds: int) -> tuple[Integers, tuple[str, ...]]:
    """Return the class number of each row, and the names of the classes; of two classes, 1 is the positive one.

    Args:
        y: The labels.
        pos_label: The positive class of two, or None to choose it.
        folds: The number of folds; every class needs a row in each.

    Raises:
        InvalidValueError: A class has too few rows, or ``pos_label`` is given for several classes.
    """
    labels = y.to_numpy()
    classes = classes_of(labels)
    counts = y.value_counts()
    if counts.iloc[-1] < folds:
        raise InvalidValueError(
            f"the class {quote(counts.index[-1])} has {counts.iloc[-1]} rows, fewer than {folds} folds; use fewer folds"
        )
    order = order_of(classes, choose_positive_class(labels, pos_label))
    numbers = np.argsort(order)[np.searchsorted(classes, labels)]
    return numbers.astype(np.int64), tuple(str(label) for label in classes[order])
