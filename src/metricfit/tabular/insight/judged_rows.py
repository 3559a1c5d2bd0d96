"""Labelled rows on which a fitted model is judged, and what it decided about them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from metricfit.core.types import ScalarAverage
from metricfit.data.reading import ParquetRows, ParquetTable
from metricfit.decide.calibration import sigmoid
from metricfit.decide.costs import RowCosts
from metricfit.decide.held_out import HeldOut
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.metric import Metric, get_metric
from metricfit.tabular.inputs import columns_of_fit, to_pandas
from metricfit.tabular.large_rows import stratified_sample
from metricfit.tabular.row_checks import average_of_classes, checked_labels, checked_weights


def held_out_rows(model: Any) -> HeldOut:
    """Return the held-out rows with the class balance that the model decides for."""
    rows: HeldOut = model.held_out_.with_logits_shifted(model.shift_)
    return rows


def held_out_scores(model: Any) -> NDArray[Any]:
    """Return the probability of the positive class of two for each held-out row."""
    return sigmoid(held_out_rows(model).logits.reshape(-1))


def held_out_costs(model: Any) -> RowCosts | None:
    """Return the costs of each held-out row; None unless the metric takes costs from columns."""
    costs: RowCosts | None = model._costs_of(dict(model.held_out_.columns), len(model.held_out_.y))
    return costs


def held_out_decisions(model: Any) -> NDArray[Any]:
    """Return the class number that is decided for each held-out row, -1 for rows that are referred to a person.

    Args:
        model: The fitted model of two or several classes; of two, 1 is the positive class.
    """
    costs, logits = held_out_costs(model), held_out_rows(model).logits
    decided: Integers = model.decision_.decide_or_refer(logits if costs is None else costs.margins(logits))
    return decided


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Rows on which the logits of the folds' models are compared with those of ``fit``.
COMPARED = 64


class TrainingRowsWarning(UserWarning):
    """Rows to judge a model on are those that it was trained on."""


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
        return JudgedRows(
            self.model,
            take_rows(self.table, index),
            self.y[index],
            None if self.weight is None else self.weight[index],
            None if self.groups is None else self.groups[index],
            self.numbers[index],
            None if self.folds is None else self.folds[index],
            None if self.costs is None else self.costs.take(index),
            self.scorers,
            None if self.known_logits is None else self.known_logits[index],
        )

    def logits(self, table: Any = None) -> Floats:
        """Return calibrated logits for the current class balance, of these rows or of changed ones in their place."""
        if table is None and self.known_logits is not None:
            return self.known_logits
        rows = self.table if table is None else table
        logits: Floats
        if self.folds is None:
            logits = self.model._logits(rows)
        else:
            logits = self.model._logits_out_of_fold(rows, self.folds, self.scorers) + self.model.shift_
        return logits

    def decide(self, table: Any = None) -> Integers:
        """Return class numbers, -1 for rows that are referred, of these rows or of changed ones in their place."""
        logits, costs = self.logits(table), self.costs
        if costs is not None and table is not None:  # a model that does not know a column does not know its costs
            costs = self.model._costs_of(table, len(self))
        to_decide = logits if costs is None else costs.margins(logits)
        return np.asarray(self.model.decision_.decide_or_refer(to_decide))


def judged_rows(
    model: Any, X: Any, y: Any, sample_weight: Any = None, *, out_of_fold: bool = False, warn: bool = True
) -> JudgedRows:
    """Check the rows that a model is judged on.

    Args:
        model: The fitted model.
        X: Rows with the columns of ``fit``.
        y: Their labels.
        sample_weight: One weight per row, or None.
        out_of_fold: Whether ``X`` and ``y`` are those of ``fit``, and each row is decided by models of the folds that
            did not train on it.
        warn: Whether to warn if the whole model is judged on the rows of ``fit``.

    Returns:
        The rows; out of fold those that some fold held out, with the weights and the groups of ``fit``.

    Raises:
        NotFittedError: The model is not fitted.
        InvalidValueError: Columns are missing, labels are unknown, or the rows are not those of ``fit``.
        InvalidTypeError: The model has several labels per row.
    """
    check_is_fitted(model, "decision_")
    if model._has_labels:
        raise InvalidTypeError("the model decides several labels per row: fit one model per label to look into it")
    table = plain_table(X)
    columns_of_fit(model, table)  # names the columns that are missing
    labels = checked_labels(model, y)
    check_consistent_length(table, labels)
    unknown = np.setdiff1d(labels, model.classes_)
    if len(unknown):
        raise InvalidValueError(
            f"y has labels that were not there in fit: {', '.join(quote(label) for label in unknown[:5].tolist())}"
        )
    numbers = model._numbers_of(labels)
    if out_of_fold:
        if sample_weight is not None:
            raise InvalidValueError("out of fold the weights are those of fit: leave sample_weight out")
        return _rows_of_fit(model, table, numbers)
    rows = JudgedRows(
        model,
        table,
        numbers,
        checked_weights(sample_weight, labels),
        None,
        np.arange(len(labels)),
        None,
        model._costs_of(table, len(labels)),
    )
    if warn and _are_rows_of_fit(rows):
        warnings.warn(
            "the model was trained on these rows, and looks better there than it is: pass rows that it has not seen, "
            "or out_of_fold=True, which judges each row by models that were not trained on it",
            TrainingRowsWarning,
            stacklevel=4,
        )
    return rows


def plain_table(X: Any) -> Any:
    """Return a pandas DataFrame, an array, a sparse matrix or a list as it can be indexed by rows and columns."""
    if hasattr(X, "to_pandas"):
        X = to_pandas(X)
    if isinstance(X, pd.DataFrame):
        return X
    if issparse(X):
        return X.tocsr()
    return X if hasattr(X, "dtype") else np.asarray(X)


def take_rows(table: Any, index: Integers) -> Any:
    """Return rows of a table; those of files are read."""
    return table.take(index) if isinstance(table, ParquetRows) else _safe_indexing(table, index)


def column_names(model: Any, table: Any) -> list[Any]:
    """Return the names of the columns; x0, x1 and so on where they have none."""
    if isinstance(table, pd.DataFrame):
        return list(table.columns)
    if table.ndim != 2:
        raise InvalidValueError(
            f"X has no columns: its shape is {table.shape}. Importance is that of columns; make a table of numbers or "
            "texts first"
        )
    known = getattr(model, "feature_names_in_", None)
    return [f"x{place}" for place in range(table.shape[1])] if known is None else list(known)


def _rows_of_fit(model: Any, table: Any, numbers: Integers) -> JudgedRows:
    """Return the held-out rows of the table that ``fit`` got."""
    places = getattr(model, "_places", None)
    if places is None:
        raise InvalidValueError(
            "out_of_fold=True needs the models of the folds, which are not saved: use the model that fit returned, or "
            "pass rows that the model was not trained on"
        )
    if len(numbers) != places.total:
        raise InvalidValueError(
            f"out_of_fold=True is for the rows of fit, which were {places.total:,}; X has {len(numbers):,}"
        )
    held_out = model.held_out_.with_logits_shifted(model.shift_)
    in_order = np.array_equal(places.rows, np.arange(places.total))
    rows = JudgedRows(
        model,
        table if in_order else take_rows(table, places.rows),
        held_out.y,
        None if held_out.weight is None else held_out.weight,
        held_out.groups,
        places.rows,
        places.folds,
        model._costs_of(dict(held_out.columns), len(held_out.y)),
        model._fold_scorers(),
        held_out.logits,
    )
    if not np.array_equal(numbers[places.rows], rows.y) or not _has_logits_of_fit(rows):
        raise InvalidValueError("out_of_fold=True is for the rows of fit in their order, and these are others")
    return rows


def _are_rows_of_fit(rows: JudgedRows) -> bool:
    """Whether these are the rows of ``fit``, as far as that is still known."""
    model = rows.model
    places = getattr(model, "_places", None)
    if places is None or places.total != len(rows) or getattr(model, "cv", None) == "prefit":
        return False
    if not np.array_equal(rows.y[places.rows], model.held_out_.y):
        return False
    part = rows.take(places.rows)
    return _has_logits_of_fit(replace(part, folds=places.folds, scorers=model._fold_scorers()))


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
    places = getattr(model, "_places", None)
    if places is None or places.total != len(table):
        raise InvalidValueError("the rows of files are judged by the model that was fitted on these files")
    held_out = held_out_rows(model)
    return JudgedRows(
        model,
        table.rows(places.rows),
        held_out.y,
        None if held_out.weight is None else held_out.weight,
        held_out.groups,
        places.rows,
        places.folds,
        held_out_costs(model),
        model._fold_scorers(),
        held_out.logits,
    )


def read_sample(rows: JudgedRows) -> JudgedRows:
    """Read the columns of a sample of the rows, in which each class has its share."""
    drawn = stratified_sample(np.arange(len(rows)), rows.y, SAMPLE_ROWS, 0)
    sample = rows.take(drawn)
    return replace(sample, table=sample.table.reset_index(drop=True))
