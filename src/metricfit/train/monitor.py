"""Monitor: the value that decides which epoch is best, such as the validation loss or a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.class_shares import TargetJudge
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_batch, count_hard
from metricfit.core.numerics import ROUNDING
from metricfit.core.probabilities import logits_of
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical, check_task
from metricfit.core.thresholds import (
    PerLabel,
    ThresholdGrid,
    ThresholdOfLogits,
    read_decision,
    refuse_classes,
)
from metricfit.core.types import ScalarAverage, Task, ZeroDivision
from metricfit.core.validation import check_nan_logits
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.areas import check_ranking_average
from metricfit.metrics.average import (
    averaged,
    check_average,
    check_classes,
    check_zero_division,
    has_pixels,
    join_images,
    mean_of_images,
    weigh_images,
)
from metricfit.metrics.curves import InfeasibleError, best_of_sweep
from metricfit.metrics.group_gap import GroupGap, is_undefined
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.ranking import RankingMetric, get_measure
from metricfit.metrics.registry import rankings
from metricfit.metrics.requirements import Requirement, parse_requirement
from metricfit.metrics.row_cost import check_of_counts
from metricfit.metrics.sweep import Sweep, one_class
from metricfit.train.label_thresholds import best_label_thresholds, probability_sweep

#: Columns of the history that have another meaning.
PROGRESS = ("stage", "epoch", "step", "member", "train_loss", "lr")
DECIDING = ("validation_loss", "monitor", "value", "threshold", "best", "feasible", "violation")
RESERVED = frozenset((*PROGRESS, *DECIDING))


def in_double(counts: Counts) -> Counts:
    """Return counts in float64, in which the counts of many batches are added."""
    return counts.with_tensors(tensor.double() for tensor in counts.tensors)


@dataclass(frozen=True)
class Measured:
    """A measurement of a monitor.

    Attributes:
        value: The monitored value.
        threshold: The threshold that it was measured at, or one per label; NaN if there is none.
        feasible: Whether all requirements hold.
        violation: The sum of the amounts by which requirements are violated; 0 if they hold.
        undefined: Whether the value is 0/0, as recall is without positives.

    Example:
        >>> Measured(0.9, threshold=0.5).feasible
        True
    """

    value: float
    threshold: float | tuple[float, ...]
    feasible: bool = True
    violation: float = 0.0
    undefined: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True)
class Monitor:
    """A value that says how good a model is on the validation set.

    It is the right one where models or epochs are compared, as in ``fit``: it knows the direction of the metric, the
    best threshold and requirements.

    Args:
        metric: "loss", "auroc", "average_precision", "auroc_ovo", a Metric, its name or a function of Counts. Of
            several classes, "auroc" and "average_precision" rank each one against the rest, "auroc_ovo" all pairs.
        threshold: The decision threshold: a number, one number per label (a list, a tensor or ``metrics.PerLabel``), a
            ``decide.Decision``, or "best" for the exact best threshold on the validation set. For several labels
            "best" is one per label under the averages "macro" and "weighted", and one for all labels under "micro".
        subject_to: Requirements. A model that meets them is better than any model that does not, whatever their values.
            Among models that violate them, the one with the smallest violation is best.
        average: The average over several classes: "macro", "micro" or "weighted".
        ignore_index: Samples with this label are ignored. In ``fit`` the default is what the objective ignores.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two readings, as for
            overlapping masks ``(n, c, h, w)``. In ``fit`` the default is the task of the objective.
        classes: The classes of the average, such as ``[1, 2, 3]`` without background; by default all. See
            ``metrics.averaged``.
        zero_division: What a class counts for where its metric is 0/0: 0, 1, or "skip", which leaves out classes, and
            with ``per_image`` images, without true samples. See ``metrics.averaged``.
        per_image: Whether the value is the mean of the metrics of the images, by their weights if there is one per
            image; images without counted pixels are left out. Requirements are of all pixels together.
        from_probabilities: Whether the model gives probabilities instead of logits. In ``fit`` the default is what the
            objective takes.

    Raises:
        ValueError: The metric is unknown, or the settings do not go with it.

    Example:
        >>> monitor = Monitor("f1", threshold="best")
        >>> monitor.measure(torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1, 1, 0]))
        Measured(value=1.0, threshold=0.5, feasible=True, violation=0.0)
    """

    metric: str | Metric | RankingMetric | Formula = "loss"
    threshold: float | str | Sequence[float] | Tensor | PerLabel | ThresholdOfLogits = 0.5
    subject_to: str | Requirement | Sequence[str | Requirement] | None = None
    average: ScalarAverage = "macro"
    ignore_index: int | None = None
    task: Task | None = None
    classes: Sequence[int] | None = None
    zero_division: ZeroDivision = None
    per_image: bool = False
    from_probabilities: bool = False
    measured: Metric | RankingMetric | None = field(init=False, repr=False, compare=False, default=None)
    requirements: tuple[Requirement, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        check_task(self.task)
        if self.classes is not None and hasattr(self.classes, "tolist"):
            object.__setattr__(self, "classes", self.classes.tolist())
        object.__setattr__(self, "threshold", read_threshold(self.threshold))
        if self.average is None:
            raise InvalidValueError(
                "a monitor is one number, but average=None gives one number per class; use average='macro'"
            )
        try:
            measured = None if self.is_loss else get_measure(self.metric)
        except ValueError as error:
            names = ", ".join(("loss", *rankings()))
            raise InvalidValueError(f"{error}. Besides metrics there are {names}") from None
        object.__setattr__(self, "measured", measured)
        if isinstance(measured, RankingMetric):
            check_ranking_average(self.average, "one" if measured.in_pairs else "rest")
        if not isinstance(measured, Metric) or self.threshold == "best":
            self._refuse_settings("threshold='best'" if self.threshold == "best" else repr(self.metric))
        if not isinstance(measured, Metric):
            if self.subject_to is not None or self.threshold == "best":
                setting = "threshold='best'" if self.subject_to is None else "subject_to"
                raise InvalidValueError(f"{setting} needs a metric of decisions, such as 'f1', not {self.metric!r}")
            return
        check_average(measured, self.average)
        check_classes(measured, self.classes)
        check_zero_division(measured, self.zero_division)
        if self.per_image and isinstance(measured, GroupGap):
            raise InvalidValueError(f"{measured.name} compares groups of rows, not images; leave per_image out")
        requirements = self.subject_to
        if requirements is None:
            requirements = ()
        elif isinstance(requirements, (str, Requirement)):
            requirements = (requirements,)
        object.__setattr__(self, "requirements", tuple(map(parse_requirement, requirements)))
        check_of_counts(measured)
        for requirement in self.requirements:
            _refuse_gap(check_of_counts(requirement.metric))

    def _refuse_settings(self, what: str) -> None:
        """Refuse settings of a value that is not a metric of decisions at a fixed threshold."""
        settings = {"classes": self.classes, "zero_division": self.zero_division, "per_image": self.per_image or None}
        names = [f"{name}=" for name, value in settings.items() if value is not None]
        if names:
            raise InvalidValueError(
                f"{' and '.join(names)}: only for metrics of decisions at a fixed threshold, not with {what}; leave it "
                "out"
            )

    def values(self, counts: Counts) -> Tensor:
        """Return the value of counts, averaged over the classes.

        Args:
            counts: Counts ``(c,)``, or of images ``(images, c)``.

        Returns:
            A scalar, or one value per image, NaN for images that are left out.
        """
        assert isinstance(self.measured, Metric)
        return averaged(self.measured, counts, self.average, self.classes, self.zero_division)

    def weigh(self, counts: Counts, weight: Tensor | None) -> Tensor | None:
        """Return how much each image of a batch counts in the mean.

        Args:
            counts: The counts of the images.
            weight: The weights of the images or of their pixels, if there are any.

        Returns:
            One number per image; None if images are not measured one by one.
        """
        return weigh_images(has_pixels(counts), weight, counts.tp.dtype) if self.per_image else None

    def of_all_pixels(self, counts: Counts) -> Counts:
        """Return the counts of all images together.

        Args:
            counts: What ``count`` returned.

        Returns:
            The counts ``(c,)``.
        """
        return counts.with_tensors(tensor.sum(0) for tensor in counts.tensors) if self.per_image else counts

    @property
    def is_loss(self) -> bool:
        """Whether the monitor is the validation loss."""
        return self.metric == "loss"

    @property
    def is_ranking(self) -> bool:
        """Whether the monitored value is a measure of scores, such as "auroc", which needs no threshold."""
        return isinstance(self.measured, RankingMetric)

    @property
    def name(self) -> str:
        """The name in the history."""
        if not isinstance(self.measured, Metric):
            return str(self.metric)
        best = "best " if self.threshold == "best" else ""
        of_classes = "" if self.classes is None else f" of classes {', '.join(map(str, self.classes))}"
        name = f"{best}{self.measured.name}{of_classes}{' per image' * self.per_image}"
        return ", ".join([name, *map(str, self.requirements)])

    @property
    def minimize(self) -> bool:
        """Whether lower is better."""
        return self.is_loss or (isinstance(self.measured, Metric) and self.measured.minimize)

    def better(self, measured: Measured | float, than: Measured | float) -> bool:
        """Check whether a measurement improves on another.

        Meeting the requirements comes first, then the smaller violation, then the value. A number improves on NaN, and
        NaN improves on nothing.

        Args:
            measured: The new measurement; a plain number is a value without requirements.
            than: The measurement to compare it with.

        Returns:
            Whether the new measurement is better.

        Example:
            >>> Monitor("f1").better(0.8, than=0.7), Monitor("loss").better(0.8, than=0.7)
            (True, False)
        """
        new, old = (value if isinstance(value, Measured) else Measured(value, math.nan) for value in (measured, than))
        if math.isnan(new.value) or math.isnan(old.value):
            return not math.isnan(new.value)
        if new.feasible != old.feasible:
            return new.feasible
        if new.violation != old.violation:
            return new.violation < old.violation
        return new.value < old.value if self.minimize else new.value > old.value

    def measure(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> Measured:
        """Measure logits against labels.

        Args:
            logits: The logits of all samples.
            target: Their labels.
            weight: Their weights, if there are any.
            group: Their group numbers, for a gap between groups.

        Returns:
            The value, the threshold that it was measured at, and whether the requirements hold there.

        Raises:
            ValueError: The monitor is the loss, or logits and labels do not go with the metric.

        Example:
            >>> Monitor("accuracy").measure(torch.tensor([2.0, -1.0]), torch.tensor([1, 1])).value
            0.5
        """
        if self.is_loss:
            raise InvalidValueError("the objective measures the loss, not the monitor")
        if not self.needs_scores:
            counts = self.count(logits, target.detach(), weight, group=group)
            return self.measure_counts(counts, shares=self.weigh(counts, weight))
        logits, settings = self._read(logits, target)
        samples = canonical(logits, target.detach(), settings, weight=weight, judge=TargetJudge())
        if isinstance(self.measured, RankingMetric):
            return Measured(self.measured.measure_samples(samples, self.average), math.nan)
        assert self.measured is not None
        return measure_at_best(samples, self.measured, self.requirements, self.average, self.name)

    def _read(self, logits: Tensor, target: Tensor) -> tuple[Tensor, CountSettings]:
        """Return logits, also of a model that gives probabilities, and how they are counted."""
        check_nan_logits(logits)
        if self.from_probabilities:
            logits = logits_of(logits, target, self.task, self.ignore_index, exact=True)
        groups = self.measured.groups if isinstance(self.measured, GroupGap) else None
        threshold: Any = None if self.needs_scores else self.threshold
        return logits.detach(), CountSettings(
            self.task, None, threshold, self.ignore_index, self.per_image, groups=groups
        )

    @property
    def needs_scores(self) -> bool:
        """Whether the value needs the scores of all samples at once, as a ranking and the best threshold do."""
        return self.is_ranking or self.threshold == "best"

    def count(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> Counts:
        """Count the decisions on some of the samples; ``MonitorStream`` adds the counts of several parts.

        Args:
            logits: The logits of the samples.
            target: Their labels.
            weight: Their weights, if there are any.
            group: Their group numbers, for a gap between groups.

        Returns:
            The counts.

        Example:
            >>> Monitor("accuracy").count(torch.tensor([2.0, -1.0]), torch.tensor([1, 1])).tp
            tensor([1.], dtype=torch.float64)
        """
        assert isinstance(self.measured, Metric)
        matrix = any(m.needs_matrix for m in (self.measured, *(each.metric for each in self.requirements)))
        logits, settings = self._read(logits, target)
        return count_hard(logits, target, settings, weight=weight, group=group, matrix=matrix)

    def measure_counts(self, counts: Counts, *, shares: Tensor | None = None) -> Measured:
        """Measure the counts of all samples.

        Args:
            counts: What ``count`` returned, of several parts joined by ``MonitorStream``.
            shares: With ``per_image``, how much each image counts in the mean; what ``weigh`` returned.

        Returns:
            The value, the threshold that it was measured at, and whether the requirements hold there.

        Example:
            >>> from metricfit import Counts
            >>> counts = Counts.from_labels(torch.tensor([1, 1, 0, 0]), torch.tensor([1, 0, 0, 0]))
            >>> Monitor("accuracy").measure_counts(counts).value
            0.75
        """
        assert isinstance(self.measured, Metric)
        values = self.values(counts)
        if self.per_image:
            values = mean_of_images(values, self.weigh(counts, None) if shares is None else shares)
        one = counts.tp.numel() == 1 and self.zero_division is None and not isinstance(self.measured, GroupGap)
        undefined = one and bool(is_undefined(self.measured, counts).all())
        counts = self.of_all_pixels(counts)
        feasible = all(bool(requirement.holds(counts).all()) for requirement in self.requirements)
        violations = [float(requirement.violation(counts).clamp(min=0).sum()) for requirement in self.requirements]
        threshold: float | tuple[float, ...] = math.nan
        if not (counts.exclusive and counts.classes > 1):  # otherwise the largest logit decides
            labels = isinstance(self.threshold, PerLabel)
            threshold = tuple(self.threshold.tolist()) if labels else float(self.threshold)  # type: ignore
        return Measured(float(values), threshold, feasible, 0.0 if feasible else sum(violations), undefined)


class MonitorStream:
    """The monitored value of all samples of a stream, from their counts: one sum, or the counts of each image."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.parts: list[Counts] = []
        self.shares: list[Tensor] = []

    def add(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> None:
        """Add the samples of a batch."""
        counts = in_double(self.monitor.count(logits, target, weight))
        if self.parts and not self.monitor.per_image:
            self.parts[0] = self.parts[0] + counts
        else:
            self.parts.append(counts)
        shares = self.monitor.weigh(counts, weight)
        self.shares += [] if shares is None else [shares]

    def joined(self) -> tuple[Counts, Tensor | None]:
        """Return the counts of all samples, and how much each image counts; None if images are not measured."""
        counts = join_images(self.parts) if self.monitor.per_image else self.parts[0]
        return counts, torch.cat(self.shares) if self.shares else None

    def measure(self) -> Measured:
        """Measure the metric and the requirements."""
        counts, shares = self.joined()
        return self.monitor.measure_counts(counts, shares=shares)


def as_monitor(monitor: str | Metric | Monitor | Formula) -> Monitor:
    """Return a Monitor; ``"best f1"`` is f1 at its best threshold."""
    if isinstance(monitor, Monitor):
        return monitor
    if isinstance(monitor, str) and monitor.startswith("best "):
        return Monitor(monitor.removeprefix("best ").strip(), threshold="best")
    return Monitor(monitor)


#: What is monitored: "loss", a metric, "best f1" or a Monitor, or a list of these, of which the first decides.
Monitored = str | Metric | Monitor | Formula | Sequence[str | Metric | Monitor | Formula]


def make_monitors(monitor: Monitored) -> tuple[Monitor, ...]:
    """Return the monitors of a stage, the one that decides first.

    Raises:
        ValueError: There is none, one is unknown, or two would have the same column of the history.

    Example:
        >>> [each.name for each in make_monitors(["best f1", "auroc"])]
        ['best f1', 'auroc']
    """
    if not isinstance(monitor, (list, tuple)):
        return make_monitors([monitor])  # type: ignore[list-item]
    if not monitor:
        raise InvalidValueError("monitor is an empty list; leave it out to monitor the loss")
    monitors = tuple(map(as_monitor, monitor))
    names = list(map(name_column, monitors))
    for number, name in enumerate(names):
        _refuse_gap(monitors[number].measured)
        if name in names[:number]:
            raise InvalidValueError(f"monitor names {quote(name)} twice, but each has one column of the history")
        if name in RESERVED:
            raise InvalidValueError(
                f"a column {quote(name)} of the history has another meaning; give this metric another name"
            )
    return monitors


def _refuse_gap(metric: object) -> None:
    if isinstance(metric, GroupGap):
        raise InvalidValueError(
            f"a monitor measures all rows together, not {metric.name}; make the gap a constraint of the "
            "AugmentedLagrangian: epochs that meet its requirements are better than those that do not"
        )


def name_column(monitor: Monitor) -> str:
    """Return the name of a monitor's column: its own, with the threshold and the average that are not the usual ones.

    Example:
        >>> name_column(Monitor("f1", threshold=0.3, average="micro"))
        'f1 at 0.3 micro'
    """
    name = monitor.name
    if isinstance(monitor.threshold, (int, float)) and monitor.threshold != 0.5:
        name += f" at {monitor.threshold:g}"
    elif isinstance(monitor.threshold, PerLabel):
        name += " at thresholds per label"
    return name if monitor.average == "macro" else f"{name} {monitor.average}"


def make_columns(monitors: Sequence[Monitor], measured: Sequence[Measured]) -> dict[str, Any]:
    """Return the columns that a list of monitors adds to a row of the history.

    Args:
        monitors: The monitors of the stage.
        measured: What each of them measured.

    Returns:
        Each monitor's value under its name. For monitors other than the first also the threshold, if it is the best
        one, and whether its requirements hold, if there are any; for the first monitor these are columns of every
        history.
    """
    row: dict[str, Any] = {}
    for number, (name, monitor, result) in enumerate(zip(map(name_column, monitors), monitors, measured, strict=True)):
        row[name] = result.value
        if number and monitor.threshold == "best":
            row[f"{name} threshold"] = result.threshold
        if number and monitor.requirements:
            row[f"{name} feasible"] = result.feasible
    return row


def read_threshold(threshold: Any) -> float | str | PerLabel:
    """Return a threshold of decisions as a number, "best", or one number per label.

    Raises:
        InvalidValueError: It is something else.
    """
    threshold = read_decision(threshold)
    if threshold == "best" if isinstance(threshold, str) else isinstance(threshold, PerLabel):
        return threshold
    expected = "threshold must be strictly between 0 and 1: a number, one number per label, or 'best'"
    if isinstance(threshold, (str, bool, ThresholdGrid)) or threshold is None:
        raise InvalidValueError(f"{expected}; got {quote(threshold)}")
    try:
        numbers = torch.as_tensor(threshold, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidValueError(f"{expected}; got {quote(threshold)}") from None
    if numbers.dim() > 1 or not numbers.numel() or not bool(((numbers > 0) & (numbers < 1)).all()):
        raise InvalidValueError(f"{expected}; got {quote(threshold)}")
    return PerLabel(numbers.cpu()) if numbers.dim() else float(numbers)


def measure_at_best(
    samples: Columns | Classes, metric: Metric, requirements: Sequence[Requirement], average: ScalarAverage, name: str
) -> Measured:
    """Measure a metric at its best threshold; several labels at one per label, or at one for all under "micro".

    Args:
        samples: Logits and labels in their final shape.
        metric: The metric.
        requirements: What the threshold must meet; for one output only.
        average: The average over several labels.
        name: The name of the monitor, for messages.

    Raises:
        InvalidValueError: The classes exclude each other, or there are requirements on several labels.
    """
    if isinstance(samples, Classes):
        raise refuse_classes()
    if samples.logits.shape[0] == 1:
        weight = None if samples.weight is None else samples.weight[0]
        return _measure_one(probability_sweep(samples.logits[0], samples.target[0], weight), metric, list(requirements))
    if requirements:
        raise InvalidValueError(
            f"{name}: the best thresholds of several labels are searched without requirements; monitor the metric at "
            "fixed thresholds, such as metrics.PerLabel([...]), or choose the decision afterwards with "
            "decide.best_decision(..., subject_to=...)"
        )
    best = best_label_thresholds(samples, metric, average)
    column = best.unsqueeze(-1) if isinstance(best, Tensor) else best
    value = float(averaged(metric, count_batch(samples, column), average))
    return Measured(value, tuple(best.tolist()) if isinstance(best, Tensor) else best)


def _measure_one(candidates: Sweep, metric: Metric, requirements: list[Requirement]) -> Measured:
    """Measure one output; if no threshold meets the requirements, at the best of those with the smallest violation."""
    try:
        best = best_of_sweep(candidates, metric, requirements)
    except InfeasibleError:
        violations = torch.stack(
            [one_class(requirement, candidates.counts).clamp(min=0) for requirement in requirements]
        ).sum(0)
        smallest = float(violations.min())
        nearest = violations <= smallest + ROUNDING
        counts = candidates.counts.map(lambda count: count[nearest])
        best = best_of_sweep(Sweep(candidates.thresholds[nearest], counts), metric, [])
        return Measured(best.value, best.threshold, False, smallest)
    return Measured(best.value, best.threshold)
