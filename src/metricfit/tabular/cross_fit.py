"""Which rows judge what was fitted to held-out logits: calibrations and weights must not be chosen on rows they judge.

Every part of the held-out rows gets its calibration and its weights from the other parts. Chosen on all held-out rows,
ensembles for labels that are pure noise had an AUROC of 0.54 and a cross-entropy below the class shares'.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Integers

#: Number of parts of the held-out rows, and of those for which a choice takes long.
PARTS, FEW_PARTS = 10, 4
#: With fewer folds, parts are drawn from the rows of all folds: a fold or two say too little about the scale of others.
FEWEST_FOLDS = 4


def judging_parts(
    folds: Integers, y: Integers, groups: NDArray[np.generic] | None = None, most: int = PARTS
) -> Integers:
    """Divide held-out rows into parts: the folds, or several of them together, or with few folds parts of their rows.

    Args:
        folds: The fold that held out each row.
        y: The class number of each row.
        groups: The group of each row, or None; a group stays in one part.
        most: The largest number of parts.

    Returns:
        The part of each row, numbered from 0 on.

    Example:
        >>> judging_parts(np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.zeros(8, dtype=np.int64), most=2)
        array([0, 0, 0, 0, 1, 1, 1, 1])
        >>> judging_parts(np.zeros(6, dtype=np.int64), np.array([0, 1, 0, 1, 0, 1]), most=2)
        array([0, 1, 1, 0, 0, 1])
    """
    number, fold = np.unique(folds, return_inverse=True)
    if len(number) >= FEWEST_FOLDS:
        return np.asarray(fold * min(most, len(number)) // len(number))
    unit = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    stratum = np.empty(int(unit.max(initial=-1)) + 1, dtype=np.int64)
    for label in np.argsort(-np.bincount(y), kind="stable"):  # a group counts for its rarest class
        stratum[unit[y == label]] = label
    part = np.empty_like(stratum)
    part[np.argsort(stratum, kind="stable")] = np.arange(len(stratum)) % min(most, FEWEST_FOLDS)
    return np.asarray(part[unit])


def judges_of(folds: Integers, parts: Integers) -> tuple[Integers, list[tuple[int, int]]]:
    """Number the pairs of a fold, whose model scores rows, and a part, whose calibration is of other rows.

    Returns:
        The number of the pair of each row, and the pairs.

    Example:
        >>> judges_of(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
        (array([0, 1, 2, 3]), [(0, 0), (0, 1), (1, 0), (1, 1)])
    """
    pairs, number = np.unique(np.stack([folds, parts], axis=1), axis=0, return_inverse=True)
    return number.reshape(-1), [(fold, part) for fold, part in pairs.tolist()]


def rows_that_choose(parts: Integers, y: Integers, rows: Integers | None = None) -> list[NDArray[np.bool_]]:
    """Return for each part which entries choose what judges it: entries of other parts and of other rows.

    Args:
        parts: The part of each entry.
        y: Class numbers, or for several labels 0 and 1 ``(n, c)``.
        rows: The row that each entry belongs to, if some rows are held out by several folds.

    Returns:
        One mask per part. Where the other parts lack a class, it is all entries.

    Example:
        >>> rows_that_choose(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
        [array([False, False,  True,  True]), array([ True,  True, False, False])]
    """
    classes, masks = len(np.unique(y)), []
    for part in range(int(parts.max(initial=-1)) + 1):
        judged = parts == part
        others = ~judged if rows is None else ~np.isin(rows, rows[judged])
        masks.append(others if len(np.unique(y[others])) == classes else np.ones_like(judged))
    return masks
