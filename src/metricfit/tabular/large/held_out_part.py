"""Folds of a large table: one held-out part by default, and samples of the rows.

Where a row goes depends on a hash of its columns, so that copies of a row stay together without being sorted.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError
from metricfit.tabular.families.family import Integers
from metricfit.tabular.large.compact_rows import CompactFeatures, mix

log = logging.getLogger("metricfit.tabular")

#: Rows that are held out, their largest share, and the rows of the rarest class among them if the share allows it.
HELD_OUT_ROWS, LARGEST_SHARE, HELD_OUT_OF_RAREST = 400_000, 0.2, 2000


def split_large_table(
    features: CompactFeatures, y: Integers, groups: NDArray[Any] | None, number: int | None, seed: int
) -> list[tuple[Integers, Integers]]:
    """Split the rows of a large table, stratified by class.

    Args:
        features: The columns.
        y: Class numbers.
        groups: One group per row, or None; rows of a group stay together, and without groups copies of a row do.
        number: Number of folds; None for one held-out part of at most 400,000 rows.
        seed: Seed of the split.

    Returns:
        For each fold, the rows to train on and the rows that are held out.

    Raises:
        InvalidValueError: The groups do not allow a split in which all parts have every class.
    """
    counts = np.bincount(y)
    hashes = features.hashes() if groups is None else pd.util.hash_array(np.asarray(groups))
    keys = mix(hashes ^ mix(np.array([seed], dtype=np.uint64)))
    if number is None:
        wanted = max(HELD_OUT_ROWS / len(y), HELD_OUT_OF_RAREST / counts[counts > 0].min())
        share = min(LARGEST_SHARE, wanted)
        shares = [share, 1 - share]
    else:
        shares = [1 / number] * number
    strata = y if groups is None else np.zeros_like(y)
    part = _parts_by_key(keys, strata, shares)
    held_out = [np.flatnonzero(part == place) for place in range(1 if number is None else number)]
    for rows in held_out:
        of_class = np.bincount(y[rows], minlength=len(counts))
        none_held_out = (of_class == 0) & (counts > 1) & (number is None)
        if (none_held_out | ((of_class == counts) & (counts > 0))).any():
            raise InvalidValueError(
                "the groups cannot be split so that all parts have every class: a class is in too few groups"
            )
    log.info(
        "%s of %s rows are held out%s",
        f"{len(held_out[0]):,}",
        f"{len(y):,}",
        "" if number is None else f" by each of {number} folds",
    )
    return [(np.flatnonzero(part != place), rows) for place, rows in enumerate(held_out)]


def stratified_sample(index: Integers, y: Integers, rows: int, seed: int) -> Integers:
    """Draw at most this many of the rows, in which each class has its share and at least two rows.

    Args:
        index: The rows to draw from.
        y: The class numbers of all rows.
        rows: Number of rows to draw.
        seed: Seed of the sample.

    Returns:
        Row numbers, in order.
    """
    if len(index) <= rows:
        return index
    generator = np.random.default_rng(seed)
    labels = y[index]
    drawn = []
    for label in np.unique(labels):
        of_class = index[labels == label]
        number = min(len(of_class), max(2, round(rows * len(of_class) / len(index))))
        drawn.append(generator.choice(of_class, number, replace=False, shuffle=False))
    return np.sort(np.concatenate(drawn))


def _parts_by_key(keys: NDArray[np.uint64], strata: Integers, shares: list[float]) -> NDArray[np.int8]:
    """Return the part of each row, so that each stratum has its share in each part; equal keys are in one part."""
    part = np.zeros(len(keys), dtype=np.int8)
    ends = np.cumsum(shares)[:-1]
    for stratum in np.unique(strata):
        of_stratum = strata == stratum
        own = keys[of_stratum]
        ranks = np.clip(np.round(ends * len(own)).astype(np.int64), 1, max(1, len(own) - 1))
        cuts = np.partition(own, np.minimum(ranks, len(own) - 1))[np.minimum(ranks, len(own) - 1)]
        # The only row of a class is learned from.
        part[of_stratum] = np.searchsorted(cuts, own, side="right") if len(own) > 1 else len(shares) - 1
    return part
