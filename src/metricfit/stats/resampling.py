"""Resamples as multiplicities: how often each sample was drawn, so that samples are not copied or sorted again.

A resample is a row of integers, one per sample. Counts at one threshold, and at all thresholds of one sorted order, are
weighted sums with these integers. Samples that are equal for the metric (of one class, on one side of a fixed
threshold) form one row of a table, whose multiplicity is drawn at once: one binomial number instead of n draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from metricfit.core.arrays import Array, to_numpy
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import best_places, one_class

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Seed = int | np.random.Generator

BLOCK_SIZE = 2**16  # multiplicities per block, so that a block stays in the cache
FEW_CODES = 16  # numbers below this are counted without sorting
WORTH_TABULATING = 8  # drawing a row's multiplicity costs about as much as drawing this many samples


@dataclass(frozen=True)
class Table:
    """Samples of one or two models; equal samples share a row, and ``size`` is their number."""

    columns: tuple[Floats, ...]
    target: Floats
    weight: Floats | None
    group: Integers | None
    size: Integers

    @classmethod
    def from_samples(
        cls, columns: tuple[Floats, ...], target: Floats, weight: Floats | None, group: Integers | None
    ) -> Table:
        """Make a table; samples with weights or groups keep one row each."""
        if weight is None and group is None:
            code = target.astype(np.int64)
            for column in columns:
                if ((column == 0) | (column == 1)).all():  # decisions, which need not be sorted
                    code = 2 * code + column.astype(np.int64)
                else:
                    distinct, rank = np.unique(column, return_inverse=True)
                    code = np.unique(code * len(distinct) + rank, return_inverse=True)[1]
            rows, size = _first_rows_and_sizes(code)
            if len(rows) * WORTH_TABULATING <= len(target):
                return cls(tuple(column[rows] for column in columns), target[rows], None, None, size.astype(np.int64))
        return cls(columns, target, weight, group, np.ones(len(target), dtype=np.int64))

    @property
    def positive(self) -> Floats:
        """What one draw of each row adds to the positives."""
        return self.target if self.weight is None else self.target * self.weight

    @property
    def negative(self) -> Floats:
        """What one draw of each row adds to the negatives."""
        return 1 - self.target if self.weight is None else (1 - self.target) * self.weight


def _first_rows_and_sizes(code: Integers) -> tuple[Integers, Integers]:
    """Return where each number occurs first, and how often, in the order of the numbers.

    >>> _first_rows_and_sizes(np.array([3, 0, 3]))
    (array([1, 0]), array([1, 2]))
    """
    if len(code) and code.max() < FEW_CODES:
        sizes = np.bincount(code)
        there = np.flatnonzero(sizes)
        return np.array([int((code == number).argmax()) for number in there]), sizes[there]
    _, rows, size = np.unique(code, return_index=True, return_counts=True)
    return rows, size


class Resampler:
    """Draws units (samples, or whole groups) with replacement, as many as there are.

    With ``stratified``, units with a positive and units without are drawn separately. If the units are samples, every
    resample then has as many positives and negatives as the data.
    """

    def __init__(self, table: Table, *, stratified: bool, seed: Seed) -> None:
        self._unit = None if table.group is None else np.unique(table.group, return_inverse=True)[1]
        has_positive = table.target > 0 if self._unit is None else np.bincount(self._unit, weights=table.target) > 0
        size = table.size if self._unit is None else np.ones(len(has_positive), dtype=np.int64)
        strata = (
            (np.flatnonzero(has_positive), np.flatnonzero(~has_positive))
            if stratified
            else (np.arange(len(has_positive)),)
        )
        self._strata = [(stratum, size[stratum]) for stratum in strata if len(stratum)]
        if all(number.sum() == 1 for _, number in self._strata):
            unit, remedy = ("sample", "") if self._unit is None else ("group", "; without groups= samples are drawn")
            strata_text = " with a positive, and one without," if len(self._strata) > 1 else ""
            raise InvalidValueError(
                f"one {unit}{strata_text} cannot be resampled: every resample would equal the data{remedy}"
            )
        self._units, self._rows = len(has_positive), len(table.target)
        self._rng = np.random.default_rng(seed)

    def draw(self, resamples: int) -> Iterator[Integers]:
        """Yield blocks of multiplicities, each with one line per resample, until there are ``resamples`` lines."""
        lines = max(1, BLOCK_SIZE // self._rows)
        for start in range(0, resamples, lines):
            yield self._draw_block(min(lines, resamples - start))

    def _draw_block(self, resamples: int) -> Integers:
        drawn = np.empty((resamples, self._units), dtype=np.int64)
        for stratum, size in self._strata:
            drawn[:, stratum] = self._draw_multinomial(size, resamples)
        return drawn if self._unit is None else drawn.take(self._unit, axis=1)

    def _draw_multinomial(self, size: Integers, resamples: int) -> Integers:
        n = len(size)
        if size.sum() > n:
            return self._rng.multinomial(size.sum(), size / size.sum(), size=resamples)
        drawn_rows = self._rng.integers(0, n, size=(resamples, n))
        drawn_rows += n * np.arange(resamples)[:, None]
        return np.bincount(drawn_rows.ravel(), minlength=n * resamples).reshape(resamples, n)


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
        allowed = np.ones(value.shape, bool)
        for requirement in self._requirements:
            allowed &= requirement.forgives(one_class(requirement, counts))
        index = best_places(value, allowed, counts, minimize=self._metric.minimize)
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


RESAMPLES = 1000


def resampled_counts(
    predicted: NDArray[np.int64], target: NDArray[np.int64], classes: int, seed: int = 0, *, matrix: bool = False
) -> Counts:
    """Draw bootstrap resamples of decisions.

    Metrics of decisions depend on the confusion matrix alone, so resampling the rows is drawing the matrix from a
    multinomial distribution: first the number of rows of each class, then its row of the matrix. Memory is
    O(resamples x classes), one row of the matrix at a time; with ``matrix`` it is O(resamples x classes x classes).

    Args:
        predicted: Numbers of the predicted classes.
        target: Numbers of the true classes.
        classes: The number of classes.
        seed: Seed of the draws.
        matrix: Whether the counts must hold the whole confusion matrix.

    Returns:
        The counts of the resamples, of shape ``(resamples, classes)``.
    """
    rng = np.random.default_rng(seed)
    tp, called = np.zeros((RESAMPLES, classes)), np.zeros((RESAMPLES, classes))
    matrices = np.zeros((RESAMPLES, classes, classes) if matrix else 0)
    of_class = np.bincount(target, minlength=classes)
    rows = rng.multinomial(len(target), of_class / len(target), size=RESAMPLES)
    for label in np.flatnonzero(of_class):
        shares = np.bincount(predicted[target == label], minlength=classes) / of_class[label]
        drawn = rng.multinomial(rows[:, label], shares)
        tp[:, label] = drawn[:, label]
        called += drawn
        if matrix:
            matrices[:, label] = drawn
    if matrix:
        return ConfusionMatrix(matrices)
    fp, fn = called - tp, rows - tp
    return Counts(tp, fp, fn, len(target) - tp - fp - fn)


def percentile_interval(values: Array) -> tuple[float, float]:
    """Return the 95 % percentile interval of resampled values."""
    low, high = np.quantile(to_numpy(values), [0.025, 0.975])
    return float(low), float(high)
