"""Stratified splits that keep copies of a row, and the rows of a group, in one part: the public functions of the room.

Rows that must stay together form a unit; all other rows are units of one row. Units of several rows are placed one by
one, largest first, each in the part where the class counts remain most even. Then the single rows of each class fill
the parts. The share of every class is exact to one row, unless units of several rows are too large for that.
scikit-learn's StratifiedGroupKFold makes only equal folds and loops over all groups: tens of seconds for 300,000 rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from metricfit.errors import InvalidValueError

Indices = NDArray[np.int64]


def split(
    X: Any,
    y: Any,
    fractions: Sequence[float] = (0.64, 0.16, 0.2),
    *,
    seed: int,
    groups: Any = None,
    keep_duplicates_together: bool = True,
) -> list[Indices]:
    """Split rows into parts, each with its fraction of every class.

    Rows that are equal in every column of ``X`` (whatever their labels) are in one part. So are the rows of a group,
    and rows that are connected through both. The cost is a hash of every row and one sort.

    Args:
        X: The features, one row per sample.
        y: The labels.
        fractions: Fraction of each part; by default of training, validation and test rows.
        seed: Seed of the split. The same seed gives the same parts.
        groups: One group per row, or None.
        keep_duplicates_together: Whether equal rows stay in one part.

    Returns:
        The sorted row numbers of each part. Every part has every class.

    Raises:
        ValueError: A class is too rare for the number of parts, or an argument is not valid.

    Example:
        >>> X, y = np.arange(10).reshape(10, 1), np.array([1, 0, 0, 0, 0] * 2)
        >>> [len(part) for part in split(X, y, (0.5, 0.5), seed=0)]
        [5, 5]
    """
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.ndim != 1 or len(shares) < 2 or not (shares > 0).all() or not math.isclose(shares.sum(), 1, rel_tol=1e-6):
        raise InvalidValueError(f"fractions are two or more numbers above 0 whose sum is 1, got {tuple(fractions)}")
    rows = _as_frame(X)
    classes, labels = _encode_labels(y, len(rows))
    units = _find_units(rows, groups, keep_duplicates_together)
    count = np.zeros((int(units.max()) + 1, len(classes)), dtype=np.int64)
    np.add.at(count, (units, labels), 1)
    sources = (count > 0).sum(0)
    if sources.min() < len(shares):
        rarest, available = classes[sources.argmin()], sources.min()
        copies = " (copies of a row count as one)" if keep_duplicates_together else ""
        raise InvalidValueError(
            f"class {rarest} has {available} rows or groups of rows that can be separated{copies}; each of "
            f"{len(shares)} parts needs one: use fewer parts or more data"
        )
    part = _assign(count, shares / shares.sum(), np.random.default_rng(seed))[units]
    return [np.flatnonzero(part == number) for number in range(len(shares))]


def folds(
    X: Any, y: Any, k: int, *, seed: int, groups: Any = None, keep_duplicates_together: bool = True
) -> list[tuple[Indices, Indices]]:
    """Split rows into k folds for cross-validation, by the rules of `split`.

    Args:
        X: The features, one row per sample.
        y: The labels.
        k: Number of folds.
        seed: Seed of the split. The same seed gives the same folds.
        groups: One group per row, or None.
        keep_duplicates_together: Whether equal rows stay in one fold.

    Returns:
        For each fold the row numbers of all other folds, and the row numbers of the fold.

    Raises:
        ValueError: A class is too rare for the number of folds, or an argument is not valid.

    Example:
        >>> X, y = np.arange(10).reshape(10, 1), np.array([1, 0, 0, 0, 0] * 2)
        >>> [(len(rest), len(fold)) for rest, fold in folds(X, y, 2, seed=0)]
        [(5, 5), (5, 5)]
    """
    if k < 2:
        raise InvalidValueError(f"folds needs k of 2 or more, got {k}")
    parts = split(X, y, [1 / k] * k, seed=seed, groups=groups, keep_duplicates_together=keep_duplicates_together)
    everything = np.arange(sum(map(len, parts)))
    return [(np.setdiff1d(everything, part, assume_unique=True), part) for part in parts]


def _as_frame(X: Any) -> Any:
    table = X if isinstance(X, pd.DataFrame) else np.asarray(X)
    if table.ndim == 0 or not len(table):
        raise InvalidValueError(f"X needs rows, got shape {table.shape}")
    return table if isinstance(X, pd.DataFrame) else pd.DataFrame(table.reshape(len(table), -1))


def _encode_labels(y: Any, n: int) -> tuple[NDArray[Any], Indices]:
    """Return the classes, and the index of each row's class."""
    values = np.asarray(y)
    values = values.reshape(len(values)) if values.ndim == 2 and values.shape[1] == 1 else values
    if values.shape != (n,):
        raise InvalidValueError(f"y must have one label for each of the {n} rows, got shape {values.shape}")
    if pd.isna(values).any():
        raise InvalidValueError("y has missing labels; drop those rows first")
    classes, labels = np.unique(values, return_inverse=True)
    return classes, labels.astype(np.int64)


