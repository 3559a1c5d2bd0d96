"""Checked inputs of the bootstrap: the samples, and the metric that is computed on each resample."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from metricfit.core.arrays import Array, is_tensor, to_numpy
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics import curves
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.metric import Formula, Metric, MetricFactory, get_metric
from metricfit.metrics.ranking import get_ranking
from metricfit.metrics.sweep import area_under_precision_recall, area_under_roc, checked, column
from metricfit.stats.resampling import Floats, Integers, Table
from metricfit.stats.statistics import (
    AtBest,
    AtThreshold,
    OfResample,
    Statistic,
    UnderCurve,
)

OfScores = Callable[..., float]
AREAS: dict[str, tuple[OfScores, Callable[[Array, Array], Array]]] = {
    "auroc": (curves.auroc, area_under_roc),
    "average_precision": (curves.average_precision, area_under_precision_recall),
}


class Samples(NamedTuple):
    """Scores (one array per model), targets, weights and groups, as NumPy arrays in float64."""

    scores: tuple[Floats, ...]
    target: Floats
    weight: Floats | None
    group: Integers | None


class Estimate(NamedTuple):
    """A value on the data, and the threshold it was computed at."""

    value: float
    threshold: float | None


class BootstrapMetric:
    """What is computed for each model: a metric at a fixed or the best threshold, or a function of scores and targets.

    Args:
        metric: The metric, its name, or a function.
        subject_to: Requirements on the threshold, if it is chosen.
        thresholds: One threshold per model: a number, or "best".
    """

    def __init__(
        self,
        metric: str | Metric | Formula | OfScores,
        subject_to: Requirements | None,
        thresholds: tuple[float | str, ...],
    ) -> None:
        self._metric = _resolve_metric(metric)
        self._requirements = as_requirements(subject_to)
        thresholds = tuple(to_plain_value(threshold) for threshold in thresholds)
        self._best = all(threshold == "best" for threshold in thresholds)
        if not self._best and not all(_is_number(threshold) for threshold in thresholds):
            raise InvalidValueError(f"threshold is 'best' or a number, got {', '.join(map(repr, thresholds))}")
        self._thresholds = [math.nan if self._best else float(threshold) for threshold in thresholds]
        if not isinstance(self._metric, Metric) and not self._best:
            raise InvalidValueError(
                f"{self.name} is computed from all scores, so no threshold applies: leave threshold out"
            )
        if self._requirements and not (isinstance(self._metric, Metric) and self._best):
            raise InvalidValueError(
                "subject_to says which thresholds may be chosen: it needs a metric and threshold='best'"
            )

    @property
    def name(self) -> str:
        """Name of the metric or the function."""
        metric = self._metric
        return metric.name if isinstance(metric, Metric) else getattr(metric, "__name__", type(metric).__name__)

    def evaluate(self, samples: Samples) -> list[Estimate]:
        """Compute the values on the data, one per model; raises an error where there is no value."""
        weight = () if samples.weight is None else (samples.weight,)
        estimates = []
        for scores, threshold in zip(samples.scores, self._thresholds, strict=True):
            if not isinstance(self._metric, Metric):
                estimates.append(Estimate(float(self._metric(scores, samples.target.astype(np.int64), *weight)), None))
            elif self._best:
                best = curves.best_threshold(
                    scores, samples.target, self._metric, self._requirements, weight=samples.weight
                )
                estimates.append(Estimate(best.value, best.threshold))
            else:
                table = Table.from_samples(((scores >= threshold).astype(np.float64),), *samples[1:])
                value = AtThreshold(table, table.columns[0], self._metric)(table.size[None]).value
                estimates.append(Estimate(float(value[0]), threshold))
        return estimates

    def make_statistics(self, samples: Samples) -> tuple[Table, list[Statistic]]:
        """Return the table to resample, and for each model the statistic to compute on each resample."""
        if self._best:
            columns = samples.scores
        else:
            pairs = zip(samples.scores, self._thresholds, strict=True)
            columns = tuple((scores >= threshold).astype(np.float64) for scores, threshold in pairs)
        table = Table.from_samples(columns, *samples[1:])
        return table, [self._make_statistic(table, column) for column in table.columns]

    def _make_statistic(self, table: Table, column: Floats) -> Statistic:
        if isinstance(self._metric, Metric):
            if self._best:
                return AtBest(table, column, self._metric, self._requirements)
            return AtThreshold(table, column, self._metric)
        for function, area in AREAS.values():
            if self._metric is function:
                return UnderCurve(table, column, area)
        return OfResample(table, column, self._metric)


def _resolve_metric(metric: str | Metric | Formula | OfScores) -> Metric | OfScores:
    ranking = get_ranking(metric)
    if ranking is not None:
        if ranking.name not in AREAS:
            raise InvalidValueError(f"{ranking.name} is of several classes, and the bootstrap of one score per sample")
        return AREAS[ranking.name][0]
    if isinstance(metric, (str, Metric, MetricFactory)) or not callable(metric):
        return get_metric(metric)
    parameters = list(inspect.signature(metric).parameters.values())
    if parameters and parameters[0].name == "y_true":
        name = getattr(metric, "__name__", "it")
        raise InvalidTypeError(f"the function is called with scores, then targets; write lambda s, y: {name}(y, s)")
    if _takes_counts(parameters):
        return get_metric(metric)
    return metric  # a function of two arguments is no Formula


def _takes_counts(parameters: list[inspect.Parameter]) -> bool:
    """Whether a function has at most one required parameter: Counts. Otherwise it takes scores and targets."""
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return False
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    return len(required) < 2


def check_samples(models: dict[str, Array], target: Array, weight: Array | None, groups: Array | None) -> Samples:
    """Check the samples of one or two named models, and leave out those of weight 0."""
    columns = []
    for name, scores in models.items():
        try:
            s, y, w = checked(scores, target, weight)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}" if len(models) > 1 else str(error)) from None
        columns.append(to_numpy(s, np.float64))
    group_numbers = None
    if groups is not None:
        labels = _check_groups(groups, len(column(target, "target")))
        labels = labels if weight is None else labels[to_numpy(column(weight, "weight")) > 0]
        group_numbers = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    weights = None if w is None else to_numpy(w, np.float64)
    return Samples(tuple(columns), to_numpy(y, np.float64), weights, group_numbers)


def _check_groups(groups: Array, samples: int) -> npt.NDArray[Any]:
    """Return one label per sample; they have one type because they are sorted, and none is missing."""
    labels = np.asarray(to_plain_value(groups) if is_tensor(groups) else groups)
    if labels.shape != (samples,):
        raise InvalidValueError(f"groups needs one label per sample: {samples} samples, but shape {labels.shape}")
    missing = np.array([_is_missing(label) for label in labels]) if labels.dtype == object else labels != labels
    if missing.any():
        raise InvalidValueError(
            f"{missing.sum()} of {samples} samples have no group (None or NaN); give each a unique label if it "
            "belongs to no other sample, or leave it out"
        )
    if labels.dtype == object and len({type(label) for label in labels}) > 1:
        raise InvalidTypeError("groups holds labels of several types; make them all strings, or all numbers")
    return labels


def _is_missing(label: object) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # the truth value of pandas.NA is not defined
        return True


def to_plain_value(value: Any) -> Any:
    """Convert tensors and arrays to numbers and lists; other values are unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
