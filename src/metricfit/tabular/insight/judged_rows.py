"""Labelled rows on which a fitted model is judged, what it decided about them, and the rows that it gets most wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from metricfit.core.arrays import Floats, Integers
from metricfit.core.types import ScalarAverage
from metricfit.data.reading import ParquetRows, ParquetTable
from metricfit.decide.calibration import log_softmax, sigmoid
from metricfit.decide.costs import RowCosts
from metricfit.decide.held_out import HeldOut
from metricfit.decide.refer import labels_with_referred
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics.metric import Metric, get_metric
from metricfit.tabular.checks import (
    average_of_classes,
    check_whole,
    checked_labels,
    checked_weights,
    columns_of_fit,
    to_pandas,
    with_rows,
)
from metricfit.tabular.large_rows import stratified_sample


def held_out_rows(model: Any) -> HeldOut:
    """Return the held-out rows with the class balance that the model decides for."""
    rows: HeldOut = model.chosen_.rows
    return rows


def held_out_scores(model: Any) -> NDArray[Any]:
    """Return the probability of the positive class of two for each held-out row."""
    return sigmoid(held_out_rows(model).logits.reshape(-1))


def held_out_costs(model: Any) -> RowCosts | None:
    """Return the costs of each held-out row; None unless the metric takes costs from columns."""
    costs: RowCosts | None = model.chosen_.held_out_costs(get_metric(model.metric))
    return costs


def held_out_decisions(model: Any) -> NDArray[Any]:
    """Return the class number that is decided for each held-out row, -1 for rows that are referred to a person.

    Args:
        model: The fitted model of two or several classes; of two, 1 is the positive class.
    """
    decided: Integers = model.chosen_.decide(held_out_rows(model).logits, held_out_costs(model))
    return decided


#: Rows on which the logits of the folds' models are compared with the logits of ``fit``.
COMPARED = 64


@dataclass(frozen=True)
class JudgedRows:
    """Labelled rows, and how a fitted model decides about them.

    Attributes:
        model: The fitted model.
        table: The rows: a DataFrame, an array, a sparse matrix, rows of Parquet files, or one entry per row.
        y: Class numbers; of two classes, 1 is the positive one.
        weight: One weight per row, or None.
        groups: One group per row, or None; resamples draw whole groups.
        numbers: The number of each row in the table that was passed.
        folds: The fold whose models did not train on the row; None if the whole model decides.
        scorers: The models of the folds.
        known_logits: The logits of the rows out of fold, which are known from ``fit``.
        costs: What wrong decisions cost, if the metric takes costs from columns.
    """

    model: Any
    table: Any
    y: Integers
    weight: NDArray[np.float64] | None
    groups: NDArray[Any] | None
    numbers: Integers
    folds: Integers | None
    costs: RowCosts | None
    scorers: Any = None
    known_logits: Floats | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def metric(self) -> Metric:
        """The metric of the model."""
        return get_metric(self.model.metric)

    @property
    def average(self) -> ScalarAverage:
        """Its average over several classes."""
        return average_of_classes(self.model.average)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.model.classes_)

    def take(self, index: Integers) -> JudgedRows:
        """Return these rows."""
        parts = (self.weight, self.groups, self.folds, self.known_logits)
        weight, groups, folds, logits = (None if part is None else part[index] for part in cast(tuple[Any, ...], parts))
        costs = None if self.costs is None else self.costs.take(index)
        table, y, numbers = take_rows(self.table, index), self.y[index], self.numbers[index]
        return JudgedRows(self.model, table, y, weight, groups, numbers, folds, costs, self.scorers, logits)

    def logits(self, table: Any = None) -> Floats:
        """Return calibrated logits for the current class balance, of these rows or of changed ones in their place."""
        if table is None and self.known_logits is not None:
            return self.known_logits
        rows = self.table if table is None else table
        if self.folds is None:
            return self.model._logits(rows)
        logits: Floats = self.model._logits_out_of_fold(rows, self.folds, self.scorers)
        return logits + self.model.shift_

    def decide(self, table: Any = None) -> Integers:
        """Return class numbers, -1 for rows that are referred, of these rows or of changed ones in their place."""
        logits, costs = self.logits(table), self.costs
        if costs is not None and table is not None:  # a model that does not know a column does not know its costs
            costs = self.model.chosen_.costs_of(self.metric, table, len(self))
        decided: Integers = self.model.chosen_.decide(logits, costs)
        return decided


def judged_rows(model: Any, X: Any, y: Any, sample_weight: Any = None, *, out_of_fold: bool = False) -> JudgedRows:
    """Check the rows that a model is judged on.

    Args:
        model: The fitted model.
        X: Rows with the columns of ``fit``.
        y: Their labels.
        sample_weight: One weight per row, or None.
        out_of_fold: Whether ``X`` and ``y`` are the rows of ``fit``, and each row is decided by models of the folds
            that did not train on it.

    Returns:
        The rows; out of fold those that some fold held out, with the weights and the groups of ``fit``.

    Raises:
        NotFittedError: The model is not fitted.
        InvalidValueError: Columns are missing, labels are unknown, or the rows are not the rows of ``fit``.
        InvalidTypeError: The model has several labels per row.
    """
    check_is_fitted(model, "chosen_")
    chosen = model.chosen_
    if chosen.names.has_labels:
        raise InvalidTypeError("the model decides several labels per row: fit one model per label to look into it")
    table = plain_table(X)
    columns_of_fit(model, table)  # names the columns that are missing
    numbers = chosen.names.checked_numbers_of(checked_labels(model, y))
    check_consistent_length(table, numbers)
    if out_of_fold:
        if sample_weight is not None:
            raise InvalidValueError("out of fold the weights of fit are used: leave sample_weight out")
        return _rows_of_fit(model, table, numbers)
    weight = checked_weights(sample_weight, numbers)
    costs = chosen.costs_of(get_metric(model.metric), table, len(numbers))
    rows = JudgedRows(model, table, numbers, weight, None, np.arange(len(numbers)), None, costs)
    return rows


def plain_table(X: Any) -> Any:
    """Return a pandas DataFrame, an array, a sparse matrix or a list as it can be indexed by rows and columns."""
    X = with_rows(X)
    if hasattr(X, "to_pandas"):
        X = to_pandas(X)
    if isinstance(X, pd.DataFrame):
        return X
    if issparse(X):
        return X.tocsr()
    return X if hasattr(X, "dtype") else np.asarray(X)


def take_rows(table: Any, index: Integers) -> Any:
    """Return rows of a table; rows of files are read."""
    return table.take(index) if isinstance(table, ParquetRows) else _safe_indexing(table, index)


def column_names(model: Any, table: Any) -> list[Any]:
    """Return the names of the columns; x0, x1 and so on where they have none."""
    if isinstance(table, pd.DataFrame):
        return list(table.columns)
    if table.ndim != 2:
        raise InvalidValueError(
            f"X has no columns: its shape is {table.shape}. Importance is measured for columns; make a table of "
            "numbers or texts first"
        )
    return list(getattr(model, "feature_names_in_", [f"x{place}" for place in range(table.shape[1])]))


def _rows_of_fit(model: Any, table: Any, numbers: Integers) -> JudgedRows:
    """Return the held-out rows of the table that ``fit`` got."""
    places = model.chosen_.basis.places
    if places is None:
        raise InvalidValueError(
            "out_of_fold=True needs the models of the folds, which are not saved: use the model that fit returned, or "
            "pass rows that the model was not trained on"
        )
    if len(numbers) != places.total:
        raise InvalidValueError(f"out_of_fold=True is for the {places.total:,} rows of fit; X has {len(numbers):,}")
    in_order = np.array_equal(places.rows, np.arange(places.total))
    rows = _held_out(model, table if in_order else take_rows(table, places.rows))
    if not np.array_equal(numbers[places.rows], rows.y) or not _has_logits_of_fit(rows):
        raise InvalidValueError("out_of_fold=True is for the rows of fit in their order, and these are others")
    return rows


def _held_out(model: Any, table: Any) -> JudgedRows:
    """Return the held-out rows, which the table holds in their order, with the logits of ``fit``."""
    held_out, basis, costs = held_out_rows(model), model.chosen_.basis, held_out_costs(model)
    places = basis.places
    known = (held_out.weight, held_out.groups, places.rows, places.folds, costs, basis.scorers, held_out.logits)
    return JudgedRows(model, table, held_out.y, *known)


def _has_logits_of_fit(rows: JudgedRows) -> bool:
    """Whether the models of the folds give the logits that they gave in ``fit``, on some of the rows."""
    index = np.linspace(0, len(rows) - 1, min(COMPARED, len(rows))).astype(np.int64)
    part = rows.take(index)
    found = part.logits(part.table) - rows.model.shift_
    return bool(np.allclose(found, rows.model.held_out_.logits[index], rtol=1e-3, atol=1e-3))


#: Held-out rows that are read to measure the importance of columns.
SAMPLE_ROWS = 100_000


def judged_file_rows(model: Any, table: ParquetTable) -> JudgedRows:
    """Return all held-out rows of Parquet files, with the logits of ``fit``.

    Args:
        model: The fitted model, not a loaded one.
        table: The table that was passed to ``fit``.

    Raises:
        InvalidValueError: This is not the table of ``fit``, or the model was loaded.
    """
    places = model.chosen_.basis.places
    if places is None or places.total != len(table):
        raise InvalidValueError("the rows of files are judged by the model that was fitted on these files")
    return _held_out(model, table.rows(places.rows))


def read_sample(rows: JudgedRows) -> JudgedRows:
    """Read the columns of a sample of the rows, in which each class has its share."""
    drawn = stratified_sample(np.arange(len(rows)), rows.y, SAMPLE_ROWS, 0)
    sample = rows.take(drawn)
    return replace(sample, table=sample.table.reset_index(drop=True))


SHOWN = 12


@dataclass(frozen=True, repr=False)
class WorstRows:
    """The rows that a model gets most wrong, the worst first.

    Attributes:
        table: One line per row, with its label in the index of a DataFrame, or its number: ``truth``, ``decision``,
            ``probability`` (of the positive class; of the true class if there are several), ``cost`` for costs from
            columns, and then the columns of the user's table. A name that the user's table has too ends in "_".
        numbers: The number of each row, counted from 0.
        total: The number of rows among which they are the worst.
        wrong: How many of these were decided wrongly; referred rows are not decided.
        positive: The class whose probability is given; None for the true class of each row.
        judged: The number of columns of ``table`` that come before the user's columns.
        notes: What is to know about it.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(400, 3))
        >>> y = X[:, 1] > 1
        >>> y[399] = not y[399]  # a wrong label
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X[:200], y[:200])
        >>> model.worst(X[200:], y[200:], n=1).numbers
        array([199])
    """

    table: pd.DataFrame
    numbers: NDArray[np.int64]
    total: int
    wrong: int
    positive: Any = None
    judged: int = 3
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        head = f"The {len(self.table)} worst of {self.total:,} rows; {self.wrong:,} were decided wrongly"
        rest = len(self.table) - SHOWN
        more = [f"... and {rest} more in .table"] if rest > 0 else []
        return "\n".join([head, self.table.head(SHOWN).to_string(max_cols=10), *more, *self.notes])


def find_worst_rows(rows: JudgedRows, n: int = 20) -> WorstRows:
    """Find the rows whose calibrated probability is farthest from the truth, or with costs those that cost most.

    Args:
        rows: The rows.
        n: Number of rows to return, at most.

    Returns:
        The rows with their truth, decision and probability.

    Raises:
        InvalidTypeError: ``n`` is no whole number.
        InvalidValueError: ``n`` is below 1.
    """
    check_whole("n", n, 1, "rows to show")
    model, y = rows.model, rows.y
    logits = rows.logits()
    by_class = np.concatenate([np.zeros_like(logits), logits], axis=1) if rows.classes == 2 else logits
    log_probability = log_softmax(by_class)
    of_truth = log_probability[np.arange(len(y)), y]  # logarithms, because most wrong rows have tiny ones
    decided = model.chosen_.decide(logits, rows.costs)
    paid = None if rows.costs is None else rows.costs.of_decisions(decided, y)
    keys = [of_truth] if paid is None else [of_truth, -paid]
    order = np.lexsort(keys)[:n]
    names, shown = model.chosen_.names.in_order, log_probability[:, 1] if rows.classes == 2 else of_truth
    found = {
        "truth": names[rows.y[order]],
        "decision": labels_with_referred(decided[order], names, model.chosen_.refer_label),
        "probability": np.exp(shown[order]),
        **({} if paid is None else {"cost": paid[order]}),
    }
    values = _frame(model, take_rows(rows.table, order), rows.numbers[order])
    taken = set(values.columns)
    judged = pd.DataFrame({_free_name(name, taken): column for name, column in found.items()}, index=values.index)
    return WorstRows(
        pd.concat([judged, values], axis=1),
        rows.numbers[order],
        len(rows),
        int(((decided >= 0) & (decided != y)).sum()),
        model.pos_label_,
        judged.shape[1],
        () if rows.folds is None else ("Each row was decided by models that were not trained on it.",),
    )


def _frame(model: Any, part: Any, numbers: NDArray[np.int64]) -> pd.DataFrame:
    """Return rows as a DataFrame."""
    if isinstance(part, pd.DataFrame):
        return part
    values = part.toarray() if issparse(part) else np.asarray(part)
    if values.ndim == 1:
        return pd.DataFrame({"x": values}, index=numbers)
    return pd.DataFrame(values, columns=column_names(model, values), index=numbers)


def _free_name(name: str, taken: set[Any]) -> str:
    while name in taken:
        name += "_"
    return name
