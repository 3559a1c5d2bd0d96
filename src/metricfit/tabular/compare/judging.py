"""From stored logits to values: a method decides by its training rows, and is judged on the test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.core.counting import count_labels
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs.row_costs import RowCosts, mean_cost, row_costs
from metricfit.decide.decision_choice import choose_without_intervals
from metricfit.decide.guarantees.certified import Guarantee
from metricfit.decide.threshold_choice import to_probability
from metricfit.metrics import Metric
from metricfit.metrics.average import averaged
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.compare.baselines import baseline_shares, expected_counts
from metricfit.tabular.compare.methods import Method
from metricfit.tabular.compare.trainings import TrainedLogits
from metricfit.tabular.ensemble import fit_mixture
from metricfit.tabular.ensemble_fit import collect_out_of_fold
from metricfit.tabular.families.family import Integers


@dataclass(frozen=True)
class FoldResult:
    """A method on one fold.

    Attributes:
        value: The metric on the test rows.
        seconds: The time of training.
        held: Whether the requirements held on the test rows.
        not_reachable: What is reachable, if no threshold met the requirements on the training rows; otherwise None.
    """

    value: float
    seconds: float = 0.0
    held: bool = True
    not_reachable: str | None = None


@dataclass(frozen=True)
class TestDecisions:
    """How a method decided the test rows of one fold.

    Attributes:
        probabilities: Of the positive class ``(n,)``, or of each of several classes ``(n, c)``.
        decided: Class numbers.
        threshold: The threshold of the probabilities; None for several classes and for costs in columns.
    """

    __test__ = False  # pytest would collect it

    probabilities: NDArray[np.float64]
    decided: Integers
    threshold: float | None


@dataclass(frozen=True)
class Judge:
    """Judges methods on one fold.

    Attributes:
        train_y: Class numbers of the training rows.
        test_y: Class numbers of the test rows.
        groups: The group of each training row, or None.
        classes: The number of classes.
        metric: The metric.
        average: Its average over several classes.
        requirements: The requirements on the decisions.
        confidence: The probability with which they must hold on new rows; None to meet them on the training rows.
        train_columns: Columns of the training rows with the costs of each row, if the metric takes costs from columns.
        test_columns: The same columns of the test rows.
    """

    train_y: Integers
    test_y: Integers
    groups: NDArray[Any] | None
    classes: int
    metric: Metric
    average: ScalarAverage
    requirements: Sequence[Requirement] = ()
    confidence: float | None = None
    train_columns: Mapping[str, Tensor] = field(default_factory=dict)
    test_columns: Mapping[str, Tensor] = field(default_factory=dict)

    def method(self, method: Method, trained: Sequence[TrainedLogits]) -> tuple[dict[str, FoldResult], TestDecisions]:
        """Choose a method's weights and decision on the training rows, and judge it on the test rows.

        Args:
            method: The method.
            trained: The logits of its models.

        Returns:
            The results by the name of the row, and the decisions.
        """
        out_of_fold = [each.out_of_fold for each in trained]
        rows, held_out = collect_out_of_fold(
            out_of_fold, self.train_y, None, self.groups, self.metric, self.train_columns
        )
        mixture = fit_mixture(rows, self.metric, self.average, self.requirements)
        decision = choose_without_intervals(
            replace(held_out, logits=mixture.logits),
            self.metric,
            subject_to=self.requirements,
            average=self.average,
            guarantee=None
            if self.confidence is None
            else Guarantee(self.confidence, out_of_fold=True, groups=held_out.groups),
        )
        raw = [torch.from_numpy(each.test) for each in trained]
        logits, seconds = mixture(raw), sum(each.seconds for each in trained)
        costs = self._costs
        decided = decision.decide(logits if costs is None else costs.margins(logits))
        results = {method.name: self._judge(decided, seconds, decision.not_reachable)}
        if method.untuned is not None:
            untuned = (raw[0][:, 0] >= 0).long() if self.classes == 2 else raw[0].argmax(1)
            results[method.untuned] = self._judge(untuned, seconds)
        threshold = decision.threshold if costs is None else None  # with costs, each row has its own
        return results, TestDecisions(
            _probabilities(logits), decided.numpy(), None if threshold is None else to_probability(threshold)
        )

    def baselines(self) -> dict[str, FoldResult]:
        """Judge the decisions that need no model."""
        results, costs, target = {}, self._costs, torch.from_numpy(self.test_y)
        for name, shares in baseline_shares(self.train_y, self.classes).items():
            if costs is None:
                results[name] = self._result(expected_counts(self.test_y, shares))
            else:
                called = torch.full((len(target),), shares[1], dtype=torch.float64)
                results[name] = FoldResult(mean_cost(costs.of_decisions(called, target), None))
        return results

    @property
    def _costs(self) -> RowCosts | None:
        """The costs of the test rows, if the metric takes costs from columns."""
        return row_costs(self.metric, self.test_columns, len(self.test_y)) if self.metric.columns else None

    def _judge(self, decided: Tensor, seconds: float, not_reachable: str | None = None) -> FoldResult:
        target, costs = torch.from_numpy(self.test_y), self._costs
        if costs is not None:
            return FoldResult(mean_cost(costs.of_decisions(decided, target), None), seconds)
        counts = count_labels(
            decided,
            target,
            num_classes=None if self.classes == 2 else self.classes,
            matrix=self.metric.needs_matrix,
        )
        return self._result(counts, seconds, not_reachable)

    def _result(self, counts: Counts, seconds: float = 0.0, not_reachable: str | None = None) -> FoldResult:
        value = float(averaged(self.metric, counts, self.average))
        held = all(bool(requirement.holds(counts).all()) for requirement in self.requirements)
        return FoldResult(value, seconds, held, not_reachable)


def _probabilities(logits: Tensor) -> NDArray[np.float64]:
    values = logits[:, 0].sigmoid() if logits.shape[1] == 1 else logits.softmax(1)
    probabilities: NDArray[np.float64] = values.double().numpy()
    return probabilities
