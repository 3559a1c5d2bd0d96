"""Statistics of resamples: a metric at a fixed or the best threshold, an area under a curve, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from metricfit.core.counts import Counts
from metricfit.core.numerics import LARGEST, ROUNDING
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import choose_among_ties, one_class
from metricfit.stats.resampling import Floats, Integers, Table


class Drawn(NamedTuple):
    """One value per resample (NaN where there is none), and the threshold at which it was computed."""

    value: Floats
    threshold: Floats | None = None


class Statistic(Protocol):
    """A function from multiplicities ``(r, rows)`` to r values."""

    def __call__(self, drawn: Integers) -> Drawn:
        """Compute one value per row of ``drawn``."""


class AtThreshold:
    """A metric at a fixed threshold; a column of the table says which rows are predicted positive."""

    def __init__(self, table: Table, predicted: Floats, metric: Metric) -> None:
        positive, negative, rest = table.positive, table.negative, 1 - predicted
        self._masses = np.stack([positive * predicted, negative * predicted, positive * rest, negative * rest], axis=1)
        self._metric = metric

    def __call__(self, drawn: Integers) -> Drawn:
        """Compute one value per resample."""
        counts = (drawn @ self._masses).T[..., None]
        return Drawn(one_class(self._metric, Counts(*counts)))


class Sweep:
    """Counts of every resample at infinity and at every distinct score, from a single sort."""

    def __init__(self, table: Table, scores: Floats) -> None:
        self._order = np.argsort(-scores, kind="stable")
        falling = scores[self._order]
        self._last_of_ties = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
        self._positive, self._negative = table.positive[self._order], table.negative[self._order]
        self.thresholds = np.concatenate([[np.inf], falling[self._last_of_ties]])

    def counts(self, drawn: Integers) -> Counts:
        """Compute the counts, of shape ``(r, thresholds, 1)``."""
        drawn = drawn.take(self._order, axis=1)
        tp, fp = self._accumulate(drawn * self._positive), self._accumulate(drawn * self._negative)
        return Counts(tp, fp, tp[:, -1:] - tp, fp[:, -1:] - fp)

    def _accumulate(self, mass: Floats) -> Floats:
        sums = mass.cumsum(1)
        if len(self._last_of_ties) < mass.shape[1]:
            sums = sums.take(self._last_of_ties, axis=1)
        at_thresholds = np.zeros((len(mass), len(self.thresholds)))
        at_thresholds[:, 1:] = sums
        return at_thresholds[..., None]


class AtBest:
    """A metric at the best threshold of each resample, which is chosen as in ``curves.best_threshold``."""

    def __init__(self, table: Table, scores: Floats, metric: Metric, requirements: list[Requirement]) -> None:
        self._sweep = Sweep(table, scores)
        self._metric, self._requirements = metric, requirements
        self._on_data = one_class(metric, self._sweep.counts(table.size[None]))[0]

    def on_data(self, threshold: Floats) -> Floats:
        """Compute the metric on the data at thresholds that resamples chose."""
        values: Floats = self._on_data[np.searchsorted(-self._sweep.thresholds, -threshold)]
        return values

    def __call__(self, drawn: Integers) -> Drawn:
        """Compute one value per resample."""
        counts = self._sweep.counts(drawn)
        value = one_class(self._metric, counts)
        better = -value if self._metric.minimize else value
        allowed = np.ones(value.shape, bool)
        for requirement in self._requirements:
            allowed &= requirement.forgives(one_class(requirement, counts))
        highest = np.where(allowed, better, -np.inf).max(1, keepdims=True)
        # Values that differ only by rounding are ties.
        tied = allowed & (better >= highest - ROUNDING * np.minimum(abs(highest), LARGEST))
        index = choose_among_ties(tied, counts.tp[..., 0], counts.fp[..., 0])
        feasible = allowed.any(1)
        chosen = np.take_along_axis(value, index, 1)[:, 0]
        threshold = self._sweep.thresholds[index[:, 0]]
        return Drawn(np.where(feasible, chosen, np.nan), np.where(feasible, threshold, np.nan))


class UnderCurve:
    """Area under the ROC curve, or average precision; NaN for a resample that lacks a class."""

    def __init__(self, table: Table, scores: Floats, area: Callable[[Floats, Floats], Floats]) -> None:
        self._sweep = Sweep(table, scores)
        self._area = area

    def __call__(self, drawn: Integers) -> Drawn:
        """Compute one value per resample."""
        counts = self._sweep.counts(drawn)
        return Drawn(self._area(counts.tp[..., 0], counts.fp[..., 0]))


class OfResample:
    """A user-defined function of the scores and targets of a resample.

    A resample may lack a class that the data have. If the function raises an error there, the value is NaN. Any other
    error is raised.
    """

    def __init__(self, table: Table, scores: Floats, function: Callable[..., Any]) -> None:
        self._arrays = [scores, table.target.astype(np.int64)] + ([] if table.weight is None else [table.weight])
        self._classes = len(np.unique(table.target))
        self._function = function

    def __call__(self, drawn: Integers) -> Drawn:
        """Compute one value per resample."""
        rows = np.arange(drawn.shape[1])
        return Drawn(np.array([self._compute_value(np.repeat(rows, multiplicity)) for multiplicity in drawn]))

    def _compute_value(self, rows: Integers) -> float:
        arguments = [array[rows] for array in self._arrays]
        try:
            return float(self._function(*arguments))
        except Exception:
            if len(np.unique(arguments[1])) < self._classes:
                return np.nan
            raise
