"""The arguments of ``compare``: features, class numbers, groups, folds, metric and requirements."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.model_selection import TimeSeriesSplit

from metricfit.data import folds as split_into_folds
from metricfit.data.columns import order_by_time
from metricfit.decide.choose import checked_guarantee
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.class_order import declared_order
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.tabular.families.family import Integers, Splits
from metricfit.tabular.positive_class import choose_positive_class, classes_of, order_of


def name_of_metric(metric: str | Metric) -> str:
    """Return the metric as text, because the cells of a comparison keep it in their files."""
    if isinstance(metric, str):
        get_metric(metric)
        return metric
    try:
        known = get_metric(metric.name) == metric
    except ValueError:
        known = False
    if not known:
        raise InvalidValueError(
            f"compare takes metrics that metricfit knows by name, such as 'fbeta(beta=2)'; got {quote(metric)}"
        )
    return metric.name


def requirement_texts(subject_to: Requirements | None) -> list[str]:
    """Return the requirements as text, after checking them."""
    as_requirements(subject_to)
    if subject_to is None:
        return []
    several = [subject_to] if isinstance(subject_to, (str, Requirement)) else subject_to
    return [str(requirement) for requirement in several]


def numbered_requirements(requirements: Sequence[Requirement], classes: int) -> tuple[str, ...]:
    """Return requirements as text for rows whose labels are class numbers.

    Args:
        requirements: The requirements, on classes by their numbers (``class_requirements``).
        classes: The number of classes.

    Example:
        >>> from metricfit.metrics import recall
        >>> numbered_requirements([recall.of_class(1, "gold") >= 0.9], 3)
        ('recall[1] >= 0.9',)
    """
    indices = [requirement.metric.class_index if classes > 2 else None for requirement in requirements]
    pairs = zip(requirements, indices, strict=True)
    return tuple(str(replace(each, metric=each.metric.of_class(index))) for each, index in pairs)


def check_confidence_of_folds(
    requirements: Sequence[Requirement],
    confidence: float | None,
    labels: Integers,
    groups: NDArray[Any] | None,
    splits: Sequence[tuple[Integers, Integers]],
) -> None:
    """Refuse a confidence that the training rows of some fold cannot give, before anything is trained.

    Raises:
        InfeasibleError: There are too few rows; the message says how many are needed.
        InvalidValueError: There are no requirements, or requirements or rows without exact bounds.
    """
    if confidence is None:
        return
    for training_rows, _ in splits:
        y = torch.from_numpy(labels[training_rows])
        checked_guarantee(requirements, y, confidence, groups=None if groups is None else groups[training_rows])


@contextmanager
def cell_folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Give the folder that keeps the trainings, or a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="metricfit-compare-") as temporary:
        yield Path(temporary)


def split_columns(
    table: Any, target: Any, groups: Any, time: Any = None
) -> tuple[pd.DataFrame, pd.Series, Any, str | None, str]:
    """Return the features, the labels, the groups, and the names of the group and target columns.

    Args:
        table: A pandas or polars DataFrame, or an array.
        target: Name of a column, or the labels themselves.
        groups: Name of a column, one value per row, or None.
        time: Name of a column, one value per row, or None.

    Raises:
        InvalidValueError: A column is missing or cannot be used.
    """
    if groups is not None and time is not None:
        raise InvalidValueError("groups= and time= both say how rows are split into folds; give one of them")
    frame = _frame(table)
    y, target_name = _column(frame, target, "target")
    group_values, group_name = (None, None) if groups is None else _column(frame, groups, "groups")
    named = [column for column in (target, groups, time) if isinstance(column, str)]
    if len(set(named)) < len(named):
        other = "groups" if groups is not None else "time"
        raise InvalidValueError(f"target and {other} both name the column {quote(target)}; {other} needs another one")
    if isinstance(time, str):
        _column(frame, time, "time")
    X = frame.drop(columns=named)
    if X.shape[1] == 0:
        raise InvalidValueError("the table has no column to learn from")
    return X, y, None if group_values is None else group_values.to_numpy(), group_name, target_name


def sort_by_time_column(table: Any, X: pd.DataFrame, y: pd.Series, time: Any) -> tuple[pd.DataFrame, pd.Series, str]:
    """Sort features and labels by a column of times, and return them with the name of the column.

    Args:
        table: The table, as the user passed it.
        X: The features.
        y: The labels.
        time: Name of a column of the table, or one value per row.

    Raises:
        InvalidValueError: The times cannot be used.
    """
    times, name = _column(_frame(table), time, "time")
    order = order_by_time(times.rename(name))
    return X.iloc[order].reset_index(drop=True), y.iloc[order].reset_index(drop=True), name


def split_rows(
    X: pd.DataFrame, labels: Integers, folds: int, *, seed: int, groups: Any, forward: bool
) -> tuple[Splits, list[str]]:
    """Split rows into the folds of a comparison.

    Args:
        X: The features.
        labels: Class numbers.
        folds: Number of folds.
        seed: Seed of stratified folds.
        groups: One group per row, or None.
        forward: Whether the rows are in the order of time: every fold then holds the rows after its training rows.

    Returns:
        For each fold the training rows and the test rows, and notes about folds that are left out because their
        training rows or their test rows lack a class.

    Raises:
        InvalidValueError: Fewer than two folds can be used.
    """
    if not forward:
        return split_into_folds(X, labels, folds, seed=seed, groups=groups), []
    if len(labels) <= folds:
        raise InvalidValueError(f"{len(labels)} rows cannot be split into {folds} folds and the rows before them")
    every = len(np.unique(labels))
    pairs = [(train, test) for train, test in TimeSeriesSplit(folds).split(labels)]
    splits = [pair for pair in pairs if all(len(np.unique(labels[part])) == every for part in pair)]
    dropped = f"{len(pairs) - len(splits)} of {folds} folds are left out: their training or test rows lack a class"
    if len(splits) < 2:
        raise InvalidValueError(
            f"{dropped}, and a comparison needs two folds; use fewer folds, or leave the column of times out"
        )
    return splits, [] if len(splits) == len(pairs) else [dropped]


def _frame(table: Any) -> pd.DataFrame:
    """Return a table as a DataFrame whose columns have text for names."""
    frame = table.to_pandas() if hasattr(table, "to_pandas") else pd.DataFrame(table)
    if all(isinstance(column, str) for column in frame.columns):
        return frame
    return frame.set_axis([str(column) for column in frame.columns], axis=1)


def _column(frame: pd.DataFrame, column: Any, parameter: str) -> tuple[pd.Series, str]:
    """Return a column that is given by its name or by its values, and what to call it."""
    if isinstance(column, str):
        if column not in frame.columns:
            raise InvalidValueError(f"{parameter}={quote(column)} is not a column of the table")
        values, name = frame[column], column
    else:
        values = column.to_pandas() if hasattr(column, "to_pandas") else column  # of polars, with its categories
        values = values if isinstance(values, (pd.Series, pd.Categorical)) else np.asarray(values)
        values = pd.Series(values)
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
    labels = np.asarray(y)
    classes = classes_of(labels)
    counts = pd.Series(labels).value_counts()
    if counts.iloc[-1] < folds:
        raise InvalidValueError(
            f"the class {quote(counts.index[-1])} has {counts.iloc[-1]} rows, fewer than {folds} folds; use fewer folds"
        )
    order = order_of(classes, choose_positive_class(labels, pos_label), declared_order(y))
    numbers = np.argsort(order)[np.searchsorted(classes, labels)]
    return numbers.astype(np.int64), tuple(str(label) for label in classes[order])
