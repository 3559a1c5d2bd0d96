"""The folds of a table: every family is fitted on the same ones."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import TimeSeriesSplit

from metricfit.core.arrays import Integers
from metricfit.data import folds
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.tabular.checks import check_whole
from metricfit.tabular.families.family import TrainingRows

log = logging.getLogger("metricfit.tabular")

Splits = list[tuple[Integers, Integers]]

#: Number of folds up to these numbers of rows; larger tables have more to learn from and cost more per fold.
FOLDS_BY_ROWS = ((20_000, 8), (100_000, 5))
FOLDS_OF_LARGE_TABLES = 3

FORWARD = "forward"
KINDS_OF_CV = "None, 'forward', a number of folds, a splitter of scikit-learn or a list of (train, test) rows"


def choose_folds(
    rows: TrainingRows, members: int | None, cv: Any, groups: NDArray[Any] | None, table: Any, seed: int
) -> Splits:
    """Split the rows into folds, so that every row has a model that did not train on it.

    Args:
        rows: The rows.
        members: Number of folds; None for 8, or fewer for tables of more than 20,000 rows.
        cv: None or a number for stratified folds, "forward" for rows in the order of time, a splitter of scikit-learn,
            or a list of pairs of training rows and held-out rows.
        groups: One group per row, or None.
        table: The table as the user passed it, for the splitter.
        seed: Seed of the stratified folds.

    Returns:
        For each fold, the rows to train on and the rows that are held out.

    Raises:
        InvalidValueError: The rows cannot be split so that every fold can be learned from, or the splitter holds out
            a row more than once.
        InvalidTypeError: ``cv`` is something else.
    """
    if isinstance(cv, Integral):
        if members is not None:
            raise InvalidValueError(f"members={members} and cv={cv} are both numbers of folds; give one of them")
        check_whole("cv", cv, 2, "folds")
        members, cv = int(cv), None
    number = _default_number(len(rows)) if members is None else members
    if cv is None:
        return stratified_folds(rows, number, groups, seed)
    if isinstance(cv, str):
        if cv != FORWARD:
            raise InvalidValueError(f"cv is {KINDS_OF_CV}; got {quote(cv)}")
        cv = _forward_splitter(rows, max(2, min(number, len(rows) - 1)))
    return _folds_of_splitter(rows, cv, groups, table)


def _forward_splitter(rows: TrainingRows, number: int) -> TimeSeriesSplit:
    """Judge the later half of the rows, so that every fold trains on at least half of them.

    Folds over all rows would begin with models of a ninth of the table. These prefer simple models, and the model
    that predicts new rows has many more rows. If the later half lacks a class, all rows but the first fold are judged.
    """
    held_out = len(rows) // (2 * number)
    later = rows.y[len(rows) - number * held_out :]
    if not held_out or len(np.unique(later)) < rows.classes:
        return TimeSeriesSplit(number)
    return TimeSeriesSplit(number, test_size=held_out)


def is_forward(cv: Any) -> bool:
    """Return whether the folds are in the order of time, so that the model of the last fold predicts new rows."""
    return isinstance(cv, TimeSeriesSplit) or (isinstance(cv, str) and cv == FORWARD)


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
    if isinstance(cv, Iterator):
        raise InvalidTypeError("cv is a generator, which can be used only once; pass cv=list(...)")
    if isinstance(cv, type) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise InvalidTypeError(f"cv is {KINDS_OF_CV}; got {quote(cv)}")
    pairs: Iterable[Any] = cv.split(table, rows.y, groups) if hasattr(cv, "split") else cv
    splits, dropped = [], 0
    times_held_out = np.zeros(len(rows), dtype=np.int64)
    for pair in pairs:
        train, held_out = _row_numbers(pair, len(rows))
        times_held_out[held_out] += 1
        if not len(held_out) or len(np.unique(rows.y[train])) < rows.classes:
            dropped += 1
            continue
        splits.append((train, held_out))
    if dropped:
        log.warning("%d folds are left out: their training rows lack a class, or nothing is held out", dropped)
    repeated = int((times_held_out > 1).sum())
    if repeated:
        raise InvalidValueError(
            f"{repeated} of {len(rows)} rows are held out more than once by cv={quote(cv)}, and every row is judged by "
            "one model; use a splitter without repeats, such as StratifiedKFold"
        )
    held_out_rows = np.concatenate([held_out for _, held_out in splits]) if splits else np.zeros(0, dtype=np.int64)
    if len(np.unique(rows.y[held_out_rows])) < rows.classes:
        raise InvalidValueError(
            f"the folds of cv={quote(cv)} hold out no row of some class; use fewer folds, or order the rows so that "
            "every class is in the later ones"
        )
    return splits


def _row_numbers(pair: Any, rows: int) -> tuple[Integers, Integers]:
    """Return the training rows and the held-out rows of one fold; masks become row numbers.

    Raises:
        InvalidTypeError: It is no pair of row numbers or masks.
        InvalidValueError: There are no such rows, or some are in both.
    """
    try:
        train, held_out = (np.asarray(part) for part in pair)
    except (TypeError, ValueError):
        raise InvalidTypeError(
            f"a fold of cv is a pair of training rows and held-out rows; got {quote(pair)}"
        ) from None
    parts = [np.flatnonzero(part) if part.dtype == bool else part for part in (train, held_out)]
    for part in parts:
        if part.ndim != 1 or (len(part) and part.dtype.kind not in "iu"):
            raise InvalidTypeError(f"the rows of a fold are whole numbers or a mask; got an array of {part.dtype}")
        if len(part) and not 0 <= part.min() <= part.max() < rows:
            raise InvalidValueError(f"cv names row {int(part.max())} or row {int(part.min())}; there are {rows} rows")
    both = np.intersect1d(parts[0], parts[1])
    if len(both):
        raise InvalidValueError(f"{len(both)} rows of a fold of cv are trained on and held out, such as {int(both[0])}")
    return parts[0].astype(np.int64), parts[1].astype(np.int64)
