"""All methods on all folds, from what their trainings kept; nothing is trained here."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from metricfit.decide.costs.row_costs import cost_columns
from metricfit.metrics import Requirement, get_metric
from metricfit.tabular.compare.judging import FoldResult, Judge
from metricfit.tabular.compare.methods import DEFAULT, Method
from metricfit.tabular.compare.trainings import TrainedLogits, Training, TrainingTask, trainings_of
from metricfit.tabular.families.family import Integers

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
