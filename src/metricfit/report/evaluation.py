"""What a fitted model decides about labelled rows: counts, values with intervals, and what training expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricfit import stats
from metricfit.core.arrays import in_kind_of, to_numpy
from metricfit.core.confusion import ConfusionMatrix, two_by_two
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs import RowCosts, cost_columns, interval_of_costs, mean_cost, row_costs
from metricfit.decide.decision import REFERRED
from metricfit.decide.readiness import describe_readiness
from metricfit.metrics import Metric, averaged, get_metric
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.group_gap import is_undefined
from metricfit.metrics.requirements import Requirement
from metricfit.report import formatting
from metricfit.report.first_screen import decisions_without_model
from metricfit.stats.resampling import percentile_interval, resampled_counts
from metricfit.tabular.checks import checked_weights
from metricfit.tabular.facts import ModelFacts, model_facts
from metricfit.tabular.insight.judged_rows import held_out_costs, held_out_decisions, held_out_rows, held_out_scores
from metricfit.tabular.insight.value_intervals import (
    Period,
    drawn_counts,
    measure_periods,
    short_time,
    weighted_counts,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Pair = tuple[float, float]


@dataclass(frozen=True)
class Decisions:
    """Labelled rows, and what was decided about them.

    Attributes:
        y: Class numbers; of two classes, 1 is the positive one.
        decided: Decided class numbers, -1 for rows that are referred to a person, which do not count.
        classes: The names of the classes by their numbers; of two, the second is the positive one.
        metric: The metric.
        average: Its average over several classes.
        weight: One weight per row, or None.
        groups: One group per row, or None.
        costs: The costs of the rows, if the metric takes costs from columns.
    """

    y: Integers
    decided: Integers
    classes: Sequence[str]
    metric: Metric
    average: ScalarAverage = "macro"
    weight: Floats | None = None
    groups: NDArray[Any] | None = None
    costs: RowCosts | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rarest(self) -> int:
        """The number of rows of the rarest class, or of the positive one of two."""
        return int(np.bincount(self.y, minlength=len(self.classes))[self.of_two :].min())

    @property
    def of_two(self) -> bool:
        """Whether there are two classes."""
        return len(self.classes) == 2

    @property
    def weights(self) -> Floats:
        """One weight per row, 1 if the rows have none."""
        return np.ones(len(self.y)) if self.weight is None else self.weight

    @cached_property
    def counts(self) -> Counts:
        """The counts of the decisions: of the positive class of two, or the confusion matrix of several."""
        return count_decisions(self.decided, self.y, len(self.classes), self.weight)

    def label(self, metric: Metric) -> str:
        """Return the name of a metric, with the average if there are several classes."""
        return metric.name if self.of_two or metric.whole_matrix else f"{self.average} {metric.name}"


@dataclass(frozen=True, kw_only=True)
class DecidedRows(Decisions):
    """Labelled rows, and what a fitted model decided about them.

    Attributes:
        model: The fitted model.
        facts: What there is to say about it.
        scores: The probability of the positive class of two, ``(n,)``, or of each of several, ``(n, c)``. Of held-out
            rows of several classes it is None.
        threshold: A threshold in place of the model's; every row is then decided.
        held_out: Whether the rows were held out of training, each decided by models that did not train on it.
    """

    model: Any
    facts: ModelFacts
    scores: Floats | None
    threshold: float | None = None
    held_out: bool = False

    @classmethod
    def of_training(cls, model: Any) -> DecidedRows:
        """Return the rows that were held out of training."""
        rows = held_out_rows(model)
        return cls(
            **_about(model),
            y=to_numpy(rows.y, np.int64),
            decided=to_numpy(held_out_decisions(model), np.int64),
            scores=to_numpy(held_out_scores(model), np.float64) if len(model.classes_) == 2 else None,
            weight=None if rows.weight is None else to_numpy(rows.weight, np.float64),
            groups=rows.groups,
            costs=held_out_costs(model),
            held_out=True,
        )

    @classmethod
    def of(
        cls, model: Any, X: Any, y: Any, threshold: float | None = None, groups: Any = None, weight: Any = None
    ) -> DecidedRows:
        """Return rows of a table with their labels, as a model decides about them or a threshold in its place."""
        metric, two = get_metric(model.metric), len(model.classes_) == 2
        place = np.argsort(to_numpy(model.chosen_.names.numbers_of(model.classes_)))
        scores = np.asarray(model.predict_proba(X), dtype=np.float64)[:, place]
        if two:
            scores = scores[:, 1]
        decided = predicted_numbers(model, X) if threshold is None else (scores >= threshold).astype(np.int64)
        costs = row_costs(metric, cost_columns(metric, X), len(X)) if metric.columns else None
        numbers = to_numpy(model.chosen_.names.numbers_of(np.asarray(y)), np.int64)
        given = {"scores": scores, "groups": groups, "costs": costs, "threshold": threshold}
        given["weight"] = checked_weights(weight, numbers)
        return cls(**_about(model), y=numbers, decided=decided, **given)

    @property
    def referred(self) -> int | None:
        """The number of rows that are referred to a person; None if every row is decided."""
        if self.threshold is not None or self.model.refer_region_ is None:
            return None
        return int((self.decided == REFERRED).sum())

    @property
    def without_model(self) -> dict[str, Counts]:
        """The counts on the same rows of decisions that need no model, by what they are called."""
        return decisions_without_model(self.counts, self.classes)

    def value(self, metric: Metric, counts: Counts | None = None) -> float:
        """Return a metric of the decisions, or of other decisions about the same rows."""
        counts = self.counts if counts is None else counts
        if metric.columns and self.costs is not None:
            called = self.decided if counts is self.counts else np.full(len(self), int(counts.predicted.sum() > 0))
            return mean_cost(paid(self.costs, called, self.y), self.weight)
        return float(averaged(metric, counts, self.average))

    def intervals(self, several: Sequence[Metric]) -> list[Pair | None]:
        """Compute 95 % bootstrap intervals of metrics; None if all rows are of one class."""
        kept = self.decided != REFERRED
        y, decided = self.y[kept], self.decided[kept]
        if len(np.unique(y)) < 2:
            return [None] * len(several)
        matrix = any(metric.needs_matrix for metric in several)
        if self.weight is not None:
            parts = (decided, y, len(self.classes), self.weight[kept])
            drawn = drawn_counts(*parts, matrix=matrix, fixed_classes=False)
            drawn = drawn.map(lambda cell: cell[:, 1:]) if self.of_two else drawn
        elif not self.of_two:
            drawn = resampled_counts(decided, y, len(self.classes), matrix=matrix)
        else:
            drawn = None
        return [self._interval(metric, drawn, decided, y) for metric in several]

    def _interval(self, metric: Metric, drawn: Counts | None, decided: Integers, y: Integers) -> Pair:
        """Return the interval of a metric from drawn counts; without them, by a bootstrap of two classes."""
        if metric.columns and self.costs is not None:
            return interval_of_costs(paid(self.costs, self.decided, self.y), self.weight)
        if drawn is None:
            ends = stats.bootstrap(decided.astype(np.float64), y, metric, threshold=0.5, stratified=False).interval
            return float(ends[0]), float(ends[1])
        return percentile_interval(metric(drawn) if metric.of_one_class else averaged(metric, drawn, self.average))

    @property
    def requirements(self) -> list[Requirement]:
        """The requirements that the model is judged by on other rows.

        Requirements that rows are referred for (``refer(subject_to=...)``) are among them, unless another threshold
        decides all rows.
        """
        requirements = self.model.chosen_.names.requirements(self.model.subject_to)
        if self.threshold is not None or self.model.refer_region_ is None:
            return requirements
        known = set(map(str, requirements))
        others = [text for text in self.model.requirements_ if text not in known]
        return [*requirements, *self.model.chosen_.names.requirements(others)]

    def requirement_values(self) -> dict[str, RequirementValue | None]:
        """Return, for each of the requirements, its value on these rows and whether that meets the bound.

        It is None where the value is 0/0, as the recall of a class without rows is.
        """
        results: dict[str, RequirementValue | None] = {}
        for requirement in self.requirements:
            value = float(requirement.metric(self.counts)[..., 0])
            found = RequirementValue(value, bool(requirement.holds(self.counts).all()), value)
            unknown = bool(np.all(is_undefined(requirement.metric, self.counts)))
            results[str(requirement)] = None if unknown else found
        return results

    @property
    def in_costs(self) -> bool:
        """Whether values are mean costs of a row."""
        return self.metric.base_name == "cost"

    def judge(self, decided: Integers) -> tuple[Counts, float]:
        """Return the counts and the metric of other decisions about these rows, which are class numbers."""
        counts = count_decisions(decided, self.y, len(self.model.classes_), self.weight)
        if self.metric.columns and self.costs is not None:
            return counts, mean_cost(paid(self.costs, decided, self.y), self.weight)
        return counts, self.value(self.metric, counts)

    def periods(self, times: Any) -> list[Period]:
        """Measure the decisions by period, if rows are in the order of these times."""
        if times is None:
            return []
        return measure_periods(
            self.model, self.decided, self.y, lambda place: short_time(times[place]), self.weight, self.costs
        )

    @cached_property
    def readiness(self) -> dict[str, str | None]:
        """Whether these rows prove each requirement, or about how many more would; None if that is not known."""
        return {
            str(each): None if self.weight is not None else describe_readiness(each, self.counts)
            for each in self.requirements
        }

    def better_without_model(self, value: float) -> str | None:
        """Say if a decision that needs no model has a better value on the same rows.

        Args:
            value: The value of the model's metric.

        Returns:
            One sentence about the best such decision that meets the requirements; None if the model is at least as
            good, or if the metric takes costs from columns.
        """
        if self.metric.columns:
            return None
        wanted = self.model.chosen_.names.requirements(self.model.subject_to) if self.of_two else []
        values = {
            name: self.value(self.metric, counts)
            for name, counts in self.without_model.items()
            if all(bool(requirement.holds(counts).all()) for requirement in wanted)
        }
        sign = -1.0 if self.metric.minimize else 1.0
        best = max(values, key=lambda name: sign * values[name], default=None)
        if best is None or sign * (values[best] - value) <= 1e-12:
            return None
        words = best.replace("Always", "Always deciding for")
        return f"{words} would be better on these rows: {self.facts.label} {formatting.value(values[best])}."


def _about(model: Any) -> dict[str, Any]:
    """Return what there is to say about a model, its classes and its metric."""
    facts, metric = model_facts(model), get_metric(model.metric)
    classes = [str(each.name) for each in facts.classes]
    return {"model": model, "facts": facts, "classes": classes, "metric": metric, "average": model.average}


def count_decisions(
    decided: Integers, y: Integers, classes: int, weight: Floats | None = None, *, matrix: bool = False
) -> Counts:
    """Count decisions: about the positive class of two, or as the confusion matrix of several.

    Args:
        decided: Decided class numbers, -1 for rows that are referred to a person, which do not count.
        y: True class numbers.
        classes: Number of classes.
        weight: One weight per row, or None.
        matrix: Whether two classes have a confusion matrix too.

    Returns:
        The counts.
    """
    kept = decided != REFERRED
    weights = np.ones(int(kept.sum())) if weight is None else weight[kept]
    counts = weighted_counts(classes, y[kept], decided[kept], weights[None], matrix=True)
    if classes > 2:
        return ConfusionMatrix(counts.tensors[0][0])
    positive = counts.map(lambda cell: cell[0, 1:])
    return ConfusionMatrix(two_by_two(positive)[0]) if matrix else positive


def paid(costs: RowCosts, decided: NDArray[Any], y: NDArray[Any]) -> Floats:
    """Return what decisions about rows of two classes cost."""
    called, labels = (in_kind_of(part, costs.fp) for part in (decided, y))
    return to_numpy(costs.of_decisions(called, labels), np.float64)


def predicted_numbers(model: Any, X: Any) -> Integers:
    """Return the class number that a model predicts for each row, -1 for rows that it refers to a person."""
    predicted = np.asarray(model.predict(X))
    referred = np.zeros(len(predicted), bool) if model.refer_region_ is None else predicted == model.chosen_.refer_label
    known = np.where(referred, model.classes_[0], predicted).astype(model.classes_.dtype)
    return np.where(referred, REFERRED, to_numpy(model.chosen_.names.numbers_of(known), np.int64))


Verdict = Literal["as expected", "better", "worse", "not comparable"]


@dataclass(frozen=True)
class TrainingComparison:
    """How a value on labelled rows compares with the value at training time.

    Attributes:
        value: The value that training estimated for new rows.
        interval: Its 95 % interval; None if it is not known.
        difference: The value on the rows minus the value at training time; None if they cannot be compared.
        verdict: "as expected", "better", "worse" or "not comparable".
        sentence: The same in words.
    """

    value: float
    interval: Pair | None
    difference: float | None
    verdict: Verdict
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        return asdict(self)


def compare_with_training(
    facts: ModelFacts, value: float | None, interval: Pair | None, *, positives: int, threshold: float | None = None
) -> TrainingComparison:
    """Say whether a model does on labelled rows what training estimated for new rows.

    Both values have an interval. Their difference is called better or worse if its 95 % interval, made from both
    (the square-and-add method of Zou and Donner 2008), does not contain 0.

    Args:
        facts: What there is to say about the model.
        value: Its metric on the rows; None where it is 0/0.
        interval: The 95 % interval of the value; None if the rows are of one class.
        positives: Number of rows of the rarest class, or of the positive one of two.
        threshold: The threshold, if it was not the model's.

    Returns:
        The value at training time, the verdict, and a sentence.
    """
    before, known = facts.value, facts.value_interval
    here = f"{facts.label} is {'not known' if value is None else formatting.value(value)} here"
    at_training = f"{formatting.value(before)} at training time"
    reason = None
    if value is None or interval is None:
        reason = "The rows are all of one class, so they do not say how the model tells classes apart."
    elif threshold is not None and facts.threshold is not None and threshold != facts.threshold:
        reason = (
            f"This is at the threshold {threshold:.4g}, and the model's own is "
            f"{formatting.threshold(facts.threshold)}. The two values cannot be compared."
        )
    if value is None or interval is None or reason is not None:
        return TrainingComparison(before, known, None, "not comparable", f"{here}, {at_training}. {reason}")
    here += f" (95 % interval {formatting.between(interval)})"
    if known is not None:
        at_training += f" (interval {formatting.between(known)})"
    verdict = _verdict(value, interval, before, known or (before, before), facts.minimize)
    words = {
        "as expected": "as expected.",
        "better": "better than expected.",
        "worse": "worse than expected. Look for what differs in these rows before you rely on the model.",
    }[verdict]
    if verdict == "as expected" and positives < 100:
        words = f"as expected, as far as {positives} rows of the rarest class can tell."
    return TrainingComparison(before, known, value - before, verdict, f"{here}, {at_training}: {words}")


def _verdict(value: float, interval: Pair, before: float, known: Pair, minimize: bool) -> Verdict:
    """Compare two values by the ends of their intervals that face each other."""
    if value < before:
        reach = math.hypot(interval[1] - value, before - known[0])
    else:
        reach = math.hypot(value - interval[0], known[1] - before)
    if abs(value - before) <= reach:
        return "as expected"
    return "worse" if (value < before) != minimize else "better"