def _find_units(rows: Any, groups: Any, keep_duplicates_together: bool) -> Indices:
    """Return the number of each row's unit; rows of a unit are connected through equal rows or equal groups."""
    n = len(rows)
    ties = []
    if keep_duplicates_together:
        ties.append(pd.factorize(pd.util.hash_pandas_object(rows.apply(_same_bits), index=False))[0])
    if groups is not None:
        names = np.asarray(groups)
        if names.shape != (n,) or pd.isna(names).any():
            raise InvalidValueError(f"groups must name a group for each of the {n} rows, got shape {names.shape}")
        ties.append(pd.factorize(names)[0])
    if not ties:
        return np.arange(n)
    first, second = ties[0], ties[-1]
    size = int(first.max()) + int(second.max()) + 2
    links = coo_array((np.ones(n, dtype=bool), (first, second + int(first.max()) + 1)), shape=(size, size))
    joined = connected_components(links, directed=False)[1][first]
    return np.unique(joined, return_inverse=True)[1].astype(np.int64)


def _same_bits(column: Any) -> Any:
    """Give equal numbers equal bits for the hash: one zero and one NaN."""
    return column.where(column.notna(), np.nan) + 0.0 if pd.api.types.is_float_dtype(column) else column


def _assign(count: Indices, shares: NDArray[np.float64], rng: np.random.Generator) -> Indices:
    """Choose the part of each unit from its count of each class."""
    order = rng.permutation(len(count))
    parts = _place(count, order, shares, rng, np.full(len(count), -1))
    if not _has_all_classes(count, parts, len(shares)):
        parts = _place(count, order, shares, rng, _place_one_of_each_class(count, order, shares))
    if not _has_all_classes(count, parts, len(shares)):
        raise InvalidValueError(
            f"groups or duplicates tie the classes together so that {len(shares)} parts cannot all have every class; "
            "use fewer parts"
        )
    return parts


def _place(
    count: Indices, order: Indices, shares: NDArray[np.float64], rng: np.random.Generator, parts: Indices
) -> Indices:
    """Choose the part of each unit that does not have one yet (-1)."""
    target = shares[:, None] * count.sum(0)
    parts = parts.copy()
    filled = np.zeros_like(target)
    np.add.at(filled, parts[parts >= 0], count[parts >= 0])
    size = count.sum(1)
    large = order[(size[order] > 1) & (parts[order] < 0)]
    for unit in large[np.argsort(-size[large], kind="stable")]:
        # The unit's contribution to the sum over parts and classes of filled^2 / target, with equal weight for all
        # classes: the Sainte-Lague rule, which fills parts in proportion to their size.
        added = count[unit]
        part = int((added * (2 * filled + added) / target / target.sum(0)).sum(1).argmin())
        parts[unit] = part
        filled[part] += added
    for label in range(count.shape[1]):
        single = order[(size[order] == 1) & (parts[order] < 0) & (count[order, label] > 0)]
        quota = _round(np.maximum(target[:, label] - filled[:, label], 0), len(single), rng)
        parts[single] = np.repeat(np.arange(len(shares)), quota)
    return parts


def _place_one_of_each_class(count: Indices, order: Indices, shares: NDArray[np.float64]) -> Indices:
    """Put one unit of every class in every part that lacks it, rarest class first, small units in small parts."""
    parts = np.full(len(count), -1)
    size = count.sum(1)
    for label in np.argsort((count > 0).sum(0), kind="stable"):
        with_class = {int(part) for part in parts[(count[:, label] > 0) & (parts >= 0)]}
        lacking = [part for part in np.argsort(shares, kind="stable") if part not in with_class]
        free = order[(count[order, label] > 0) & (parts[order] < 0)]
        free = free[np.argsort(size[free], kind="stable")]
        for unit, part in zip(free, lacking, strict=False):
            parts[unit] = part
    return parts


def _round(ideal: NDArray[np.float64], total: int, rng: np.random.Generator) -> Indices:
    """Round ``ideal`` to integers with the sum ``total`` by the largest remainders; ties are broken at random."""
    ideal = ideal * total / ideal.sum() if ideal.sum() > 0 else np.full(len(ideal), total / len(ideal))
    rounded = np.floor(ideal + 1e-9).astype(np.int64)
    shuffled = rng.permutation(len(ideal))
    remainder = np.round(ideal - rounded, 9)
    largest_first = shuffled[np.argsort(-remainder[shuffled], kind="stable")]
    rounded[largest_first[: total - int(rounded.sum())]] += 1
    return rounded


def _has_all_classes(count: Indices, parts: Indices, k: int) -> bool:
    class_counts = np.zeros((k, count.shape[1]), dtype=np.int64)
    np.add.at(class_counts, parts, count)
    return bool((class_counts > 0).all())
