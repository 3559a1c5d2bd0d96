"""From stored logits to values: a method decides by its training rows, and is judged on the test rows.

The number of folds on which a requirement held is chance where the value is near the bound: a recall of exactly 0.9
meets a bound of 0.9 on about half of the folds. All folds together have several times the rows of one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.decisions import count_labels
from metricfit.core.types import ScalarAverage
from metricfit.decide.certified import Guarantee
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.costs import RowCosts, cost_columns, mean_cost, row_costs
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.average import averaged
from metricfit.stats.multinomial import percentile_interval, resampled_counts
from metricfit.tabular.compare.methods import DEFAULT, Method, baseline_shares, expected_counts
from metricfit.tabular.compare.trainings import TrainedLogits, Training, TrainingTask, trainings_of
from metricfit.tabular.ensemble import cross_fit, fit_mixture
from metricfit.tabular.ensemble_fit import collect_out_of_fold, parts_of
from metricfit.tabular.families.family import Integers


@dataclass(frozen=True)
class PooledRequirement:
    """A requirement on the decisions about the test rows of all folds.

    Attributes:
        text: The requirement.
        value: The value of its metric; of several classes, that of the class which violates it most.
        interval: 95 % bootstrap interval of the value.
        held: Whether the value meets the bound.
        clearly_fails: Whether the whole interval is beyond the bound.
        violation: How far the value is beyond the bound; at most 0 if it is met.

    Example:
        >>> decided, labels = np.array([1, 1, 0, 0] * 50), np.array([1, 1, 1, 0] * 50)
        >>> from metricfit import parse_requirement
        >>> (found,) = judge_pooled(decided, labels, 2, [parse_requirement("recall >= 0.9")])
        >>> round(found.value, 3), found.held, found.clearly_fails
        (0.667, False, True)
    """

    text: str
    value: float
    interval: tuple[float, float]
    held: bool
    clearly_fails: bool
    violation: float

    def to_dict(self) -> dict[str, Any]:
        """Return the requirement as plain values, in the form that ``metricfit compare --json`` prints."""
        return {
            "requirement": self.text,
            "value": self.value,
            "interval": list(self.interval),
            "held": self.held,
            "clearly_fails": self.clearly_fails,
        }

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.text}: {self.value:.3f}, 95 % interval {low:.3f} to {high:.3f}"


def judge_pooled(
    decided: Integers, labels: Integers, classes: int, requirements: Sequence[Requirement]
) -> tuple[PooledRequirement, ...]:
    """Judge decisions about the test rows of all folds.

    Args:
        decided: The class number that was decided for each row.
        labels: The true class numbers; of two classes, 1 is the positive one.
        classes: The number of classes.
        requirements: The requirements, by class numbers.

    Returns:
        One result per requirement.
    """
    if not requirements:
        return ()
    matrix = any(requirement.metric.needs_matrix for requirement in requirements)
    counts = count_labels(
        torch.from_numpy(decided),
        torch.from_numpy(labels),
        num_classes=None if classes == 2 else classes,
        matrix=matrix and classes > 2,
    )
    drawn = resampled_counts(decided, labels, classes, matrix=matrix and classes > 2)
    if classes == 2:
        drawn = Counts(*(cell[:, 1:] for cell in drawn))
    return tuple(_judge(requirement, counts, drawn) for requirement in requirements)


def _judge(requirement: Requirement, counts: Counts, drawn: Counts) -> PooledRequirement:
    values = requirement.metric(counts).reshape(-1)
    violations = requirement.excess(values)
    worst = int(violations.argmax())
    resampled = requirement.metric(drawn).reshape(-1, len(values))[:, worst]
    low, high = percentile_interval(resampled)
    beyond = np.quantile(requirement.excess(resampled).numpy(), 0.025)
    return PooledRequirement(
        str(requirement),
        float(values[worst]),
        (low, high),
        bool(requirement.forgives(violations).all()),
        bool(beyond > 0),
        float(violations[worst]),
    )


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
        parts = parts_of(held_out, trained[0].folds[trained[0].folds >= 0])
        judges = cross_fit(rows, parts, self.metric, self.average, self.requirements)
        decision = choose_without_intervals(
            replace(held_out, logits=judges.logits(rows.logits)),
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
        results = {method.name: self._judge(decided, seconds, decision.evidence.not_reachable)}
        if method.untuned is not None:
            untuned = (raw[0][:, 0] >= 0).long() if self.classes == 2 else raw[0].argmax(1)
            results[method.untuned] = self._judge(untuned, seconds)
        threshold = decision.attributes(np.arange(self.classes)).get("threshold_")
        return results, TestDecisions(_probabilities(logits), decided.numpy(), threshold)

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


Trained = Mapping[tuple[Training, int], TrainedLogits | str]


@dataclass(frozen=True)
class MethodDecisions:
    """How one method decided all rows, each row by models that did not train on it.

    Attributes:
        scores: Probabilities of the positive class ``(n,)``, or of each of several classes ``(n, c)``.
        decided: The class number that was decided for each row.
        thresholds: The threshold of each fold; empty for several classes and for costs in columns.
    """

    scores: NDArray[np.float64]
    decided: NDArray[np.int64]
    thresholds: list[float] = field(default_factory=list)

    @property
    def threshold(self) -> float | None:
        """Mean of the thresholds; None if there are none."""
        return statistics.fmean(self.thresholds) if self.thresholds else None

    def take(self, index: Integers) -> MethodDecisions:
        """Return the decisions of these rows."""
        return MethodDecisions(self.scores[index], self.decided[index], self.thresholds)


@dataclass
class FoldResults:
    """The results of a comparison, before statistics.

    Attributes:
        decisions: The decisions of each method, by its name.
        by_row: For each row of the comparison, its results by fold.
        notes: What was left out, and why.
    """

    decisions: dict[str, MethodDecisions] = field(default_factory=dict)
    by_row: dict[str, list[FoldResult]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def judge_folds(
    task: TrainingTask,
    methods: Sequence[Method],
    trained: Trained,
    classes: int,
    requirements: Sequence[Requirement] = (),
    confidence: float | None = None,
) -> FoldResults:
    """Judge every method on every fold.

    A method is left out if its model was left out on some fold. The default method does without such a model, as it
    does in ``fit``.

    Args:
        task: The rows, the folds and the metric.
        methods: The methods.
        trained: For each training and fold, its logits, or why it was left out.
        classes: The number of classes.
        requirements: The requirements on the decisions, by class numbers.
        confidence: The probability with which they must hold on new rows, or None.

    Returns:
        The results.
    """
    rows, results = len(task.y), FoldResults()
    metric = get_metric(task.metric)
    columns = cost_columns(metric, task.X)
    complete = [method for method in methods if _can_be_judged(method, trained, len(task.splits), results.notes)]
    for method in complete:
        scores = np.full((rows, classes) if classes > 2 else rows, np.nan)
        results.decisions[method.name] = MethodDecisions(scores, np.zeros(rows, dtype=np.int64))
    for fold, (training_rows, test_rows) in enumerate(task.splits):
        judge = Judge(
            task.y[training_rows],
            task.y[test_rows],
            None if task.groups is None else task.groups[training_rows],
            classes,
            metric,
            task.average,
            requirements,
            confidence,
            {name: values[training_rows] for name, values in columns.items()},
            {name: values[test_rows] for name, values in columns.items()},
        )
        for method in complete:
            logits = [trained[training, fold] for training in trainings_of(method)]
            by_name, of_fold = judge.method(method, [each for each in logits if isinstance(each, TrainedLogits)])
            _add(results, by_name)
            decisions = results.decisions[method.name]
            decisions.scores[test_rows], decisions.decided[test_rows] = of_fold.probabilities, of_fold.decided
            if of_fold.threshold is not None:
                decisions.thresholds.append(of_fold.threshold)
        _add(results, judge.baselines())
    return results


def _can_be_judged(method: Method, trained: Trained, folds: int, notes: list[str]) -> bool:
    """Return whether a method has what it needs on every fold, and add a note if something was left out."""
    reasons = {
        training.name: result
        for training in trainings_of(method)
        for fold in range(folds)
        if isinstance(result := trained[training, fold], str)
    }
    if not reasons:
        return True
    if method.name == DEFAULT:
        notes += [f"{method.name} does without {model}: {reason}" for model, reason in reasons.items()]
        return True
    notes.append(f"{method.name} is left out: {next(iter(reasons.values()))}")
    return False


def _add(results: FoldResults, by_name: Mapping[str, FoldResult]) -> None:
    for name, result in by_name.items():
        results.by_row.setdefault(name, []).append(result)
