"""Tests of the difference of two methods: by a paired bootstrap of the rows, or by the folds.

Every row is judged by models that did not see it. Rows are drawn with replacement within each fold, the same for both
methods, and the means over the folds are subtracted. With weights, the rows of one label and two decisions
weigh a number from the gamma distribution with the mean and variance of a Poisson bootstrap. The test says
whether the methods, as they were trained here, differ on other rows. Few folds prove little: a difference in F2 of 0.3
was not significant by the corrected t-test of five folds, because its variance is estimated from five numbers.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from metricfit import stats
from metricfit.core.arrays import Floats, Integers, to_numpy
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs import RowCosts
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Metric
from metricfit.stats import Interval, Probabilities, SplitComparison
from metricfit.stats.results import compute_interval, compute_p_value

DRAWS, TIE, LEVEL = 2000, 0.01, 0.95
#: With more classes there are too many cells of two decisions and a label; the folds are then compared.
MOST_CLASSES = 12
ROWS_AT_A_TIME = 1000


class PairTest(Protocol):
    """Compares methods by their names."""

    @property
    def evidence(self) -> str:
        """What the test is made on, such as "5 folds"."""

    def __call__(self, name: str, base: str, comparisons: int = 1) -> SplitComparison | None:
        """Compare a method with another; None if they are equal on every fold."""


def compare_two(
    values: Sequence[float], base: Sequence[float], metric: Metric, comparisons: int = 1
) -> stats.SplitComparison | None:
    """Compare two methods on the folds of one cross-validation; None where they are equal on every fold.

    ``comparisons`` is the number of comparisons made together: the level of the interval is raised for it, from 95 %
    to 100 % - 5 % / comparisons (Bonferroni). With few folds it can be wider than the metric allows, so it is cut where
    no difference of two values can lie: at -1 and 1 for f1.

    >>> from metricfit.metrics import get_metric
    >>> compare_two([0.8, 0.7, 0.9], [0.7, 0.7, 0.8], get_metric("f1")).wins
    2
    """
    if list(values) == list(base):
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the values differ by .* on every split")  # the verdict reports it
        comparison = stats.compare_splits(
            values,
            base,
            test_fraction=1 / len(values),
            rope=TIE,
            minimize=metric.minimize,
            level=1 - (1 - LEVEL) / comparisons,
        )
    lowest, highest = metric.bounds
    span = highest - lowest
    low, high = comparison.interval
    return replace(comparison, interval=stats.Interval(max(low, -span), min(high, span)))


@dataclass(frozen=True)
class FoldTest:
    """The corrected resampled t-test of the folds.

    Attributes:
        values: The metric of each method on each fold.
        metric: The metric; it says which direction is better.
    """

    values: Mapping[str, Sequence[float]]
    metric: Metric

    @property
    def evidence(self) -> str:
        """What the test is made on."""
        return f"{len(next(iter(self.values.values())))} folds"

    def __call__(self, name: str, base: str, comparisons: int = 1) -> SplitComparison | None:
        """Compare a method with another; None if they are equal on every fold."""
        return compare_two(self.values[name], self.values[base], self.metric, comparisons)


@dataclass(frozen=True)
class RowTest:
    """The paired bootstrap of the rows.

    Attributes:
        values: The metric of each method on each fold.
        decided: The class numbers that each method decided for the rows.
        labels: Their class numbers.
        folds: The fold that held each row out.
        metric: The metric, of counts.
        average: Its average over several classes.
        otherwise: The test of methods whose decisions are not known.
        weight: The weight of each row, or None.
        costs: What decisions about the rows cost, for a metric that takes costs from columns.
    """

    values: Mapping[str, Sequence[float]]
    decided: Mapping[str, Integers]
    labels: Integers
    folds: Integers
    metric: Metric
    average: ScalarAverage
    otherwise: PairTest
    weight: Floats | None = None
    costs: RowCosts | None = None
    _known: dict[tuple[str, str], Floats] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        decisions: Mapping[str, Any],
        labels: Integers,
        average: ScalarAverage,
        otherwise: FoldTest,
        weight: Floats | None = None,
        costs: RowCosts | None = None,
    ) -> PairTest:
        """Return the test of the decisions of a comparison, or the other one where rows cannot be resampled.

        Args:
            decisions: The decisions of each method.
            labels: The class numbers of the rows.
            average: The average over several classes.
            otherwise: The test of the folds.
            weight: The weight of each row, or None.
            costs: What decisions cost, for a metric that takes costs from columns.
        """
        folds = next((each.folds for each in decisions.values()), None)
        if folds is None or (otherwise.metric.columns and costs is None) or labels.max() >= MOST_CLASSES:
            return otherwise
        decided = {name: each.decided for name, each in decisions.items()}
        return cls(otherwise.values, decided, labels, folds, otherwise.metric, average, otherwise, weight, costs)

    @property
    def evidence(self) -> str:
        """What the test is made on."""
        return f"{len(self.labels):,} rows"

    def __call__(self, name: str, base: str, comparisons: int = 1) -> SplitComparison | None:
        """Compare a method with another; see ``PairTest``."""
        if list(self.values[name]) == list(self.values[base]):
            return None
        if name not in self.decided or base not in self.decided:
            return self.otherwise(name, base, comparisons)
        pairs = list(zip(self.values[name], self.values[base], strict=True))
        drawn, level = self._draws(name, base), 1 - (1 - LEVEL) / comparisons
        low, high = compute_interval(drawn, None, level)
        span = float(np.subtract(*self.metric.bounds[::-1]))
        gains = -drawn if self.metric.minimize else drawn
        better, worse = float((gains > TIE).mean()), float((gains < -TIE).mean())
        signs = [float(np.sign(a - b)) * (-1 if self.metric.minimize else 1) for a, b in pairs]
        difference = statistics.fmean(a - b for a, b in pairs)
        return SplitComparison(
            wins=signs.count(1.0),
            losses=signs.count(-1.0),
            ties=signs.count(0.0),
            difference=difference,
            interval=Interval(max(low, -span), min(high, span)),
            level=level,
            p_value=compute_p_value(drawn, None),
            probabilities=Probabilities(better, 1 - better - worse, worse),
            rope=TIE,
            splits=len(pairs),
            statistic=difference / max(float(drawn.std()), 1e-12),
        )

    def _draws(self, name: str, base: str) -> Floats:
        """Draw the difference of the means over the folds; rows count by their label and their two decisions."""
        if (base, name) in self._known:
            return -self._known[base, name]
        if (name, base) in self._known:
            return self._known[name, base]
        first, second = self.decided[name], self.decided[base]
        if self.costs is not None:
            paid = [to_numpy(self.costs.of_decisions(each, self.labels)) for each in (first, second)]
            self._known[name, base] = self._draws_of_costs(paid[0] - paid[1])
            return self._known[name, base]
        classes, rng = int(max(self.labels.max(), first.max(), second.max(), 1)) + 1, np.random.default_rng(0)
        total = np.zeros(DRAWS)
        for fold in range(self.folds.max() + 1):
            part = self.folds == fold
            rows = np.stack([self.labels[part], first[part], second[part]])
            cells, cell, counts = np.unique(rows, axis=1, return_inverse=True, return_counts=True)
            if self.weight is None:
                drawn = rng.multinomial(counts.sum(), counts / counts.sum(), size=DRAWS).astype(np.float64)
            else:
                sums, squares = (np.bincount(cell.reshape(-1), self.weight[part] ** power) for power in (1, 2))
                drawn = rng.gamma(sums**2 / squares, squares / sums, size=(DRAWS, len(sums)))
            for decided, sign in ((cells[1], 1), (cells[2], -1)):
                in_matrix = np.eye(classes**2)[cells[0] * classes + decided]
                total += sign * self._value((drawn @ in_matrix).reshape(-1, classes, classes))
        self._known[name, base] = total / (self.folds.max() + 1)
        return self._known[name, base]

    def _draws_of_costs(self, difference: Floats) -> Floats:
        """Draw the difference of the mean costs over the folds; every row that differs is drawn a Poisson number."""
        rng, total, number = np.random.default_rng(0), np.zeros(DRAWS), self.folds.max() + 1
        weight = np.ones(len(difference)) if self.weight is None else self.weight
        for fold in range(number):
            part = np.flatnonzero(self.folds == fold)
            weighed = (difference * weight)[part] / (number * weight[part].sum())
            weighed = weighed[weighed != 0]
            for at in range(0, len(weighed), ROWS_AT_A_TIME):
                rows = weighed[at : at + ROWS_AT_A_TIME]
                total += rng.poisson(size=(DRAWS, len(rows))) @ rows
        return total

    def _value(self, matrix: Floats) -> Floats:
        if matrix.shape[-1] > 2:
            return np.asarray(averaged(self.metric, ConfusionMatrix(matrix), self.average))
        (tn, fp), (fn, tp) = matrix.transpose(1, 2, 0)[..., None]
        return np.asarray(averaged(self.metric, Counts(tp, fp, fn, tn), self.average))
