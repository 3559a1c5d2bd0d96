"""Rows that occur several times: with the same label, with different ones, or in two tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.tabular.doctor.column_kinds import as_codes
from metricfit.tabular.doctor.finding import Finding, describe_share

Integers = NDArray[np.int64]

#: A share of the rarest class, or of the rows, from which contradictions and copies are worth a warning.
WORTH_A_WARNING = 0.01
#: A column with this share of distinct entries makes it unlikely that two rows are equal by chance.
MOSTLY_DISTINCT = 0.5
#: Cells that are compared, and rows by which chance is judged.
MOST_CELLS, ROWS_JUDGED = 10_000_000, 5_000


def find_repeated_rows(X: pd.DataFrame, y: pd.Series) -> list[Finding]:
    """Find rows with equal features: those with different labels, and copies.

    Args:
        X: The features.
        y: The labels.

    Returns:
        At most two findings.
    """
    most = MOST_CELLS // X.shape[1]
    if len(X) > most:
        chosen = np.sort(np.random.default_rng(0).choice(len(X), most, replace=False))
        X, y = X.iloc[chosen], y.iloc[chosen]
    hashes = row_hashes(X)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    if sizes.max() == 1:
        return []
    codes = as_codes(y)[order]
    mixed = np.minimum.reduceat(codes, starts) != np.maximum.reduceat(codes, starts)
    by_chance = not _has_distinct_entries(X)
    found = _contradictions(codes, np.repeat(mixed, sizes), np.repeat(starts, sizes), by_chance) if mixed.any() else []
    copies = int((sizes - 1).sum())
    if not by_chance:
        found.append(
            Finding(
                "copied_rows",
                "warning" if copies / len(X) >= WORTH_A_WARNING else "note",
                f"{describe_share(copies, len(X))} are copies of other rows.",
                "metricfit keeps copies in one fold. Check that they do not come from a join.",
            )
        )
    return found


def _contradictions(codes: Integers, mixed: NDArray[np.bool_], sets: Integers, by_chance: bool) -> list[Finding]:
    """Describe rows with equal features and different labels, and how many of them any model decides wrongly."""
    together = pd.DataFrame({"set": sets[mixed], "label": codes[mixed]})
    sizes = together.value_counts().groupby("set")
    wrong = int((sizes.sum() - sizes.max()).sum())
    rarest = int(np.bincount(codes).min())
    aside = " With so few distinct values per column, different rows can look alike." if by_chance else ""
    return [
        Finding(
            "conflicting_rows",
            "warning" if wrong >= WORTH_A_WARNING * rarest and not by_chance else "note",
            f"{describe_share(len(together), len(codes))} have the same values as rows of another class: whatever the "
            f"model, at least {wrong:,} {'is' if wrong == 1 else 'are'} decided wrongly.{aside}",
            "Look for wrong labels, or for a column that is missing.",
        )
    ]


def find_shared_rows(X: pd.DataFrame, further: pd.DataFrame, name: str) -> list[Finding]:
    """Find rows of a further table that the first one has too.

    Args:
        X: The features of the first table.
        further: The further table; it has these columns, in any order.
        name: Its name.

    Returns:
        One finding, or none.
    """
    if not _has_distinct_entries(X):
        return []  # different rows can look alike
    shared = int(np.isin(row_hashes(further[list(X.columns)]), row_hashes(X)).sum())
    if not shared:
        return []
    share = shared / len(further)
    return [
        Finding(
            "shared_rows",
            "serious" if share >= 0.1 else "warning",
            f"{describe_share(shared, len(further))} of {name} are in the table to train on too.",
            "A model is better on rows that it was trained on: remove them from one of the tables.",
            table=name,
        )
    ]


def row_hashes(X: pd.DataFrame) -> NDArray[np.uint64]:
    """Return one number per row; equal rows have equal ones, whatever the types of their columns are.

    Example:
        >>> first, second = row_hashes(pd.DataFrame({"a": [1, 1], "b": ["x", "x"]}))
        >>> bool(first == second)
        True
    """
    total = np.zeros(len(X), dtype=np.uint64)
    for name in X.columns:
        column = X[name]
        if pd.api.types.is_numeric_dtype(column):
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0  # -0 and 0 are equal
            hashed = pd.util.hash_array(np.where(np.isnan(numbers), np.nan, numbers))
        else:
            text = column.astype(object)
            hashed = pd.util.hash_array(text.where(text.isna(), text.astype(str)).to_numpy(), categorize=True)
        total = total * np.uint64(1_000_003) + hashed
    return total


def _has_distinct_entries(X: pd.DataFrame) -> bool:
    head = X.iloc[:ROWS_JUDGED]
    return any(head[name].nunique() >= MOSTLY_DISTINCT * len(head) for name in head.columns)
