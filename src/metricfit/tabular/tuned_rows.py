"""From what a user passes to ``TunedDecisionClassifier.fit`` to checked rows, in any form that the estimator takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import _routing_enabled, process_routing
from sklearn.utils.validation import check_is_fitted

from metricfit.decide.choose import checked_guarantee
from metricfit.decide.class_requirements import check_class_index, model_requirements
from metricfit.decide.costs import check_costs
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import get_metric
from metricfit.tabular.held_out_scores import fit_parameters_of, rows_of
from metricfit.tabular.row_checks import (
    checked_groups,
    checked_label_matrix,
    checked_labels,
    checked_weights,
    has_several_labels,
)

if TYPE_CHECKING:
    from metricfit.tabular.tuned import TunedDecisionClassifier

NOT_FITTED = (
    "cv='prefit' takes a fitted %(name)s, and this one is not: fit it, or choose cv=5. scikit-learn's clone, which "
    "GridSearchCV and cross_val_score use, unfits estimators; it leaves sklearn.frozen.FrozenEstimator(model) fitted"
)


@dataclass(frozen=True)
class TunedRows:
    """The rows of ``fit``.

    Attributes:
        X: The rows, as the estimator takes them.
        target: One label per row, or for several labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        groups: One group per row, or None.
        fit_params: What else the estimator's ``fit`` takes.
        numbers: The number of each row in the table that was passed; rows of weight 0 are left out.
        total: The number of rows of that table.
    """

    X: Any
    target: NDArray[Any]
    weight: NDArray[np.float64] | None
    groups: NDArray[Any] | None
    fit_params: dict[str, Any]
    numbers: NDArray[np.int64]
    total: int


def prepare_tuned_rows(
    model: TunedDecisionClassifier, X: Any, y: Any, sample_weight: Any, groups: Any, fit_params: dict[str, Any]
) -> TunedRows:
    """Check labels, weights and groups; rows of weight 0 are left out.

    Raises:
        InvalidValueError: The labels, weights or groups cannot be used, or do not fit the model's parameters.
    """
    target = _checked_target(model, y)
    X = X if hasattr(X, "shape") or not hasattr(X, "__array__") else np.asarray(X)
    X, target = indexable(X, target)
    weight, group = checked_weights(sample_weight, target), checked_groups(groups, target)
    if weight is None or weight.all():
        return TunedRows(X, target, weight, group, fit_params, np.arange(len(target)), len(target))
    if not (model.cv is None or isinstance(model.cv, (str, Integral))):
        raise InvalidValueError("rows of weight 0 count as absent, and cv= counts all rows: pass the others alone")
    kept = np.flatnonzero(weight)
    parts = rows_of(fit_params, kept, len(target))
    group = None if group is None else group[kept]
    return TunedRows(_safe_indexing(X, kept), target[kept], weight[kept], group, parts, kept, len(target))


def routed_parameters(model: TunedDecisionClassifier, rows: TunedRows) -> dict[str, Any]:
    """Return what the estimator's ``fit`` takes beside the rows: as requested by metadata routing, if it is enabled."""
    if _routing_enabled():
        routed = process_routing(model, "fit", sample_weight=rows.weight, **rows.fit_params)
        return dict(routed.estimator.fit)
    return rows.fit_params | fit_parameters_of(model.estimator, rows.weight)


def check_prefit(estimator: Any, classes: NDArray[Any] | None) -> None:
    """Refuse an estimator that is not fitted, or on other classes than those of the rows.

    Args:
        estimator: The estimator of ``cv="prefit"``.
        classes: The classes of the rows; None for several labels.

    Raises:
        NotFittedError: The estimator is not fitted.
        InvalidValueError: It does not know a label, or there are no rows of one of its classes.
    """
    check_is_fitted(estimator, msg=NOT_FITTED)
    if classes is None:
        return
    known, given = set(np.asarray(estimator.classes_).tolist()), set(classes.tolist())
    for labels, what in ((given - known, "labels that the estimator does not know"), (known - given, "no rows of")):
        if labels:
            names = ", ".join(quote(label) for label in sorted(labels, key=str)[:5])
            raise InvalidValueError(f"cv='prefit': y has {what}: {names}. Pass rows with the estimator's classes")


def check_tuned_decision(
    model: TunedDecisionClassifier, rows: TunedRows, columns: Mapping[str, NDArray[np.float64]]
) -> None:
    """Refuse requirements, costs and a confidence that the rows do not support, before anything is trained.

    Args:
        model: The estimator, whose classes are known.
        rows: The rows.
        columns: The columns with the costs of each row.

    Raises:
        InvalidValueError: A requirement is on a class that there is not, or costs or a confidence cannot be used.
        InfeasibleError: There are too few rows for the confidence.
    """
    has_labels = rows.target.ndim == 2
    requirements, metric = model_requirements(model, has_labels=has_labels), get_metric(model.metric)
    check_costs(metric, columns, 0 if has_labels else len(model.classes_), requirements)
    if not has_labels or isinstance(metric, GroupGap):
        check_class_index(len(model.classes_), metric)
    if model.confidence is not None:
        y = rows.target if has_labels else model._numbers_of(rows.target)
        checked_guarantee(requirements, y, model.confidence, weight=rows.weight, groups=rows.groups)


def _checked_target(model: TunedDecisionClassifier, y: Any) -> NDArray[Any]:
    """Return one label per row, or a matrix of 0 and 1 with one column per label."""
    if y is not None and has_several_labels(y):
        target: NDArray[Any] = checked_label_matrix(y)
        if model.pos_label is not None:
            raise InvalidValueError("pos_label is for two classes; of several labels, 1 means that one is there")
        return target
    if model.average == "samples":
        raise InvalidValueError("average='samples' is for several labels, a matrix y of 0 and 1")
    return checked_labels(model, y)
