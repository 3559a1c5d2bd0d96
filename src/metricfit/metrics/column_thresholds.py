"""The best thresholds of many columns of scores at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from metricfit.core.arrays import Array, exact, in_kind_of, is_floating, namespace
from metricfit.errors import InvalidValueError
from metricfit.metrics.curves import best_threshold
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.sweep import as_array, checked, matrix
from metricfit.metrics.threshold_search import search_columns, smallest_of_score


class BestThresholds(NamedTuple):
    """One threshold per column, and the values of the metric there.

    Attributes:
        thresholds: The thresholds ``(c,)``; a score of at least this is positive.
        values: The values of the metric ``(c,)``.

    Example:
        >>> best_thresholds([[0.75], [0.25]], [[1], [0]], "f1").values
        array([1.])
    """

    thresholds: Array
    values: Array


def best_thresholds(
    scores: Array, target: Array, metric: str | Metric | Formula, *, weight: Array | None = None
) -> BestThresholds:
    """Find the best threshold of each column of scores, as ``best_threshold`` does for one column.

    All columns are searched in a few large blocks, so that a thousand labels take little more than their sorts.

    Args:
        scores: One column of scores per label, ``(n, c)``: logits or probabilities.
        target: Labels 0 or 1, ``(n, c)``.
        metric: A Metric, its name or a function of Counts; each column is measured separately.
        weight: One weight per sample ``(n,)``, or per score ``(n, c)``, at least 0; a weight of 0 leaves out an unknown
            label. With weights the columns are searched one after the other.

    Returns:
        One threshold and one value per column, as arrays of the kind of ``scores``.

    Raises:
        InvalidValueError: The arrays differ in shape or hold NaN, all weights of a column are 0, or the metric is
            unknown, of one class or has parameters per class.

    Example:
        >>> best_thresholds([[0.9, 0.2], [0.6, 0.8], [0.4, 0.1]], [[1, 0], [0, 1], [1, 0]], "f1").thresholds
        array([0.4, 0.8])
    """
    measured = get_metric(metric)
    if measured.of_one_class or any(isinstance(value, tuple) for value in measured.parameters.values()):
        raise InvalidValueError(
            f"{measured.name} is not the same for all columns; call best_threshold for each of them"
        )
    s, y = matrix(scores, "scores"), matrix(target, "target")
    if s.shape != y.shape:
        raise InvalidValueError(f"scores have shape {tuple(s.shape)}, but target has {tuple(y.shape)}")
    if 0 in s.shape:
        raise InvalidValueError("there are no scores")
    s = s if is_floating(s) else exact(s)
    if weight is not None:
        return _search_weighted(s, y, measured, as_array(weight, "weight"))
    found = search_columns(s.T, in_kind_of(y, s).T, measured)
    if not bool(found.valid.all()):
        for place in range(s.shape[1]):
            try:
                checked(s[:, place], y[:, place], None)
            except InvalidValueError as error:
                raise InvalidValueError(f"column {place}: {error}") from None
    thresholds = found.thresholds
    if "float16" in str(s.dtype):
        numbers = [smallest_of_score(number, s) for number in thresholds.tolist()]
        thresholds = in_kind_of(np.array(numbers), s)
    return BestThresholds(thresholds, found.values)


def _search_weighted(scores: Array, target: Array, metric: Metric, weight: Array) -> BestThresholds:
    """Search the columns one after the other."""
    if tuple(weight.shape) not in ((len(scores),), (len(scores), 1), tuple(scores.shape)):
        raise InvalidValueError(f"scores have shape {tuple(scores.shape)}, but weight has {tuple(weight.shape)}")
    weights = namespace(weight).broadcast_to(weight.reshape(len(scores), -1), scores.shape)
    best = []
    for place in range(scores.shape[1]):
        try:
            best.append(best_threshold(scores[:, place], target[:, place], metric, weight=weights[:, place]))
        except InvalidValueError as error:
            raise InvalidValueError(f"column {place}: {error}") from None
    return BestThresholds(*(in_kind_of(np.array(column), scores) for column in zip(*best, strict=True)))


def metric_of_label(metric: Metric, label: int, labels: int) -> Metric:
    """Return the metric for the counts ``(..., 1)`` of one label, with this label's values of parameters per class."""
    if metric.needs_matrix:
        return metric
    parameters = {}
    for key, value in metric.parameters.items():
        if isinstance(value, tuple) and len(value) != labels:
            raise InvalidValueError(f"{metric.name} has {len(value)} values of {key}, but there are {labels} labels")
        parameters[key] = value[label] if isinstance(value, tuple) else value
    return Metric(
        metric.base_name,
        metric.formula,
        parameters=parameters,
        minimize=metric.minimize,
        bounds=metric.bounds,
        needs=metric.needs,
        whole_matrix=metric.whole_matrix,
        user_defined=metric.user_defined,
    )
