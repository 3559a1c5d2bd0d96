"""The folds of a table: every family is fitted on the same ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import TimeSeriesSplit

from metricfit.data import folds
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.tabular.families.family import Integers, TrainingRows

log = logging.getLogger("metricfit.tabular")

Splits = list[tuple[Integers, Integers]]

#: Number of folds up to these numbers of rows; larger tables have more to learn from and cost more per fold.
FOLDS_BY_ROWS = ((20_000, 8), (100_000, 5))
FOLDS_OF_LARGE_TABLES = 3

FORWARD = "forward"


def choose_folds(
    rows: TrainingRows, members: int | None, cv: Any, groups: NDArray[Any] | None, table: Any, seed: int
) -> Splits:
    """Split the rows into folds, so that every row has a model that did not train on it.

    Args:
        rows: The rows.
        members: Number of folds; None for 8, or fewer for tables of more than 20,000 rows.
        cv: None for stratified folds, "forward" for rows in the order of time, or a splitter of scikit-learn.
        groups: One group per row, or None.
        table: The table as the user passed it, for the splitter.
        seed: Seed of the stratified folds.

    Returns:
        For each fold, the rows to train on and the rows that are held out.

    Raises:
        InvalidValueError: The rows cannot be split so that every fold can be learned from.
    """
    number = _default_number(len(rows)) if members is None else members
    if cv is None:
        return stratified_folds(rows, number, groups, seed)
    if isinstance(cv, str):
        if cv != FORWARD:
            raise InvalidValueError(f"cv is None, 'forward' or a splitter of scikit-learn; got {quote(cv)}")
        cv = TimeSeriesSplit(max(2, min(number, len(rows) - 1)))
    return _folds_of_splitter(rows, cv, groups, table)


def stratified_folds(rows: TrainingRows, number: int, groups: NDArray[Any] | None, seed: int) -> Splits:
    """Split the rows into this many folds, or as many as the rarest class allows.

    Copies of a row and rows of one group stay together. If so few rows differ that two folds cannot both have every
    class, copies are distributed over the folds. The only row of a class is learned from in every fold.
    """
    counts = np.bincount(rows.y)
    alone = counts[rows.y] < 2
    fewest = int(counts[counts > 1].min()) if int((counts > 1).sum()) > 1 else 0
    if not fewest:
        raise InvalidValueError(
            f"{int((counts < 2).sum())} of {len(counts)} classes have a single row; at least two classes need two "
            "rows, one to learn from and one to validate on"
        )
    splittable, single = np.flatnonzero(~alone), np.flatnonzero(alone)
    x, y = rows.x[splittable], rows.y[splittable]
    part = None if groups is None else groups[splittable]
    for together in (True, False):
        for folds_tried in range(min(number, fewest), 1, -1):
            try:
                splits = folds(x, y, folds_tried, seed=seed, groups=part, keep_duplicates_together=together)
            except ValueError as error:
                reason = error
                continue
            if folds_tried < number:
                log.info("%d folds in place of %d: the rarest class has %d rows", folds_tried, number, fewest)
            if not together:
                log.warning("copies of rows are distributed over folds: too few rows differ to keep them together")
            return [(np.concatenate([splittable[rest], single]), splittable[fold]) for rest, fold in splits]
    raise InvalidValueError(f"the rows cannot be split into two folds that both have every class: {reason}")


def _default_number(rows: int) -> int:
    return next((number for limit, number in FOLDS_BY_ROWS if rows <= limit), FOLDS_OF_LARGE_TABLES)


def _folds_of_splitter(rows: TrainingRows, cv: Any, groups: NDArray[Any] | None, table: Any) -> Splits:
    """Return the folds of a splitter whose training rows have every class; the others are dropped with a warning."""
    if hasattr(cv, "split"):
        pairs: Iterable[Any] = cv.split(table, rows.y, groups)
    elif isinstance(cv, Iterable):
        pairs = cv
    else:
        raise InvalidTypeError(f"cv is None, 'forward' or a splitter of scikit-learn; got {quote(cv)}")
    splits, dropped = [], 0
    for pair in pairs:
        train, held_out = (np.asarray(part) for part in pair)
        train, held_out = (np.flatnonzero(part) if part.dtype == bool else part for part in (train, held_out))
        if not len(held_out) or len(np.unique(rows.y[train])) < rows.classes:
            dropped += 1
            continue
        splits.append((train.astype(np.int64), held_out.astype(np.int64)))
    if dropped:
        log.warning("%d folds are left out: their training rows lack a class, or nothing is held out", dropped)
    held_out_rows = np.concatenate([held_out for _, held_out in splits]) if splits else np.zeros(0, dtype=np.int64)
    if len(np.unique(rows.y[held_out_rows])) < rows.classes:
        raise InvalidValueError(
            f"the folds of cv={quote(cv)} hold out no row of some class; use fewer folds, or order the rows so that "
            "every class is in the later ones"
        )
    return splits
