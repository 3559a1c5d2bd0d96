"""What is asked of the samples: checked once, here; then a table to draw from and a statistic of each draw."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics import curves
from metricfit.metrics.curves import Requirements, as_requirements, checked, column
from metricfit.metrics.metric import Formula, Metric, MetricFactory, get_metric
from metricfit.stats.resampling import Floats, Integers, Table
from metricfit.stats.statistics import (
    AtBest,
    AtThreshold,
    OfResample,
    Statistic,
    UnderCurve,
    area_under_roc,
    average_precision,
)

Array = Any
OfScores = Callable[..., float]
AREAS: dict[str, tuple[OfScores, Callable[[Tensor, Tensor], Tensor]]] = {
    "auroc": (curves.auroc, area_under_roc),
    "average_precision": (curves.average_precision, average_precision),
}


class Samples(NamedTuple):
    """Scores, one array a model, and what belongs to each sample; all in float64 on the CPU."""

    scores: tuple[Floats, ...]
    target: Floats
    weight: Floats | None
    group: Integers | None


class OnData(NamedTuple):
    """A value on the data, and the threshold it belongs to."""

    value: float
    threshold: float | None


class Question:
    """What is asked of each model: a metric at given thresholds or at the best, or a function of scores and targets."""

    def __init__(
        self,
        metric: str | Metric | Formula | OfScores,
        subject_to: Requirements | None,
        thresholds: tuple[float | str, ...],
    ) -> None:
        self._what = _metric_or_function(metric)
        self._requirements = as_requirements(subject_to)
        thresholds = tuple(plain(given) for given in thresholds)
        self._best = all(given == "best" for given in thresholds)
        if not self._best and not all(_is_number(given) for given in thresholds):
            raise InvalidValueError(f"threshold is 'best' or a number, got {', '.join(map(repr, thresholds))}")
        self._thresholds = [math.nan if self._best else float(given) for given in thresholds]
        if not isinstance(self._what, Metric) and not self._best:
            raise InvalidValueError(
                f"{self.name} is computed from all scores, so no threshold applies: leave threshold out"
            )
        if self._requirements and not (isinstance(self._what, Metric) and self._best):
            raise InvalidValueError(
                "subject_to says which thresholds may be chosen: it needs a metric and threshold='best'"
            )

    @property
    def name(self) -> str:
        """The metric's or the function's."""
        what = self._what
        return what.name if isinstance(what, Metric) else getattr(what, "__name__", type(what).__name__)

    def on(self, samples: Samples) -> list[OnData]:
        """The values on the data themselves; raises where they have none."""
        weight = () if samples.weight is None else (samples.weight,)
        found = []
        for scores, threshold in zip(samples.scores, self._thresholds, strict=True):
            if not isinstance(self._what, Metric):
                found.append(OnData(float(self._what(scores, samples.target.astype(np.int64), *weight)), None))
            elif self._best:
                best = curves.best_threshold(
                    scores, samples.target, self._what, self._requirements, weight=samples.weight
                )
                found.append(OnData(best.value, best.threshold))
            else:
                alone = Table.of(((scores >= threshold).astype(np.float64),), *samples[1:])
                value = AtThreshold(alone, alone.columns[0], self._what)(alone.size[None]).value
                found.append(OnData(float(value[0]), threshold))
        return found

    def statistics(self, samples: Samples) -> tuple[Table, list[Statistic]]:
        """The table to draw from, and what to compute of each draw, one a model."""
        if self._best:
            columns = samples.scores
        else:
            both = zip(samples.scores, self._thresholds, strict=True)
            columns = tuple((scores >= threshold).astype(np.float64) for scores, threshold in both)
        table = Table.of(columns, *samples[1:])
        return table, [self._statistic(table, column) for column in table.columns]

    def _statistic(self, table: Table, column: Floats) -> Statistic:
        if isinstance(self._what, Metric):
            if self._best:
                return AtBest(table, column, self._what, self._requirements)
            return AtThreshold(table, column, self._what)
        for function, area in AREAS.values():
            if self._what is function:
                return UnderCurve(table, column, area)
        return OfResample(table, column, self._what)


def _metric_or_function(metric: str | Metric | Formula | OfScores) -> Metric | OfScores:
    if isinstance(metric, str) and metric in AREAS:
        return AREAS[metric][0]
    if isinstance(metric, (str, Metric, MetricFactory)) or not callable(metric):
        return get_metric(metric)
    given = list(inspect.signature(metric).parameters.values())
    if given and given[0].name == "y_true":
        name = getattr(metric, "__name__", "it")
        raise InvalidTypeError(f"a function is called with scores, then targets; write lambda s, y: {name}(y, s)")
    if _takes_counts(given):
        return get_metric(metric)  # type: ignore[arg-type]
    return metric  # type: ignore[return-value]  # a function of two arguments is no Formula


def _takes_counts(parameters: list[inspect.Parameter]) -> bool:
    """Whether one is all that a function must be given: then it is Counts; two are scores and targets."""
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return False
    return sum(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters) < 2


def checked_samples(models: dict[str, Array], target: Array, weight: Array | None, groups: Array | None) -> Samples:
    """The samples of one or two named models; those of weight 0 are left out."""
    columns = []
    for name, scores in models.items():
        try:
            s, y, w = checked(scores, target, weight)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}" if len(models) > 1 else str(error)) from None
        columns.append(s.double().cpu().numpy())
    labels = None
    if groups is not None:
        given = _group_labels(groups, len(column(target, "target")))
        kept = given if weight is None else given[(column(weight, "weight").detach() > 0).cpu().numpy()]
        labels = np.unique(kept, return_inverse=True)[1].astype(np.int64)
    weights = None if w is None else w.double().cpu().numpy()
    return Samples(tuple(columns), y.double().cpu().numpy(), weights, labels)


def _group_labels(groups: Array, samples: int) -> npt.NDArray[Any]:
    """One label a sample, none of them missing, all of one type: they are sorted to be told apart."""
    given = np.asarray(plain(groups) if isinstance(groups, Tensor) else groups)
    if given.shape != (samples,):
        raise InvalidValueError(f"groups has one label a sample: {samples} samples, but shape {given.shape}")
    missing = np.array([_is_missing(each) for each in given]) if given.dtype == object else given != given
    if missing.any():
        raise InvalidValueError(
            f"{missing.sum()} of {samples} samples have no group (None or NaN); give each a label of its own if it "
            "belongs to no other, or leave it out"
        )
    if given.dtype == object and len({type(each) for each in given}) > 1:
        raise InvalidTypeError("groups holds labels of several types; make them all strings, or all numbers")
    return given


def _is_missing(label: object) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas' NA is neither equal to itself nor not
        return True


def plain(given: Any) -> Any:
    """Numbers and lists of tensors and arrays, from any device; anything else as it is."""
    return given.tolist() if hasattr(given, "tolist") else given


def _is_number(given: object) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool) and not math.isnan(given)
