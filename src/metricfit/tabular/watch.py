"""Whether the requirements of a deployed model still hold, on labelled rows in the order in which labels arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Floats, Integers
from metricfit.core.counts import Counts
from metricfit.decide.bounds import RATES, check_confidence
from metricfit.decide.decision import REFERRED
from metricfit.errors import InvalidValueError
from metricfit.metrics.curves import Requirements
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.stats.betting import bet_against
from metricfit.tabular.checks import checked_labels
from metricfit.tabular.notebook import items

#: Periods of a picture, and the fewest counted rows of one.
PERIODS, FEWEST = 12, 30
#: By default the probability of a false alarm is at most 1 minus this.
CONFIDENCE = 0.95
OTHER_METRICS = ("f1", "fbeta", "jaccard", "cost")


@dataclass(frozen=True)
class WatchedRequirement:
    """What new rows say about one requirement.

    Attributes:
        text: The requirement.
        held: Whether there is no alarm.
        value: The metric on all rows; None if no row counts for it.
        rows: Number of rows that count, such as the positives for recall.
        alarm_row: Number of the row, from 1, at which the alarm was raised; None without alarm.
        begins_row: Number of the row from which the requirement seems to fail; None without alarm.
        false_alarm: The probability that a model which meets the requirement would ever show as much evidence against
            it, at most.
    """

    text: str
    held: bool
    value: float | None
    rows: int
    alarm_row: int | None
    begins_row: int | None
    false_alarm: float

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.text}: no row counts for it yet."
        measured = f"{self.text}: {self.value:.4g} on {self.rows:,} rows that count"
        if self.held:
            return f"{measured}. No alarm; the evidence against it has p = {self.false_alarm:.2f}."
        return (
            f"{measured}. ALARM: it no longer holds (p = {self.false_alarm:.2g}). The alarm was raised at row "
            f"{self.alarm_row:,}; the fall seems to begin at row {self.begins_row:,}."
        )


class Drawing(NamedTuple):
    """What a picture shows of a requirement: its bound, rows with evidence, and middles of periods with values."""

    bound: float
    evidence: tuple[Integers, Floats]
    periods: tuple[Floats, Floats]


@dataclass(frozen=True, repr=False)
class Watch:
    """Whether the requirements of a model still hold.

    Attributes:
        requirements: What the rows say about each requirement.
        rows: Number of rows.
        confidence: The probability that a model which meets all requirements at all times never raises an alarm.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(400, 2))
        >>> model = MetricClassifier(subject_to="recall >= 0.8", models=["linear"], random_state=0)
        >>> watch = model.fit(X[:200], X[:200, 0] > 0).watch(X[200:], X[200:, 0] > 0)
        >>> watch.alarm, watch.requirements[0].held
        (False, True)
    """

    requirements: tuple[WatchedRequirement, ...]
    rows: int
    confidence: float
    _drawings: tuple[Drawing, ...] = field(repr=False, compare=False)
    _times: Any = field(default=None, repr=False, compare=False)

    @property
    def alarm(self) -> bool:
        """Whether there is an alarm about a requirement."""
        return not all(each.held for each in self.requirements)

    def __repr__(self) -> str:
        return "\n".join([f"{self.rows:,} rows.", *map(str, self.requirements)])

    def _repr_html_(self) -> str:
        return f"<p>{self.rows:,} rows.</p>{items(map(str, self.requirements))}"

    def plot(self) -> Any:
        """Draw for each requirement its metric by period, and the evidence against it.

        Returns:
            A figure of matplotlib, which a notebook shows.

        Example:
            >>> from metricfit import MetricClassifier
            >>> X = np.random.default_rng(0).normal(size=(200, 2))
            >>> model = MetricClassifier(models=["linear"], random_state=0).fit(X, X[:, 0] > 0)
            >>> len(model.watch(X, X[:, 0] > 0, subject_to="recall >= 0.8").plot().axes)
            2
        """
        from metricfit.tabular.plots import Picture  # loads matplotlib

        figure = Picture(8, 3.6 * len(self.requirements))
        axes = figure.subplots(2 * len(self.requirements), 1, sharex=True, squeeze=False)[:, 0]
        least = math.log(len(self.requirements) / (1 - self.confidence))
        parts = zip(self.requirements, self._drawings, axes[::2], axes[1::2], strict=True)
        for each, drawing, values, evidence in parts:
            values.plot(*drawing.periods, "o-", color="tab:blue", label="by period")
            values.axhline(drawing.bound, color="tab:red", linestyle="--", label="bound")
            values.set_ylabel(each.text)
            evidence.plot(*drawing.evidence, color="tab:blue")
            evidence.axhline(least, color="tab:red", linestyle="--", label="alarm")
            evidence.set_ylabel("ln evidence\nagainst it")
            if each.alarm_row is not None and each.begins_row is not None:
                for axis in (values, evidence):
                    axis.axvspan(each.begins_row, each.alarm_row, color="tab:red", alpha=0.15, label="fall to alarm")
            for axis in (values, evidence):
                axis.legend(loc="best", frameon=False)
        axes[-1].set_xlabel("row")
        if self._times is not None:
            places = np.linspace(0, self.rows - 1, min(5, self.rows)).astype(int)
            axes[-1].set_xticks(places + 1, [str(self._times[at]).removesuffix(" 00:00:00") for at in places])
            axes[-1].set_xlabel("")
        return figure


def watch_requirements(
    model: Any,
    X: Any,
    y: Any,
    subject_to: Requirements | None = None,
    confidence: float | None = None,
    times: Any = None,
    predicted: Any = None,
) -> Watch:
    """Test whether requirements still hold; the arguments are as in ``DecidingClassifier.watch``."""
    names = model.chosen_.names
    requirements = names.requirements(model.subject_to if subject_to is None else subject_to)
    if not requirements:
        raise InvalidValueError(
            "the model has no requirement to watch: name one, such as subject_to='recall >= 0.85' (--subject-to)"
        )
    confidence = check_confidence(CONFIDENCE if confidence is None else confidence)
    labels = _label_matrix(model, y, "y") if names.has_labels else names.checked_numbers_of(checked_labels(model, y))
    decided = model._decide_rows(X) if predicted is None else _decisions(model, predicted)
    for name, values in (("X" if predicted is None else "predicted", decided), ("times", times)):
        if values is not None and len(values) != len(labels):
            raise InvalidValueError(f"{name} has {len(values)} rows and y has {len(labels)}")
    least = math.log(len(requirements) / (1 - confidence))
    classes = names.number
    watched = [_watched(each, decided, labels, classes, least) for each in requirements]
    drawings, tests = zip(*watched, strict=True)
    return Watch(tests, len(decided), confidence, drawings, times)


def _label_matrix(model: Any, labels: Any, name: str) -> Integers:
    """Return several labels per row as 0 and 1."""
    matrix = np.asarray(labels)
    if matrix.ndim != 2 or matrix.shape[1] != model.held_out_.y.shape[1] or not np.isin(matrix, (0, 1)).all():
        raise InvalidValueError(f"{name} is a matrix of 0 and 1 with {model.held_out_.y.shape[1]} columns")
    return matrix.astype(np.int64)


def _decisions(model: Any, predicted: Any) -> Integers:
    """Return the class numbers of labels that were decided, -1 for rows that were referred to a person."""
    names = model.chosen_.names
    if names.has_labels:
        return _label_matrix(model, predicted, "predicted")
    labels = np.asarray(predicted)
    referred = np.zeros(len(labels), dtype=bool)
    if model.refer_region_ is not None:
        referred = np.asarray(labels == model.chosen_.refer_label)
    decided = np.full(len(labels), REFERRED, dtype=np.int64)
    if not referred.all():
        decided[~referred] = names.checked_numbers_of(np.array(labels[~referred].tolist()))
    return decided


def _watched(
    requirement: Requirement, decided: Integers, labels: Integers, classes: int, least: float
) -> tuple[Drawing, WatchedRequirement]:
    """Bet against one requirement; an alarm needs evidence of at least ``least``, as a logarithm."""
    part, whole = fraction(requirement, _cells(requirement.metric, decided, labels, classes))
    counts = np.flatnonzero((part != 0) | (whole != 0))
    part, whole = part[counts], whole[counts]
    possible = _gains(requirement, *fraction(requirement, Counts(*np.eye(4))))
    evidence = bet_against(_gains(requirement, part, whole) / (possible.max() if possible.max() > 0 else 1.0))
    alarms = np.flatnonzero(evidence.wealth >= least)
    at = int(alarms[0]) if len(alarms) else None
    highest = float(evidence.wealth.max(initial=0.0))
    periods = np.array_split(np.arange(len(counts)), max(1, min(PERIODS, len(counts) // FEWEST)))
    by_period = [(counts[each].mean() + 1, part[each].sum() / whole[each].sum()) for each in periods if len(each)]
    drawing = Drawing(requirement.bound, (counts + 1, evidence.wealth), tuple(np.array(by_period).reshape(-1, 2).T))
    return drawing, WatchedRequirement(
        text=str(requirement),
        held=at is None,
        value=float(part.sum() / whole.sum()) if len(counts) else None,
        rows=len(counts),
        alarm_row=None if at is None else int(counts[at]) + 1,
        begins_row=None if at is None else int(counts[evidence.begins[at]]) + 1,
        false_alarm=math.exp(-highest),
    )


def _cells(metric: Metric, decided: NDArray[Any], labels: NDArray[Any], classes: int) -> Counts:
    """Return the cell of the confusion matrix that each row is in, ``(n,)``; a row that is referred is in no cell."""
    if classes == 2:
        called, actual = decided == 1, labels == 1
    elif metric.class_index is None:  # accuracy: a right decision is a true positive, a wrong one a false negative
        called, actual = decided == labels, np.ones(len(labels), dtype=bool)
    elif classes:
        called, actual = decided == metric.class_index, labels == metric.class_index
    else:
        called, actual = decided[:, metric.class_index] == 1, labels[:, metric.class_index] == 1
    kept = decided != REFERRED if classes else np.ones(len(labels), dtype=bool)
    cells = (called & actual, called & ~actual, ~called & actual, ~called & ~actual)
    return Counts(*((cell & kept).astype(np.float64) for cell in cells))


def _gains(requirement: Requirement, part: Array, whole: Array) -> Array:
    """Return what rows gain if a requirement holds; their mean is at least 0 if and only if it does."""
    return (part - requirement.bound * whole) * (1 if requirement.sense == ">=" else -1)


def fraction(requirement: Requirement, cells: Counts) -> tuple[Array, Array]:
    """Return the parts and the wholes of which the metric of a requirement is the ratio of sums over rows.

    Raises:
        InvalidValueError: The metric is no such ratio, or the requirement is an equality.
    """
    metric, c = requirement.metric, cells
    values = {key: value for key, value in metric.parameters.items() if isinstance(value, (int, float))}
    if requirement.is_equality or metric.user_defined or len(values) < len(metric.parameters):
        pass
    elif metric.base_name in RATES:
        return RATES[metric.base_name].successes(c), RATES[metric.base_name].trials(c)
    elif metric.base_name in ("f1", "fbeta"):
        weight = values.get("beta", 1) ** 2
        return (1 + weight) * c.tp, (1 + weight) * c.tp + weight * c.fn + c.fp
    elif metric.base_name == "jaccard":
        return c.tp, c.tp + c.fp + c.fn
    elif metric.base_name == "cost":
        return values["fp"] * c.fp + values["fn"] * c.fn, c.n
    raise InvalidValueError(
        f"{requirement} cannot be watched; bounds from one side can, on {', '.join([*RATES, *OTHER_METRICS])}"
    )
