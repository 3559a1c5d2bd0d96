"""From stored logits to values: a method decides by its training rows, and is judged on the test rows.

The number of folds on which a requirement held is chance where the value is near the bound: a recall of exactly 0.9
meets a bound of 0.9 on about half of the folds. All folds together have several times the rows of one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from metricfit.core.arrays import Floats, Integers
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_labels
from metricfit.decide.calibration import fit_calibration, sigmoid, softmax
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.costs import RowCosts, mean_cost, row_costs
from metricfit.decide.held_out import HeldOut, collect_held_out
from metricfit.decide.rules import Guarantee
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.average import averaged
from metricfit.stats.resampling import percentile_interval, resampled_counts
from metricfit.tabular.compare.methods import (
    DEFAULT,
    TUNED,
    Method,
    OutsidePredictions,
    OwnModel,
    baseline_shares,
    expected_counts,
)
from metricfit.tabular.compare.trainings import Compared, TrainedLogits, Training, TrainingTask, trainings_of
from metricfit.tabular.ensemble import cross_fit, fit_mixture
from metricfit.tabular.ensemble_fit import collect_out_of_fold, parts_of
from metricfit.tabular.families.family import Splits
from metricfit.tabular.insight.value_intervals import drawn_counts


@dataclass(frozen=True)
class PooledRequirement:
    """A requirement on the decisions about the test rows of all folds.

    Attributes:
        text: The requirement.
        value: The value of its metric; of several classes, the value of the class which violates it most.
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

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.text}: {self.value:.3f}, 95 % interval {low:.3f} to {high:.3f}"


def judge_pooled(
    decided: Integers,
    labels: Integers,
    classes: int,
    requirements: Sequence[Requirement],
    weight: Floats | None = None,
) -> tuple[PooledRequirement, ...]:
    """Judge decisions about the test rows of all folds.

    Args:
        decided: The class number that was decided for each row.
        labels: The true class numbers; of two classes, 1 is the positive one.
        classes: The number of classes.
        requirements: The requirements, by class numbers.
        weight: One weight per row, or None.

    Returns:
        One result per requirement.
    """
    if not requirements:
        return ()
    matrix = classes > 2 and any(requirement.metric.needs_matrix for requirement in requirements)
    of_classes = None if classes == 2 else classes
    counts = count_labels(decided, labels, num_classes=of_classes, weight=weight, matrix=matrix)
    drawn = (
        resampled_counts(decided, labels, classes, matrix=matrix)
        if weight is None
        else drawn_counts(decided, labels, classes, weight, matrix=matrix, fixed_classes=False)
    )
    if classes == 2:
        drawn = Counts(*(cell[:, 1:] for cell in drawn))
    return tuple(_judge(requirement, counts, drawn) for requirement in requirements)


