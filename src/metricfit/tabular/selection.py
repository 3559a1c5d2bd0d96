"""How much each family counts in the ensemble, chosen on its out-of-fold logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, pad, softplus

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
from metricfit.tabular.families.family import Floats

#: Steps of the greedy selection; a family's weight is the share of steps in which it was chosen.
STEPS = 20
STEPS_OF_SEVERAL_CLASSES = 10
#: Rows on which offsets of several classes are searched while weights are chosen.
ROWS_OF_SEVERAL_CLASSES = 3000

#: Scores of mixtures ``(k, n, c)``, each of which is numbers that are compared in this order; higher is better.
Scores = Callable[[Tensor], Sequence[tuple[float, ...]]]


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

    y: Tensor
    weight: Tensor | None
    metric: Metric
    average: ScalarAverage
    requirements: Sequence[Requirement] = ()
    costs: RowCosts | None = None

    def value(self, logits: Tensor) -> float:
        """Return the metric at the best decision of these logits; among thresholds, only feasible ones count.

        If no threshold meets the requirements, this is the value at the one with the smallest violation.
        """
        if self.costs is not None:
            return best_margin(self.costs.margins(logits).squeeze(1), self.y, self.weight, self.costs).value
        if logits.shape[1] == 1:
            candidates = sweep(logits.squeeze(1), self.y, self.weight)
            return best_or_nearest(candidates, self.metric, self.requirements).value
        found = best_offsets(logits, self.y, self.metric, average=self.average, weight=self.weight, rounds=1, starts=1)
        return found.value

    def decided_value(self, logits: Tensor) -> float:
        """Return the metric of the decisions that the classifier itself would make about these logits.

        It is ``value``, except for metrics of the whole confusion matrix, which decide by expected costs; offsets alone
        would show families far below an ensemble of them. While weights are chosen, offsets are quick and suffice.
        """
        if not self.metric.needs_matrix or self.requirements:
            return self.value(logits)
        held_out = collect_held_out(logits, self.y, self.weight, None)
        decision = choose_without_intervals(held_out, self.metric, subject_to=(), average=self.average)
        return decision.evidence.value

    def log_loss(self, logits: Tensor) -> float:
        """Return the mean cross-entropy of calibrated logits."""
        return float(self._log_losses(logits[None]))

    def weights(self, logits: Sequence[Tensor]) -> Floats:
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
        return (self.weights_for_metric(logits) + self.weights_for_log_loss(logits)) / 2

    def weights_for_metric(self, logits: Sequence[Tensor]) -> Floats:
        """Choose weights greedily for the metric at the best decision of each mixture."""
        if logits[0].shape[1] == 1:
            return greedy(logits, self._scores, STEPS)
        part = self._part(ROWS_OF_SEVERAL_CLASSES)
        return greedy([values[part] for values in logits], self._take(part)._scores, STEPS_OF_SEVERAL_CLASSES)

    def weights_for_log_loss(self, logits: Sequence[Tensor]) -> Floats:
        """Choose weights greedily for the cross-entropy."""
        return greedy(logits, lambda mixtures: [(-loss,) for loss in self._log_losses(mixtures).tolist()], STEPS)

    def score(self, logits: Tensor) -> tuple[float, float]:
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
            chosen = best_or_nearest(sweep(logits.squeeze(1), self.y, self.weight), self.metric, self.requirements)
            value, violation = chosen.value, 0.0 if chosen.feasible else self._violation(chosen)
        return -violation, -value if self.metric.minimize else value

    def _scores(self, mixtures: Tensor) -> list[tuple[float, float]]:
        """Return the score of each mixture ``(k, n, c)``; without requirements, those of two classes all at once."""
        if mixtures.shape[2] > 1 or self.requirements or self.costs is not None:
            return [self.score(logits) for logits in mixtures]
        values = _best_of_all_thresholds(mixtures.squeeze(2), self.y, self.weight, self.metric)
        return [(0.0, value) for value in values.tolist()]

    def _log_losses(self, mixtures: Tensor) -> Tensor:
        """Return the mean cross-entropy of each mixture ``(k, n, c)``."""
        if mixtures.shape[2] == 1:
            logits = mixtures.squeeze(2)
            losses = softplus(logits) - logits * self.y
        else:
            losses = -log_softmax(mixtures, 2).gather(2, self.y[None, :, None].expand(len(mixtures), -1, 1)).squeeze(2)
        return losses.mean(1) if self.weight is None else losses @ self.weight.to(losses) / self.weight.sum()

    def _violation(self, chosen: ChosenThreshold) -> float:
        """Return the largest violation at a threshold."""
        values = {text: torch.tensor(result.value) for text, result in chosen.requirements.items()}
        return max(float(requirement.excess(values[str(requirement)])) for requirement in self.requirements)

    def _part(self, rows: int) -> Tensor | slice:
        """Return at most this many rows, drawn at random."""
        if len(self.y) <= rows:
            return slice(None)
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(len(self.y), generator=generator)
        return order[:rows].sort().values

    def _take(self, part: Tensor | slice) -> Selection:
        weight = None if self.weight is None else self.weight[part]
        return Selection(self.y[part], weight, self.metric, self.average, self.requirements)


def _best_of_all_thresholds(scores: Tensor, y: Tensor, weight: Tensor | None, metric: Metric) -> Tensor:
    """Return for each row of scores ``(k, n)`` the best value over all thresholds, negated if lower is better.

    It is what ``best_or_nearest`` finds on a sweep, without the checks and for several scores at once: the greedy
    selection needs it thousands of times.
    """
    falling, order = torch.sort(scores, descending=True)
    positive = y[order].double()
    row_weight = torch.ones_like(positive) if weight is None else weight[order]
    tp = pad((row_weight * positive).cumsum(1), (1, 0))
    fp = pad((row_weight * (1 - positive)).cumsum(1), (1, 0))
    cells = (tp, fp, tp[:, -1:] - tp, fp[:, -1:] - fp)
    values = metric(Counts(*(cell.unsqueeze(-1) for cell in cells))).squeeze(-1)
    better = -values if metric.minimize else values
    between_ties = pad(falling[:, 1:] == falling[:, :-1], (1, 1))
    return better.masked_fill(between_ties, -torch.inf).amax(1)


def greedy(logits: Sequence[Tensor], scores: Scores, steps: int) -> Floats:
    """Build a mixture step by step, each time with the family that gives the mean of logits the best score.

    Args:
        logits: The logits of each family.
        scores: Returns the score of each of several mixtures; higher is better, and its first number counts most.
        steps: The number of steps. A family can be chosen in several steps.

    Returns:
        The share of steps in which each family was chosen.

    Example:
        >>> good, bad = torch.tensor([[1.0]]), torch.tensor([[-1.0]])
        >>> greedy([good, bad], lambda mixtures: [(float(mixture),) for mixture in mixtures], steps=4)
        array([1., 0.])
    """
    chosen, candidates = np.zeros(len(logits)), torch.stack(list(logits))
    total = torch.zeros_like(logits[0])
    for step in range(1, steps + 1):
        found = list(scores((total + candidates) / step))
        best = found.index(max(found))
        chosen[best] += 1
        total = total + candidates[best]
    return chosen / steps
