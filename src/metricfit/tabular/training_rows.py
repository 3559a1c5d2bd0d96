"""From what a user passes to ``fit`` to checked rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.class_weight import compute_class_weight

from metricfit.decide.choose import checked_guarantee
from metricfit.decide.class_requirements import check_class_index, model_requirements
from metricfit.decide.costs import check_costs, cost_columns
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.class_order import declared_order
from metricfit.metrics.curves import as_requirements
from metricfit.metrics.metric import get_metric
from metricfit.tabular import inputs
from metricfit.tabular.calibration_rows import CalibrationRows
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families.family import Features, Floats, Integers, TrainingRows
from metricfit.tabular.large_rows import CompactFeatures, encode_large_table, is_large
from metricfit.tabular.parameters import check_parameters
from metricfit.tabular.row_checks import checked_groups, checked_labels, checked_weights
from metricfit.tabular.row_folds import takes_row_numbers

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
    apart: CalibrationRows | None = None,
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
    table = inputs.checked_table(model, X, reset=True)
    labels = checked_labels(model, y)
    check_consistent_length(table, labels)
    weight, group = checked_weights(sample_weight, table), checked_groups(groups, table)
    total = len(labels)
    row_numbers = np.arange(total)
    if weight is not None and not weight.all():  # rows of weight 0 count as absent
        if takes_row_numbers(model.cv):
            raise InvalidValueError("rows of weight 0 count as absent, and cv= counts all rows: pass the others alone")
        weighted = weight > 0
        table, labels, weight = inputs.rows(table, weighted), labels[weighted], weight[weighted]
        group, row_numbers = None if group is None else group[weighted], row_numbers[weighted]
    features: Features | CompactFeatures
    model._set_classes(labels, declared_order(y), None if apart is None else np.concatenate([labels, apart.y]))
    if apart is not None:
        apart.check_classes(model)
    requirements = model_requirements(model, has_labels=False)
    check_class_index(len(model.classes_), metric)
    columns = cost_columns(metric, table)
    check_costs(metric, columns, len(model.classes_), requirements)
    numbers = model._numbers_of(labels)
    if model.confidence is not None:  # too few rows are reported before anything is trained
        certified = (numbers, weight, group)
        if apart is not None:
            certified = (model._numbers_of(np.asarray(apart.y)), apart.weight, apart.groups)
        target, counted, of_group = certified
        checked_guarantee(requirements, target, model.confidence, weight=counted, groups=of_group)
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
    rows = TrainingRows(
        features,
        numbers,
        in_training,
        len(model.classes_),
    )
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    return PreparedRows(rows, weight, group, seed, columns, row_numbers, total)


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
                    f"class_weight: a weight is a finite number above 0; that of {quote(label)} is {quote(weight)}"
                )
    elif not isinstance(class_weight, str) or class_weight != "balanced":
        raise InvalidValueError(
            f"class_weight is 'balanced', a weight for each label such as {{{classes.tolist()[0]!r}: 2.0}}, or None; "
            f"got {quote(class_weight)}"
        )