def _judge(requirement: Requirement, counts: Counts, drawn: Counts) -> PooledRequirement:
    values = requirement.metric(counts).reshape(-1)
    violations = requirement.excess(values)
    worst = int(violations.argmax())
    resampled = requirement.metric(drawn).reshape(-1, len(values))[:, worst]
    low, high = percentile_interval(resampled)
    beyond = np.quantile(requirement.excess(resampled), 0.025)
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
    """A row of the comparison on one fold.

    Attributes:
        value: The metric on the test rows.
        seconds: The time of training; None if nothing was trained.
        held: Whether the requirements held on the test rows.
        not_reachable: What is reachable, if no threshold met the requirements on the training rows; otherwise None.
        decided: The class number that was decided for each test row; None for decisions without a model.
        probabilities: Of the positive class ``(n,)``, or of each of several classes ``(n, c)``; None if unknown.
        threshold: The threshold of the probabilities; None if there is none, as for several classes.
    """

    value: float
    seconds: float | None = None
    held: bool = True
    not_reachable: str | None = None
    decided: Integers | None = None
    probabilities: Floats | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Judge:
    """Judges methods on one fold.

    Attributes:
        task: The rows, the folds, the metric and the requirements.
        fold: The number of the fold.
    """

    task: TrainingTask
    fold: int

    @cached_property
    def _parts(self) -> tuple[Integers, Integers, Integers]:
        return self.task.parts(self.fold)

    @cached_property
    def _metric(self) -> Metric:
        return get_metric(self.task.metric)

    @cached_property
    def _classes(self) -> int:
        return len(self.task.rows.labels)

    def _held_out(self, logits: Floats, part: Integers) -> HeldOut:
        """Return rows with logits that no part of them has trained."""
        return collect_held_out(logits, *self._about(part))

    def _about(self, part: Integers) -> tuple[Integers, Floats | None, NDArray[Any] | None, dict[str, Any]]:
        """Return the class numbers, the weights, the groups, and the columns of costs of some rows."""
        rows = self.task.rows
        columns = {name: values[part] for name, values in self.task.columns.items()}
        return rows.numbers[part], rows.of(rows.weight, part), rows.of(rows.groups, part), columns

    def method(self, method: Method, trained: Sequence[TrainedLogits]) -> dict[str, FoldResult]:
        """Choose a method's weights and decision on the training rows, and judge it on the test rows.

        Args:
            method: The method.
            trained: The logits of its models.

        Returns:
            The results by the name of the row.
        """
        learned, apart, _ = self._parts
        y, weight, groups, columns = self._about(learned)
        aim = self._metric, self.task.average, self.task.requirements
        logits = [each.out_of_fold for each in trained]
        rows, held_out = collect_out_of_fold(logits, y, weight, groups, self._metric, columns)
        mixture = fit_mixture(rows, *aim)
        scored = mixture(np.stack([each.new for each in trained]))
        if len(apart):
            held_out = self._held_out(scored[: len(apart)], apart)
        else:
            parts = parts_of(held_out, trained[0].folds[trained[0].folds >= 0])
            held_out = replace(held_out, logits=cross_fit(rows, parts, *aim).logits(rows.logits))
        seconds = sum(each.seconds for each in trained)
        return {method.name: self._tuned(held_out, scored[len(apart) :], seconds, out_of_fold=not len(apart))}

    def _tuned(self, held_out: HeldOut, test: Floats, seconds: float | None, *, out_of_fold: bool = True) -> FoldResult:
        """Choose a decision on held-out rows, and judge it on the logits of the test rows."""
        task, guarantee = self.task, None
        if task.confidence is not None:
            guarantee = Guarantee(task.confidence, out_of_fold=out_of_fold, groups=held_out.groups)
        decision = choose_without_intervals(
            held_out, self._metric, subject_to=task.requirements, average=task.average, guarantee=guarantee
        )
        costs, probabilities = self._costs, sigmoid(test[:, 0]) if test.shape[1] == 1 else softmax(test)
        return self._judge(
            decision.decide(test if costs is None else costs.margins(test)),
            seconds=seconds,
            not_reachable=decision.evidence.not_reachable,
            probabilities=probabilities,
            threshold=decision.attributes(np.arange(self._classes)).get("threshold_"),
        )

    def own(self, report: Mapping[str, Any]) -> dict[str, FoldResult]:
        """Judge what ``OwnModel.train`` decided, by the name of the row."""
        arrays = ("decided", "probabilities")
        return {
            name: self._judge(**kept | {part: None if kept[part] is None else np.array(kept[part]) for part in arrays})
            for name, kept in report["rows"].items()
            if "decided" in kept
        }

    def outside(self, model: OutsidePredictions) -> dict[str, FoldResult]:
        """Judge predictions of another program, by the name of the row."""
        train, test = self.task.splits[self.fold]
        table, logits, rows = model.probabilities, model.logits, self.task.rows
        shown = None if table is None else (table[test, 1] if self._classes == 2 else table[test])
        results = {model.name: self._judge(model.decided[test], probabilities=shown)}
        if logits is not None:
            calibration = fit_calibration(logits[train], rows.numbers[train], rows.of(rows.weight, train))
            held_out = self._held_out(calibration(logits[train]), train)
            results[model.name + TUNED] = self._tuned(held_out, calibration(logits[test]), None)
        return results

    def baselines(self) -> dict[str, FoldResult]:
        """Judge the decisions that need no model."""
        train, test = self.task.splits[self.fold]
        (known, of_known, *_), (target, weight, *_), costs = self._about(train), self._about(test), self._costs
        results = {}
        for name, shares in baseline_shares(known, self._classes, of_known).items():
            if costs is None:
                results[name] = self._result(expected_counts(target, shares, weight))
            else:
                called = np.full(len(target), shares[1])
                results[name] = FoldResult(mean_cost(costs.of_decisions(called, target), weight))
        return results

    @cached_property
    def _costs(self) -> RowCosts | None:
        """The costs of the test rows, if the metric takes costs from columns."""
        target, _, _, columns = self._about(self._parts[2])
        return row_costs(self._metric, columns, len(target)) if self._metric.columns else None

    def _judge(self, decided: Integers, **about: Any) -> FoldResult:
        costs, classes = self._costs, None if self._classes == 2 else self._classes
        target, weight, *_ = self._about(self._parts[2])
        if costs is not None:
            return FoldResult(mean_cost(costs.of_decisions(decided, target), weight), decided=decided, **about)
        counts = count_labels(decided, target, num_classes=classes, weight=weight, matrix=self._metric.needs_matrix)
        return replace(self._result(counts), decided=decided, **about)

    def _result(self, counts: Counts) -> FoldResult:
        value = float(averaged(self._metric, counts, self.task.average))
        held = all(bool(requirement.holds(counts).all()) for requirement in self.task.requirements)
        return FoldResult(value, held=held)


