"""What is computed of a resample: a metric at a threshold or at the best one, an area under a curve, a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.metrics.curves import LARGEST, one_class
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.stats.resampling import Floats, Integers, Table


class Drawn(NamedTuple):
    """A value a resample, NaN where there is none, and the threshold it was reached at."""

    value: Floats
    threshold: Floats | None = None


class Statistic(Protocol):
    """Multiplicities ``(r, rows)`` in, r values out."""

    def __call__(self, drawn: Integers) -> Drawn:
        """One value a row of ``drawn``."""


class AtThreshold:
    """A metric where a column of the table says what is called positive."""

    def __init__(self, table: Table, called: Floats, metric: Metric) -> None:
        kinds = (table.positive * called, table.negative * called)
        self._masses = np.stack([*kinds, table.positive * (1 - called), table.negative * (1 - called)], axis=1)
        self._metric = metric

    def __call__(self, drawn: Integers) -> Drawn:
        """One value a resample."""
        counts = torch.from_numpy(drawn @ self._masses).unsqueeze(-1)
        return Drawn(one_class(self._metric, Counts(*counts.unbind(1))).numpy())


class Sweep:
    """Counts at infinity and at every distinct score, of every resample, from one sort in all."""

    def __init__(self, table: Table, scores: Floats) -> None:
        self._order = np.argsort(-scores, kind="stable")
        falling = scores[self._order]
        self._last_of_ties = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
        self._positive, self._negative = table.positive[self._order], table.negative[self._order]
        self.thresholds = np.concatenate([[np.inf], falling[self._last_of_ties]])

    def counts(self, drawn: Integers) -> Counts:
        """Of shape ``(r, thresholds, 1)``."""
        drawn = drawn.take(self._order, axis=1)
        tp, fp = self._along(drawn * self._positive), self._along(drawn * self._negative)
        return Counts(tp, fp, tp[:, -1:] - tp, fp[:, -1:] - fp)

    def _along(self, mass: Floats) -> Tensor:
        sums = mass.cumsum(1)
        if len(self._last_of_ties) < mass.shape[1]:
            sums = sums.take(self._last_of_ties, axis=1)
        at_thresholds = np.zeros((len(mass), len(self.thresholds)))
        at_thresholds[:, 1:] = sums
        return torch.from_numpy(at_thresholds).unsqueeze(-1)


class AtBest:
    """A metric at the best threshold of each resample, as ``curves.best_threshold`` chooses it."""

    def __init__(self, table: Table, scores: Floats, metric: Metric, requirements: list[Requirement]) -> None:
        self._sweep = Sweep(table, scores)
        self._metric, self._requirements = metric, requirements
        self._on_data = one_class(metric, self._sweep.counts(table.size[None])).numpy()[0]

    def on_data(self, threshold: Floats) -> Floats:
        """The metric on the data themselves at thresholds that resamples chose."""
        found: Floats = self._on_data[np.searchsorted(-self._sweep.thresholds, -threshold)]
        return found

    def __call__(self, drawn: Integers) -> Drawn:
        """One value a resample."""
        counts = self._sweep.counts(drawn)
        value = one_class(self._metric, counts)
        better = -value if self._metric.minimize else value
        allowed = torch.ones_like(value, dtype=torch.bool)
        for given in self._requirements:
            allowed &= given.forgives(one_class(given, counts))
        highest = better.masked_fill(~allowed, -torch.inf).amax(1, keepdim=True)
        # Equal values that were rounded differently are ties, and thresholds fall: the first is the largest.
        best = allowed & (better >= highest - ROUNDING * highest.abs().clamp(max=LARGEST))
        at = best.int().argmax(1, keepdim=True)
        feasible = allowed.any(1).numpy()
        chosen = value.gather(1, at).squeeze(1).numpy()
        threshold = self._sweep.thresholds[at.squeeze(1).numpy()]
        return Drawn(np.where(feasible, chosen, np.nan), np.where(feasible, threshold, np.nan))


class UnderCurve:
    """The area under the ROC curve or the average precision; NaN for a resample without the classes it needs."""

    def __init__(self, table: Table, scores: Floats, area: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._sweep = Sweep(table, scores)
        self._area = area

    def __call__(self, drawn: Integers) -> Drawn:
        """One value a resample."""
        counts = self._sweep.counts(drawn)
        return Drawn(self._area(counts.tp.squeeze(-1), counts.fp.squeeze(-1)).numpy())


def area_under_roc(tp: Tensor, fp: Tensor) -> Tensor:
    """``curves.auroc`` of counts ``(r, thresholds)``."""
    return torch.trapezoid(tp, fp) / (tp[:, -1] * fp[:, -1])


def average_precision(tp: Tensor, fp: Tensor) -> Tensor:
    """``curves.average_precision`` of counts ``(r, thresholds)``; a step without gain adds nothing."""
    gain, predicted = tp.diff(dim=1), (tp + fp)[:, 1:]
    return (gain * tp[:, 1:] / predicted.masked_fill(predicted == 0, 1.0)).sum(1) / tp[:, -1]


class OfResample:
    """A function of the scores and targets of a resample, written out; NaN where it fails for want of a class.

    A resample may lack a class that the data have. Some functions have a value there and some raise: that is the
    resample's fault, not the function's. Any other error is raised.
    """

    def __init__(self, table: Table, scores: Floats, function: Callable[..., Any]) -> None:
        self._arrays = [scores, table.target.astype(np.int64)] + ([] if table.weight is None else [table.weight])
        self._classes = len(np.unique(table.target))
        self._function = function

    def __call__(self, drawn: Integers) -> Drawn:
        """One value a resample."""
        rows = np.arange(drawn.shape[1])
        return Drawn(np.array([self._value(np.repeat(rows, multiplicity)) for multiplicity in drawn]))

    def _value(self, which: Integers) -> float:
        given = [one[which] for one in self._arrays]
        try:
            return float(self._function(*given))
        except Exception:
            if len(np.unique(given[1])) < self._classes:
                return np.nan
            raise
