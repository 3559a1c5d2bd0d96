"""What is asked of the samples: checked once, here; then a table to draw from and a statistic of each draw."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from metricfit.metrics import curves
from metricfit.metrics.base import Formula, Metric, MetricFactory, get_metric
from metricfit.metrics.curves import Requirements, _checked, _requirements
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
        self._requirements = _requirements(subject_to)
        self._best = all(given == "best" for given in thresholds)
        if not self._best and not all(_is_number(given) for given in thresholds):
            raise ValueError(f"threshold is 'best' or a number, got {', '.join(map(repr, thresholds))}")
        self._thresholds = [math.nan if self._best else float(given) for given in thresholds]
        if not isinstance(self._what, Metric) and not self._best:
            raise ValueError(f"{self.name} is computed from all scores, so no threshold applies: leave threshold out")
        if self._requirements and not (isinstance(self._what, Metric) and self._best):
            raise ValueError("subject_to says which thresholds may be chosen: it needs a metric and threshold='best'")

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
    if isinstance(metric, (str, Metric, MetricFactory)) or not callable(metric) or _parameters(metric) < 2:
        return get_metric(metric)  # type: ignore[arg-type]
    return metric  # type: ignore[return-value]  # a function of two arguments is no Formula


def _parameters(function: Callable[..., object]) -> int:
    """How many a function must be given: one means Counts, two scores and targets."""
    return sum(each.default is each.empty for each in inspect.signature(function).parameters.values())


def checked_samples(models: dict[str, Array], target: Array, weight: Array | None, groups: Array | None) -> Samples:
    """The samples of one or two named models; those of weight 0 are left out."""
    columns = []
    for name, scores in models.items():
        try:
            s, y, w = _checked(scores, target, weight)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}" if len(models) > 1 else str(error)) from None
        columns.append(s.double().cpu().numpy())
    labels = None
    if groups is not None:
        given = np.asarray(groups)
        n = len(target)
        if given.shape != (n,):
            raise ValueError(f"groups has one label a sample: {n} samples, but shape {given.shape}")
        kept = np.ones(n, dtype=bool) if weight is None else np.asarray(weight, dtype=np.float64).reshape(n) > 0
        labels = np.unique(given[kept], return_inverse=True)[1].astype(np.int64)
    weights = None if w is None else w.double().cpu().numpy()
    return Samples(tuple(columns), y.double().cpu().numpy(), weights, labels)


def _is_number(given: object) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool) and not math.isnan(given)