Trained = Mapping[tuple[Training | OwnModel, int], TrainedLogits | Mapping[str, Any] | str]


@dataclass(frozen=True)
class MethodDecisions:
    """How one row of the comparison decided all rows of the table, each by models that did not train on it.

    Attributes:
        scores: Probabilities of the positive class ``(n,)``, or of each of several classes ``(n, c)``; None if unknown.
        decided: The class number that was decided for each row.
        thresholds: The threshold of each fold; empty if there are none, as for several classes.
        folds: The fold that held each row out.
    """

    scores: Floats | None
    decided: Integers
    thresholds: list[float] = field(default_factory=list)
    folds: Integers | None = None

    @property
    def scores_at_mean(self) -> Floats | None:
        """The probabilities, shifted by fold on the scale of logits: the mean threshold decides as the fold's own."""
        if self.scores is None or self.folds is None or len(self.thresholds) <= self.folds.max():
            return self.scores
        mean = statistics.fmean(self.thresholds)
        with np.errstate(divide="ignore", invalid="ignore"):
            shifts = logit(mean) - logit(np.asarray(self.thresholds))[self.folds]
            shifted = np.nan_to_num(expit(logit(self.scores) + shifts), nan=0.5)
        return np.where(self.decided == 1, np.maximum(shifted, mean), np.minimum(shifted, np.nextafter(mean, 0)))

    @property
    def threshold(self) -> float | None:
        """Mean of the thresholds; None if there are none."""
        return statistics.fmean(self.thresholds) if self.thresholds else None


def pooled_decisions(by_row: Mapping[str, Sequence[FoldResult]], splits: Splits) -> dict[str, MethodDecisions]:
    """Return the decisions of each row that has a model, about the rows of all test folds in their order.

    Args:
        by_row: For each row of the comparison, its results by fold.
        splits: For each fold, the training rows and the test rows.
    """
    order = np.argsort(np.concatenate([test for _, test in splits]))
    folds = np.repeat(np.arange(len(splits)), [len(test) for _, test in splits])[order]
    found = {}
    for name, by_fold in by_row.items():
        decided = [result.decided for result in by_fold if result.decided is not None]
        scores = [result.probabilities for result in by_fold if result.probabilities is not None]
        if decided:
            found[name] = MethodDecisions(
                np.concatenate(scores)[order] if len(scores) == len(decided) else None,
                np.concatenate(decided)[order],
                [result.threshold for result in by_fold if result.threshold is not None],
                folds,
            )
    return found


def judge_folds(
    task: TrainingTask, methods: Sequence[Compared], trained: Trained
) -> tuple[dict[str, list[FoldResult]], list[str]]:
    """Judge every method on every fold.

    A method is left out if its model was left out on some fold. The default method does without such a model, as it
    does in ``fit``.

    Args:
        task: The rows, the folds, the metric and the requirements.
        methods: The methods.
        trained: For each training and fold, its logits or decisions, or why it was left out.

    Returns:
        For each row of the comparison its results by fold, and notes about what was left out.
    """
    results: dict[str, list[FoldResult]] = {}
    notes = list[str]()
    complete = [method for method in methods if _can_be_judged(method, trained, len(task.splits), notes)]
    for fold in range(len(task.splits)):
        judge, by_name = Judge(task, fold), dict[str, FoldResult]()
        for method in complete:
            kept: list[Any] = [trained[training, fold] for training in trainings_of(method)]
            if isinstance(method, OutsidePredictions):
                by_name |= judge.outside(method)
            elif isinstance(method, OwnModel):
                by_name |= judge.own(kept[0])
            else:
                by_name |= judge.method(method, [each for each in kept if isinstance(each, TrainedLogits)])
        for name, result in (by_name | judge.baselines()).items():
            results.setdefault(name, []).append(result)
    return {name: by_fold for name, by_fold in results.items() if len(by_fold) == len(task.splits)}, notes


def _can_be_judged(method: Compared, trained: Trained, folds: int, notes: list[str]) -> bool:
    """Return whether a method has what it needs on every fold, and add a note if something was left out."""
    reasons: dict[str, str] = {}
    for training in trainings_of(method):
        for fold in range(folds):
            kept = trained[training, fold]
            if isinstance(kept, str):
                reasons[training.name] = kept
            elif isinstance(kept, Mapping) and isinstance(method, OwnModel):
                left_out = kept["rows"].get(method.name + TUNED, {}).get("left_out")
                reasons |= {} if left_out is None else {method.name + TUNED: left_out}
    if isinstance(method, OwnModel) or method.name == DEFAULT:
        done = "{} is left out: {}" if isinstance(method, OwnModel) else f"{method.name} does without {{}}: {{}}"
        notes += [done.format(name, reason) for name, reason in reasons.items()]
        return True
    notes += [f"{method.name} is left out: {reason}" for reason in list(reasons.values())[:1]]
    return not reasons
