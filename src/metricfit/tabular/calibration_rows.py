"""Rows that are kept apart from training, on which MetricClassifier chooses its decision.

The model is fixed before it scores them, so that the tests of a confidence are exact on these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, check_consistent_length, check_random_state

from metricfit.data.reading import ParquetTable
from metricfit.decide.costs import cost_columns
from metricfit.decide.held_out import HeldOut, HeldOutPlaces, collect_held_out
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.metric import get_metric
from metricfit.tabular.row_checks import checked_groups, checked_labels, checked_weights
from metricfit.tabular.row_folds import is_forward, takes_row_numbers

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier

#: Makes the draw differ from others with the same seed.
DRAW = 2_718


@dataclass(frozen=True)
class Rows:
    """Rows as they are passed to ``fit``.

    Attributes:
        X: The table.
        y: One label per row.
        weight: One weight per row, or None.
        groups: One group per row, or None.
    """

    X: Any
    y: Any
    weight: NDArray[np.float64] | None
    groups: NDArray[Any] | None

    def take(self, numbers: NDArray[np.int64]) -> Rows:
        """Return these rows."""
        X: Any = self.X if hasattr(self.X, "shape") else np.asarray(self.X)
        weight, groups = (None if part is None else part[numbers] for part in (self.weight, self.groups))
        table = _safe_indexing(X.tocsr() if issparse(X) else X, numbers)
        return Rows(table, _safe_indexing(self.y, numbers), weight, groups)


@dataclass(frozen=True)
class CalibrationRows(Rows):
    """The rows that are kept apart.

    Attributes:
        numbers: The number of each row in the table that was passed.
        total: The number of rows of that table.
    """

    numbers: NDArray[np.int64]
    total: int

    def check_classes(self, model: MetricClassifier) -> None:
        """Refuse rows of other classes than the training rows.

        Raises:
            InvalidValueError: A label is not among the training rows, or a class has no row here.
        """
        labels = np.asarray(self.y)
        unknown, missing = np.setdiff1d(labels, model.classes_), np.setdiff1d(model.classes_, labels)
        if len(unknown) or len(missing):
            label, part = (unknown.tolist()[0], "training") if len(unknown) else (missing.tolist()[0], "calibration")
            raise InvalidValueError(
                f"calibration={model.calibration:g} leaves no {part} row of class {quote(label)}: drop the class, or "
                "keep another share of the rows apart"
            )

    def held_out(self, model: MetricClassifier) -> tuple[HeldOut, HeldOutPlaces]:
        """Return the rows with the logits of the fitted ensemble."""
        labels = np.asarray(self.y)
        columns = cost_columns(get_metric(model.metric), self.X)
        weight = None if self.weight is None else np.asarray(self.weight, np.float64)
        held_out = collect_held_out(
            model._calibrated_logits(self.X), model._numbers_of(labels), weight, self.groups, columns
        )
        return held_out, HeldOutPlaces(self.numbers, np.zeros(len(labels), dtype=np.int64), self.total)


def keep_apart(
    model: MetricClassifier, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[Rows, CalibrationRows | None]:
    """Divide the rows of ``fit`` into training rows and calibration rows.

    These are drawn at random, and not stratified, so that they are independent draws of the population. Of rows in
    groups whole groups are drawn, and of rows in the order of time the last ones are kept apart.

    Args:
        model: The classifier.
        X: The table.
        y: The labels.
        sample_weight: One weight per row, or None.
        groups: One group per row, or None.

    Returns:
        The training rows, which are all rows without ``calibration``, and the calibration rows.

    Raises:
        InvalidValueError: The rows cannot be divided.
    """
    rows, share = Rows(X, y, sample_weight, groups), model.calibration
    if share is None:
        return rows, None
    if isinstance(X, ParquetTable):
        raise InvalidValueError(
            "calibration= divides tables in memory: read the files into a DataFrame, or keep rows apart in other files "
            "and leave calibration out"
        )
    if takes_row_numbers(model.cv) and not is_forward(model.cv):
        raise InvalidValueError("calibration= keeps rows apart, and cv= counts all rows: give a number of folds")
    labels = checked_labels(model, y)
    check_consistent_length(X, labels)
    weight, group = checked_weights(sample_weight, labels), checked_groups(groups, labels)
    there = np.arange(len(labels)) if weight is None else np.flatnonzero(weight)
    if is_forward(model.cv):
        apart = there[len(there) - max(1, round(share * len(there))) :]
    else:
        seed = int(check_random_state(model.random_state).randint(2**31 - 1))
        apart = _drawn(there, None if group is None else group[there], share, np.random.default_rng((seed, DRAW)))
    if not 0 < len(apart) < len(there):
        raise InvalidValueError(f"calibration={share:g} of {len(there)} rows leaves no rows in one of the parts")
    rows = Rows(X, y, weight, group)
    kept = rows.take(apart)
    return rows.take(np.setdiff1d(there, apart)), CalibrationRows(
        kept.X, labels[apart], kept.weight, kept.groups, apart, len(labels)
    )


def _drawn(
    rows: NDArray[np.int64], groups: NDArray[Any] | None, share: float, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Draw a share of the rows, or of the groups."""
    unit = np.arange(len(rows)) if groups is None else pd.factorize(groups)[0]
    units = int(unit.max()) + 1
    drawn = generator.permutation(units)[: round(share * units)]
    return rows[np.isin(unit, drawn)]
