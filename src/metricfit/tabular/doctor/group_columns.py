r"""Columns whose repeated values are groups of rows, such as the persons of one crash or the visits of one patient.

Rows of a group tend to have the same label. For every value that occurs twice, two of its rows are compared. Their
labels are correlated by :math:`\bar{(a - p)(b - p)} / (p (1 - p))`, where a and b say whether a row is of the class and
p is the share of the class. Without groups the correlation is 0 with a standard error of :math:`1 / \sqrt{m}` for m
pairs. Numbers that are quantities also predict the label; there, rows of neighbouring values agree as often.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.errors import quote
from metricfit.tabular.doctor.column_kinds import Kind, are_written_dates, kind_of
from metricfit.tabular.doctor.finding import Finding

Integers = NDArray[np.int64]

#: Columns of fewer different values are categories, and columns with more rows per value too.
FEWEST_GROUPS, MOST_ROWS_PER_GROUP = 30, 50
#: A column of words must repeat its values, and groups have several rows on average.
FEWEST_ROWS_PER_GROUP = 1.2
#: Correlation of two rows of a value that counts, in standard errors and as such, and pairs of the class.
STANDARD_ERRORS, SMALLEST_CORRELATION, FEWEST_PAIRS = 5.0, 0.05, 10
#: Classes that are looked at, the most frequent first.
MOST_CLASSES = 30


class Groups(NamedTuple):
    """How the values of a column are related to the labels.

    Attributes:
        values: Number of different values.
        rows: Number of rows with a value.
        correlation: Correlation of the labels of two rows of a value, less that of neighbouring values of numbers.
        shared: Share of the rows whose value some training row has, if the rows are split into five random folds.
    """

    values: int
    rows: int
    correlation: float
    shared: float


def find_group_columns(X: pd.DataFrame, y: pd.Series, seed: int = 0) -> list[Finding]:
    """Find columns whose rows of one value belong together, judged by the values and labels.

    Args:
        X: The features.
        y: The labels.
        seed: Seed of the rows that are compared.

    Returns:
        One finding per column.

    Example:
        >>> crash = np.repeat(np.arange(400), 2)
        >>> deadly = np.random.default_rng(0).random(400)[crash] > 0.7
        >>> [finding.columns for finding in find_group_columns(pd.DataFrame({"crash": crash}), pd.Series(deadly))]
        [('crash',)]
    """
    codes, labels = pd.factorize(y)
    frequent = np.argsort(-np.bincount(codes), kind="stable")[: MOST_CLASSES if len(labels) > 2 else 1]
    described = []
    for name in X.columns:
        groups = _groups_of(X[name], codes.astype(np.int64), frequent, np.random.default_rng(seed))
        if groups is not None:
            described.append(_describe(str(name), groups))
    return described


def _groups_of(column: pd.Series, codes: Integers, classes: Integers, rng: np.random.Generator) -> Groups | None:
    """Return what is known about a column of groups; None if its values are not groups."""
    kind = _kind_of_names(column)
    if kind is None:
        return None
    present = np.flatnonzero(column.notna().to_numpy())
    entries = column.iloc[present]
    numbers, _ = pd.factorize(entries.astype(str) if kind == "words" else entries, sort=True)
    sizes = np.bincount(numbers)
    if not FEWEST_ROWS_PER_GROUP * len(sizes) <= len(numbers) <= MOST_ROWS_PER_GROUP * len(sizes):
        return None
    shuffled = rng.permutation(len(numbers))
    order = present[shuffled[np.argsort(numbers[shuffled], kind="stable")]]
    starts = np.cumsum(sizes) - sizes
    several = starts[sizes > 1]
    correlations = [_excess(codes == label, order, starts, several, kind) for label in classes]
    correlation = max(correlations)
    if correlation == 0:
        return None
    shared = 1 - float((sizes * 0.2 ** (sizes - 1)).sum() / len(numbers))
    return Groups(len(sizes), len(numbers), correlation, shared)


def _kind_of_names(column: pd.Series) -> Kind | None:
    """Return whether a column holds words or whole numbers of enough different values; None for anything else."""
    kind = kind_of(column)
    if kind == "dates" or pd.api.types.is_bool_dtype(column) or column.nunique() < FEWEST_GROUPS:
        return None
    if kind == "words":
        return None if are_written_dates(column) else kind
    numbers = column.dropna().to_numpy(dtype=np.float64)
    return kind if np.isfinite(numbers).all() and (np.mod(numbers, 1) == 0).all() else None


def _excess(of_class: NDArray[np.bool_], order: Integers, starts: Integers, several: Integers, kind: Kind) -> float:
    """Return how much more two rows of one value agree than chance or neighbouring values; 0 if that may be chance."""
    p = float(of_class.mean())
    labels = of_class[order].astype(np.float64)
    together = labels[several] * labels[several + 1]
    if len(several) < FEWEST_PAIRS or together.sum() < FEWEST_PAIRS:
        return 0.0
    centred = (labels - p) / np.sqrt(p * (1 - p))
    error = 1 / np.sqrt(len(several))
    excess = float((centred[several] * centred[several + 1]).mean())
    if kind == "numbers":
        excess -= max(0.0, float((centred[starts[:-1]] * centred[starts[1:]]).mean()))
        error = float(np.hypot(error, 1 / np.sqrt(len(starts) - 1)))
    return excess if excess > max(STANDARD_ERRORS * error, SMALLEST_CORRELATION) else 0.0


def _describe(name: str, groups: Groups) -> Finding:
    return Finding(
        "repeated_identifier",
        "warning",
        f"Rows with the same {quote(name)} tend to have the same label (correlation {groups.correlation:.2f}; "
        f"{groups.values:,} values in {groups.rows:,} rows). In five random folds, {groups.shared:.0%} of the rows "
        "share their value with a training row.",
        f"If new rows will have other values, such as other persons or visits, give --group {shlex.quote(name)} "
        "(groups= in Python), so that rows of one value are never split between folds.",
        (name,),
    )
