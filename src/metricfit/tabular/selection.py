"""How much each family counts in the ensemble, chosen on its out-of-fold logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from metricfit.core.arrays import Array, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.costs import RowCosts, best_margin
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.offsets import best_offsets
from metricfit.metrics.curves import best_or_nearest
from metricfit.metrics.feasibility import ChosenThreshold
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import sweep
from metricfit.tabular.families.family import Floats, Integers, log_losses

#: Steps of the greedy selection; a family's weight is the share of steps in which it was chosen.
STEPS = 20
STEPS_OF_SEVERAL_CLASSES = 10
#: Rows on which offsets of several classes are searched while weights are chosen.
ROWS_OF_SEVERAL_CLASSES = 3000

#: Scores of mixtures ``(k, n, c)``, each of which is numbers that are compared in this order; higher is better.
Scores = Callable[[Floats], Sequence[tuple[float, ...]]]


@dataclass(frozen=True)
class Selection:
    """What the weights of families are chosen for.

    Attributes:
        y: Class numbers of the held-out rows.
        weight: Their weights, or None.
        metric: The metric.
        average: Its average over several classes.
        requirements: Requirements on the decisions, for two classes.
        costs: The costs of each row, if the metric takes costs from columns.
    """

    y: Integers
    weight: Floats | None
    metric: Metric
    average: ScalarAverage
    requirements: Sequence[Requirement] = ()
    costs: RowCosts | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", to_numpy(self.y, np.int64))
        if self.weight is not None:
            object.__setattr__(self, "weight", to_numpy(self.weight, np.float64))

    def value(self, logits: Array) -> float:
        """Return the metric at the best decision of these logits; among thresholds, only feasible ones count.

        If no threshold meets the requirements, this is the value at the one with the smallest violation.
        """
        z = to_numpy(logits, np.float64)
        if self.costs is not None:
            return best_margin(self.costs.margins(z)[:, 0], self.y, self.weight, self.costs).value
        if z.shape[1] == 1:
            return best_or_nearest(sweep(z[:, 0], self.y, self.weight), self.metric, self.requirements).value
        found = best_offsets(z, self.y, self.metric, average=self.average, weight=self.weight, rounds=1, starts=1)
        return found.value

    def decided_value(self, logits: Array) -> float:
        """Return the metric of the decisions that the classifier itself would make about these logits.

        It is ``value``, except for metrics of the whole confusion matrix, which decide by expected costs; offsets alone
        would show families far below an ensemble of them. While weights are chosen, offsets are quick and suffice.
        """
        if not self.metric.needs_matrix or self.requirements:
            return self.value(logits)
        held_out = collect_held_out(to_numpy(logits, np.float64), self.y, self.weight, None)
        decision = choose_without_intervals(held_out, self.metric, subject_to=(), average=self.average)
        return decision.evidence.value

    def log_loss(self, logits: Array) -> float:
        """Return the mean cross-entropy of calibrated logits."""
        return float(self._log_losses(to_numpy(logits, np.float64)[None])[0])

    def weights(self, logits: Sequence[Array]) -> Floats:
        """Choose the weight of each family; they sum to 1.

        Half of the weights are chosen greedily for the metric and half greedily for the cross-entropy. The metric alone
        would fit the choice to the rows if positives are few: many mixtures then have nearly the same value, and the
        cross-entropy tells which of them order the rows best.

        Args:
            logits: For each family, its calibrated out-of-fold logits.

        Returns:
            One weight per family.
        """
        if len(logits) == 1:
            return np.ones(1)
        z = np.stack([to_numpy(values, np.float64) for values in logits])
        return (self.weights_for_metric(z) + self.weights_for_log_loss(z)) / 2

    def weights_for_metric(self, logits: Floats) -> Floats:
        """Choose weights greedily for the metric; the logits of all families are ``(families, n, c)``."""
        if logits.shape[2] == 1:
            return greedy(logits, self._scores, STEPS)
        part = self._part(ROWS_OF_SEVERAL_CLASSES)
        return greedy(logits[:, part], self._take(part)._scores, STEPS_OF_SEVERAL_CLASSES)

    def weights_for_log_loss(self, logits: Floats) -> Floats:
        """Choose weights greedily for the cross-entropy."""
        return greedy(logits, lambda mixtures: [(-loss,) for loss in self._log_losses(mixtures).tolist()], STEPS)

    def score(self, logits: Floats) -> tuple[float, float]:
        """Return how good a mixture is at its best decision.

        Args:
            logits: The logits of the mixture.

        Returns:
            The largest violation of a requirement there, negated and 0 if all are met, and the value, negated if lower
            is better. So a mixture that violates the requirements less is better, whatever its value is.
        """
        if logits.shape[1] > 1 or self.costs is not None:
            value, violation = self.value(logits), 0.0
        else:
            chosen = best_or_nearest(sweep(logits[:, 0], self.y, self.weight), self.metric, self.requirements)
            value, violation = chosen.value, 0.0 if chosen.feasible else self._violation(chosen)
        return -violation, -value if self.metric.minimize else value

    def _scores(self, mixtures: Floats) -> list[tuple[float, float]]:
        """Return the score of each mixture ``(k, n, c)``; all at once for two classes without requirements."""
        if mixtures.shape[2] > 1 or self.requirements or self.costs is not None:
            return [self.score(logits) for logits in mixtures]
        values = _best_of_all_thresholds(mixtures[..., 0], self.y, self.weight, self.metric)
        return [(0.0, value) for value in values.tolist()]

    def _log_losses(self, mixtures: Floats) -> Floats:
        """Return the mean cross-entropy of each mixture ``(k, n, c)``."""
        return np.asarray(np.average(log_losses(mixtures, self.y), axis=1, weights=self.weight))

    def _violation(self, chosen: ChosenThreshold) -> float:
        """Return the largest violation at a threshold."""
        values: dict[str, Array] = {text: np.asarray(result.value) for text, result in chosen.requirements.items()}
        return max(float(requirement.excess(values[str(requirement)])) for requirement in self.requirements)

    def _part(self, rows: int) -> Integers | slice:
        """Return at most this many rows, drawn at random."""
        if len(self.y) <= rows:
            return slice(None)
        return np.sort(np.random.default_rng(0).choice(len(self.y), rows, replace=False, shuffle=False))

    def _take(self, part: Integers | slice) -> Selection:
        weight = None if self.weight is None else self.weight[part]
        return Selection(self.y[part], weight, self.metric, self.average, self.requirements)


def _best_of_all_thresholds(scores: Floats, y: Integers, weight: Floats | None, metric: Metric) -> Floats:
    """Return for each row of scores ``(k, n)`` the best value over all thresholds, negated if lower is better.

    It is what ``best_or_nearest`` finds on a sweep, without the checks and for several scores at once: the greedy
    selection needs it thousands of times.
    """
    order = np.argsort(-scores, axis=1)
    falling = np.take_along_axis(scores, order, 1)
    row_weight = 1.0 if weight is None else weight[order]
    first = ((0, 0), (1, 0))
    tp, fp = (np.pad((row_weight * (y[order] == label)).cumsum(1), first) for label in (1, 0))
    cells: tuple[Array, ...] = (tp, fp, tp[:, -1:] - tp, fp[:, -1:] - fp)
    values = np.asarray(metric(Counts(*(cell[..., None] for cell in cells))))[..., 0]
    better = -values if metric.minimize else values
    between_ties = np.pad(falling[:, 1:] == falling[:, :-1], ((0, 0), (1, 1)))
    return np.asarray(np.where(between_ties, -np.inf, better).max(1))


def greedy(logits: Floats, scores: Scores, steps: int) -> Floats:
    """Build a mixture step by step, each time with the family that gives the mean of logits the best score.

    Args:
        logits: The logits of each family, ``(families, n, c)``.
        scores: Returns the score of each of several mixtures; higher is better, and its first number counts most.
        steps: The number of steps. A family can be chosen in several steps.

    Returns:
        The share of steps in which each family was chosen.

    Example:
        >>> good, bad = [[1.0]], [[-1.0]]
        >>> greedy(np.array([good, bad]), lambda mixtures: [(float(mixture[0, 0]),) for mixture in mixtures], steps=4)
        array([1., 0.])
    """
    chosen, total = np.zeros(len(logits)), np.zeros_like(logits[0])
    for step in range(1, steps + 1):
        found = list(scores((total + logits) / step))
        best = found.index(max(found))
        chosen[best] += 1
        total = total + logits[best]
    return chosen / steps
