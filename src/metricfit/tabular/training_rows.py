"""From what a user passes to ``MetricClassifier.fit`` to checked rows of numbers, and rows that are kept apart.

The model is fixed before it scores them, so that the tests of a confidence are exact on these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.class_weight import compute_class_weight

from metricfit.data.reading import ParquetTable
from metricfit.decide.costs import cost_columns
from metricfit.decide.held_out import HeldOut, HeldOutPlaces, collect_held_out
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.class_order import declared_order
from metricfit.metrics.curves import as_requirements
from metricfit.metrics.metric import get_metric
from metricfit.tabular.checks import (
    FitRows,
    check_parameters,
    checked_groups,
    checked_labels,
    checked_rows,
    checked_table,
    checked_weights,
    takes_row_numbers,
)
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families.family import Features, Floats, Integers, TrainingRows
from metricfit.tabular.large_rows import CompactFeatures, encode_large_table, is_large
from metricfit.tabular.row_folds import is_forward

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


@dataclass(frozen=True)
class PreparedRows:
    """The rows of ``fit``.

    Attributes:
        rows: The rows with their weights in training, which include those of the classes.
        weight: The sample weights alone, or None.
        groups: The group of each row, or None.
        seed: Seed of everything random.
        columns: Columns of the table with the costs of each row, if the metric takes costs from columns.
        numbers: The number of each row in the table that was passed; rows of weight 0 are left out.
        total: The number of rows of that table.
    """

    rows: TrainingRows
    weight: Floats | None
    groups: NDArray[Any] | None
    seed: int
    columns: Mapping[str, Floats]
    numbers: Integers
    total: int


def prepare_rows(
    model: MetricClassifier,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    encoded: tuple[TableEncoder, NDArray[np.float32]] | None = None,
    apart: FitRows | None = None,
) -> PreparedRows:
    """Check what was passed to ``fit``, and set the model's classes and encoder.

    Args:
        model: The classifier.
        X: The table.
        y: The labels.
        sample_weight: One weight per row, or None.
        groups: One group per row, or None.
        encoded: An encoder that was fitted to all these rows, and the rows as numbers; None to fit one.
        apart: Rows that are kept apart to choose the decision on, or None.

    Returns:
        The rows as numbers, with weights, groups and the seed.
    """
    check_parameters(model)
    metric = get_metric(model.metric)
    as_requirements(model.subject_to)  # what cannot be read is reported before the table is looked at
    table = checked_table(model, X, reset=True)
    given = checked_rows(table, checked_labels(model, y), sample_weight, groups, model.cv)
    table, labels, weight, group = given.X, given.y, given.weight, given.groups
    features: Features | CompactFeatures
    model._set_classes(labels, declared_order(y), None if apart is None else np.concatenate([labels, apart.y]))
    if apart is not None:
        _check_classes(model, apart.y)
    columns = cost_columns(metric, table)
    model._check_decision(given if apart is None else apart, columns)
    numbers = model._numbers_of(labels)
    if encoded is None and is_large(table):
        model.encoder_, features = encode_large_table(table)
    else:
        if encoded is None:
            encoder = TableEncoder()
            encoded = encoder, encoder.fit(table)
        model.encoder_, features = encoded[0], Features(encoded[1], table)
    in_training = _training_weights(labels, model.classes_, model.class_weight, weight)
    if in_training is not None:  # penalties and limits of the families are for weights of 1 on average
        in_training = in_training / in_training.mean()
    rows = TrainingRows(features, numbers, in_training, len(model.classes_))
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    return PreparedRows(rows, weight, group, seed, columns, given.numbers, given.total)


def _training_weights(
    labels: NDArray[Any], classes: NDArray[Any], class_weight: Any, weight: NDArray[np.float64] | None
) -> Floats | None:
    """Multiply row weights by class weights, so that members also stop early by the loss that they are trained on."""
    if class_weight is not None:
        _check_class_weight(class_weight, classes)
        class_weights = compute_class_weight(class_weight, classes=classes, y=labels)
        row_weights = class_weights[np.searchsorted(classes, labels)]
        weight = row_weights if weight is None else row_weights * weight
    return weight


def _check_class_weight(class_weight: Any, classes: NDArray[Any]) -> None:
    """Refuse what is neither "balanced" nor a weight above 0 for labels that there are."""
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in classes.tolist()]
        if unknown:
            raise InvalidValueError(f"class_weight names {quote(unknown[0])}, which is none of {classes.tolist()}")
        for label, weight in class_weight.items():
            if not isinstance(weight, Real) or isinstance(weight, bool) or not 0 < float(weight) < np.inf:
                raise InvalidValueError(
                    f"class_weight: a weight is a finite number above 0, but {quote(label)} has {quote(weight)}"
                )
    elif not isinstance(class_weight, str) or class_weight != "balanced":
        raise InvalidValueError(
            f"class_weight is 'balanced', a weight for each label such as {{{classes.tolist()[0]!r}: 2.0}}, or None; "
            f"got {quote(class_weight)}"
        )


#: Makes the draw differ from others with the same seed.
DRAW = 2_718


def _check_classes(model: MetricClassifier, labels: NDArray[Any]) -> None:
    """Refuse calibration rows of other classes than the training rows."""
    unknown, missing = np.setdiff1d(labels, model.classes_), np.setdiff1d(model.classes_, labels)
    if len(unknown) or len(missing):
        label, part = (unknown.tolist()[0], "training") if len(unknown) else (missing.tolist()[0], "calibration")
        raise InvalidValueError(
            f"calibration={model.calibration:g} leaves no {part} row of class {quote(label)}: drop the class, or keep "
            "another share of the rows apart"
        )


def held_out_apart(model: MetricClassifier, apart: FitRows) -> tuple[HeldOut, HeldOutPlaces]:
    """Return the calibration rows with the logits of the fitted ensemble."""
    columns, numbers = cost_columns(get_metric(model.metric), apart.X), model._numbers_of(apart.y)
    held_out = collect_held_out(model._calibrated_logits(apart.X), numbers, apart.weight, apart.groups, columns)
    return held_out, HeldOutPlaces(apart.numbers, np.zeros(len(numbers), dtype=np.int64), apart.total)


def keep_apart(
    model: MetricClassifier, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[tuple[Any, Any, Any, Any], FitRows | None]:
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
        The table, the labels, the weights and the groups of the training rows, which are all rows without
        ``calibration``, and the calibration rows.

    Raises:
        InvalidValueError: The rows cannot be divided.
    """
    share = model.calibration
    if share is None:
        return (X, y, sample_weight, groups), None
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
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    groups_there = None if group is None else group[there]
    apart = draw_apart(there, groups_there, share, forward=is_forward(model.cv), seed=seed)
    rows = FitRows(X, y, weight, group, np.arange(len(labels)), len(labels))
    training = rows.take(np.setdiff1d(there, apart))
    return (training.X, training.y, training.weight, training.groups), replace(rows.take(apart), y=labels[apart])


def draw_apart(
    rows: NDArray[np.int64], groups: NDArray[Any] | None, share: float, *, forward: bool, seed: int
) -> NDArray[np.int64]:
    """Draw a share of the rows, or of the groups; of rows in the order of time, return the last ones.

    Raises:
        InvalidValueError: No row would be kept apart, or all of them.
    """
    if forward:
        apart = rows[len(rows) - max(1, round(share * len(rows))) :]
    else:
        unit = np.arange(len(rows)) if groups is None else pd.factorize(groups)[0]
        units = int(unit.max()) + 1
        drawn = np.random.default_rng((seed, DRAW)).permutation(units)[: round(share * units)]
        apart = rows[np.isin(unit, drawn)]
    if not 0 < len(apart) < len(rows):
        raise InvalidValueError(f"calibration={share:g} of {len(rows)} rows leaves no rows in one of the parts")
    return apart
