"""Permutation importance: how much the metric loses when a column is shuffled.

The loss of one shuffle is a mean over rows i of a function of the row and of the row k that it gets the value from. Its
variance has three parts: the rows i, the rows k, and their pairing. Resampling the pairs (i, k) of one shuffle has all
three. The mean over several shuffles reduces the third part alone. The interval is made from resamples of single
shuffles, so that it has the first two in full, and is slightly too wide for the third.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from metricfit.core.arrays import Floats, Integers
from metricfit.errors import InvalidValueError, quote
from metricfit.tabular.checks import check_positive, check_whole
from metricfit.tabular.insight.judged_rows import JudgedRows, column_names, take_rows
from metricfit.tabular.insight.value_intervals import draw_multiplicities, weighted_values
from metricfit.tabular.notebook import items, table

MIN_ROWS = 10
RESAMPLES = 200  # of the rows, for each shuffle
SHOWN = 12
LEVEL = 0.95


@dataclass(frozen=True, repr=False)
class Importance:
    """What each column is worth to a model, in units of its metric.

    Attributes:
        table: One row per column of the table, the most important first: ``column``, ``importance`` (how much worse the
            metric is if the column is shuffled; below 0 if it is better), and ``low`` and ``high``, the ends of a 95 %
            interval for new rows and other shuffles.
        metric: The name of the metric.
        value: Its value on the rows as they are.
        rows: The number of rows that were decided.
        repeats: The number of shuffles per column.
        notes: What is to know about it: a sample, columns for which there was no time, rows out of fold.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(400, 3))
        >>> y = X[:, 1] > 1
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X[:200], y[:200])
        >>> result = model.importance(X[200:], y[200:], random_state=0)
        >>> result.table["column"][0], bool(result.table["low"][0] > 0.2)
        ('x1', True)
    """

    table: pd.DataFrame
    metric: str
    value: float
    rows: int
    repeats: int
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shuffles = f"{self.repeats} shuffle{'s' * (self.repeats != 1)} per column"
        head = f"Importance for {self.metric}, which is {self.value:.4g} on {self.rows:,} rows; {shuffles}"
        shown = self.table.head(SHOWN).to_string(index=False, float_format=lambda number: f"{number:.4f}")
        rest = len(self.table) - SHOWN
        more = [f"... and {rest} more in .table"] if rest > 0 else []
        return "\n".join([head, shown, *more, *self.notes])

    def _repr_html_(self) -> str:
        return f"<p>{self.metric} is {self.value:.4g} on {self.rows:,} rows.</p>{table(self.table)}{items(self.notes)}"


def measure_importance(
    rows: JudgedRows,
    *,
    repeats: int = 5,
    max_rows: int | None = None,
    max_seconds: float | None = None,
    random_state: int = 0,
) -> Importance:
    """Shuffle each column several times, and measure how much worse the decisions are.

    Args:
        rows: The rows.
        repeats: Number of shuffles per column.
        max_rows: The number of rows to decide; more rows are sampled by class, and weighted by the share of their
            class. Shuffled values come from all rows.
        max_seconds: No shuffle begins after this time. All columns are shuffled once before any is shuffled again.
        random_state: Seed of the sample, the shuffles and the resamples.

    Returns:
        The importance of each column.

    Raises:
        InvalidValueError: There are too few rows, one class alone, or no columns.
        InvalidTypeError: A setting is not a number.
    """
    check_whole("repeats", repeats, 1, "shuffles")
    if max_rows is not None:
        check_whole("max_rows", max_rows, MIN_ROWS, "rows")
    if max_seconds is not None:
        check_positive("max_seconds", max_seconds, "a time in seconds")
    names = column_names(rows.model, rows.table)
    _check_rows(rows)
    deadline = np.inf if max_seconds is None else time.monotonic() + max_seconds
    rng = np.random.default_rng(random_state)
    index, weight = _sample(rows, max_rows, rng)
    judged = rows if len(index) == len(rows) else rows.take(index)
    sign = -1.0 if rows.metric.minimize else 1.0
    known = rows.metric, rows.average, rows.classes, judged.y

    def values(decided: Integers, weights: Floats) -> Floats:
        return sign * weighted_values(*known, decided, weights, judged.costs)

    decided_before = judged.decide()
    value = sign * float(values(decided_before, weight[None])[0])
    table_of, deviations = np.full((repeats, len(names)), np.nan), np.full((len(names), repeats, RESAMPLES), np.nan)
    for repeat in range(repeats):
        source = take_rows(rows.table, rng.permutation(len(rows))[index])
        drawn = draw_multiplicities(
            None if rows.costs is not None else judged.y, judged.groups, len(judged), RESAMPLES, rng
        )
        weights = np.concatenate([weight[None], drawn * weight])
        before = values(decided_before, weights)
        for place in range(len(names)):
            if time.monotonic() > deadline:
                break
            decided = judged.decide(_with_column(judged.table, place, source))
            losses = before - values(decided, weights)
            table_of[repeat, place], deviations[place, repeat] = losses[0], losses[1:] - losses[0]
    return _result(rows, names, table_of, deviations, value, len(judged), max_seconds)


def _check_rows(rows: JudgedRows) -> None:
    if len(rows) < MIN_ROWS:
        raise InvalidValueError(f"importance needs at least {MIN_ROWS} rows, better some hundreds; got {len(rows)}")
    present = np.unique(rows.y)
    if len(present) < 2:
        names = rows.model.chosen_.names.in_order
        raise InvalidValueError(
            f"all rows are {quote(names[present[0]].item())}: importance for {rows.metric.name} needs rows of at least "
            "two classes"
        )


def _sample(rows: JudgedRows, max_rows: int | None, rng: np.random.Generator) -> tuple[Integers, Floats]:
    """Return the rows to decide, equally many of each class as far as there are, and their weights."""
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    if max_rows is None or len(rows) <= max_rows:
        return np.arange(len(rows)), weight
    members = [np.flatnonzero(rows.y == label) for label in np.unique(rows.y)]
    left, chosen = max_rows, []
    for number, part in enumerate(sorted(members, key=len)):
        size = min(len(part), max(1, left // (len(members) - number)))
        chosen.append((rng.choice(part, size, replace=False), part))
        left -= size
    index = np.sort(np.concatenate([sample for sample, _ in chosen]))
    scale = np.zeros(len(rows))
    for sample, part in chosen:
        scale[sample] = weight[part].sum() / weight[sample].sum()
    return index, (weight * scale)[index]


def _with_column(table: Any, place: int, source: Any) -> Any:
    """Return a table with the column of another table with as many rows."""
    if isinstance(table, pd.DataFrame):
        changed = table.copy(deep=False)
        changed.isetitem(place, source.iloc[:, place].array)
        return changed
    if issparse(table):
        changed = table.tolil(copy=True)
        changed[:, place] = source[:, [place]]
        return changed.tocsr()
    changed = table.copy()
    changed[:, place] = source[:, place]
    return changed


def _result(
    rows: JudgedRows,
    names: list[Any],
    losses: NDArray[np.float64],
    deviations: NDArray[np.float64],
    value: float,
    decided: int,
    max_seconds: float | None,
) -> Importance:
    done = np.isfinite(losses)
    measured = np.flatnonzero(done[0])
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    table = pd.DataFrame({"column": pd.Series([names[place] for place in measured], dtype=object)})
    table["importance"] = [losses[done[:, place], place].mean() for place in measured]
    spread = np.array([np.quantile(deviations[place][done[:, place]], ends) for place in measured]).reshape(-1, 2)
    table["low"], table["high"] = (table["importance"] + spread[:, end] for end in (0, 1))
    table = table.sort_values("importance", ascending=False, kind="stable", ignore_index=True)
    repeats = int(done[:, measured].all(1).sum()) if len(measured) == len(names) else 1
    notes = []
    if rows.folds is not None:
        notes.append("Each row was decided by models that were not trained on it.")
    if decided < len(rows):
        notes.append(
            f"A sample of {decided:,} of {len(rows):,} rows was decided, weighted by the shares of the classes."
        )
    if repeats < len(losses):
        notes.append(f"After {max_seconds:g} s there were {repeats} of {len(losses)} shuffles per column.")
    if len(measured) < len(names):
        notes.append(f"There was no time for {len(names) - len(measured)} of {len(names)} columns.")
    metric = rows.metric
    label = metric.name if rows.classes == 2 or metric.whole_matrix else f"{rows.average} {metric.name}"
    return Importance(table, label, value, decided, repeats, tuple(notes))
