"""Rows with the logits of a model, computed once and kept in place of their columns.

A table that is read in batches is never in memory as a whole. What decisions, metrics and reports need of it are the
logits, and the columns that hold the costs of each row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.reading import Batch, ColumnTypes
from metricfit.errors import MetricfitError, TableError
from metricfit.metrics.metric import get_metric
from metricfit.tabular.encoding.columns import Category, Date, Text
from metricfit.tabular.inputs import checked_table

WHOLE_NUMBER = re.compile(r"-?(0|[1-9]\d*)")

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


@dataclass(frozen=True)
class ScoredRows:
    """Stands for a table wherever a model predicts: ``model.predict(rows)`` decides without computing logits again.

    Attributes:
        logits: The calibrated logits, ``(n, 1)`` or ``(n, c)``.
        kept: Columns with the costs of each row, by name.
        unseen: Rows with categories that the training rows did not have, by column.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(100, 2))
        >>> model = MetricClassifier(models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> parts = [ScoredRows.of(model, X[:60]), ScoredRows.of(model, X[60:])]
        >>> bool((model.predict(ScoredRows.join(parts)) == model.predict(X)).all())
        True
    """

    logits: NDArray[np.float64]
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unseen: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, model: MetricClassifier, X: Any) -> ScoredRows:
        """Return the rows of a table with their logits."""
        kept = {name: np.asarray(X[name]) for name in get_metric(model.metric).columns}
        if not len(X):  # a table that an estimator would refuse
            outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
            return cls(np.zeros((0, outputs)), kept)
        table = checked_table(model, X, reset=False)
        return cls(model._logits_of_table(table), kept, model.encoder_.count_unseen(table))

    @classmethod
    def join(cls, parts: Sequence[ScoredRows]) -> ScoredRows:
        """Return the rows of several parts, one after the other."""
        names = list(parts[0].kept)
        kept = {name: np.concatenate([part.kept[name] for part in parts]) for name in names}
        return cls(np.concatenate([part.logits for part in parts]), kept)

    def take(self, rows: NDArray[Any]) -> ScoredRows:
        """Return some of the rows, by their numbers or by a mask."""
        return ScoredRows(self.logits[rows], {name: each[rows] for name, each in self.kept.items()})

    @property
    def columns(self) -> list[str]:
        """The names of the columns that are kept."""
        return list(self.kept)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of kept columns."""
        return len(self), len(self.kept)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.kept[name]

    def __len__(self) -> int:
        return len(self.logits)


def score_batch(model: MetricClassifier, X: pd.DataFrame, batch: Batch) -> ScoredRows:
    """Return the rows of a batch with their logits.

    Args:
        model: The fitted model.
        X: The columns of the batch that the model was trained on.
        batch: The batch, which knows where its rows come from.

    Raises:
        TableError: The model cannot read a row; the message names the row.
    """
    try:
        return ScoredRows.of(model, X)
    except MetricfitError:
        row = _first_unreadable_row(model, X)
        if row is None:
            raise
        try:
            ScoredRows.of(model, X.iloc[row : row + 1])
        except MetricfitError as error:
            raise TableError(f"{batch.source}, row {batch.first + row}: {error}") from None
        raise


def column_types(model: MetricClassifier, target: str | None = None) -> ColumnTypes:
    """Return which columns of a text file are text, by what the model knows about its columns.

    Without that, a column of codes such as 007 would be text in one batch and numbers in another, where no code has a
    letter.

    Args:
        model: The fitted model.
        target: Name of the column with labels. If the model's labels are text, so are those of the file, and words
            such as NA are labels.
    """
    names = getattr(model, "feature_names_in_", ())
    columns = model.encoder_.columns or [None] * len(names)
    text = [str(name) for name, column in zip(names, columns, strict=False) if _is_text(column)]
    labels_are_text = target is not None and model.classes_.dtype.kind in "OUT"
    return ColumnTypes(text, [str(target)] if labels_are_text else [])


def _is_text(column: object) -> bool:
    if isinstance(column, Category):  # categories that are whole numbers may be written as 1 or as 1.0, unless as 01
        return not all(category is None or WHOLE_NUMBER.fullmatch(category) for category in column.categories)
    return isinstance(column, (Date, Text))


def _first_unreadable_row(model: MetricClassifier, X: pd.DataFrame) -> int | None:
    """Return the number of the first row that the model cannot read, found by halving; None if each can be read."""
    readable, unreadable = 0, len(X)
    while unreadable - readable > 1:
        middle = (readable + unreadable) // 2
        try:
            model._features(X.iloc[readable:middle])
        except MetricfitError:
            unreadable = middle
        else:
            readable = middle
    try:
        model._features(X.iloc[readable:unreadable])
    except MetricfitError:
        return readable
    return None
