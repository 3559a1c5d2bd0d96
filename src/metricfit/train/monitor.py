"""Monitor: the value that decides which epoch is best, such as the validation loss or a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from metricfit.core.canonical_batch import Batch as SettledBatch
from metricfit.core.canonical_batch import Classes
from metricfit.core.class_shares import TargetJudge
from metricfit.core.counting import count_batch
from metricfit.core.counts import Counts
from metricfit.core.probabilities import logits_of
from metricfit.core.tasks import canonical, check_task
from metricfit.core.threshold_reading import read_thresholds
from metricfit.core.threshold_vectors import PerLabel, ThresholdOfLogits
from metricfit.core.types import ScalarAverage, Task, ZeroDivision
from metricfit.core.validation import check_nan_logits
from metricfit.errors import InvalidValueError
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.label_rankings import check_ranking_average
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.ranking import RankingMetric, get_measure, get_ranking
from metricfit.metrics.registry import rankings
from metricfit.metrics.requirements import Requirement, parse_requirement
from metricfit.metrics.row_cost import check_of_counts
from metricfit.train.averaging import Averaging
from metricfit.train.monitored_value import Measured as Measured
from metricfit.train.monitored_value import measure_at_best, read_monitor_threshold


@dataclass(frozen=True)
class Monitor:
    """A value that says how good a model is on the validation set.

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
    _metric: Metric | None = field(init=False, repr=False, compare=False, default=None)
    _ranking: RankingMetric | None = field(init=False, repr=False, compare=False, default=None)
    requirements: tuple[Requirement, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        check_task(self.task)
        object.__setattr__(self, "threshold", read_monitor_threshold(self.threshold))
        ranking = get_ranking(self.metric)
        object.__setattr__(self, "_ranking", ranking)
        if self.average is None:
            raise InvalidValueError(
                "a monitor is one number, but average=None gives one number per class; use average='macro'"
            )
        if ranking is not None:
            check_ranking_average(self.average, "one" if ranking.in_pairs else "rest")
        if self.is_loss or ranking is not None or self.threshold == "best":
            self.averaging.refuse_for("threshold='best'" if self.threshold == "best" else repr(self.metric))
        if self.is_loss or ranking is not None:
            if self.subject_to is not None or self.threshold == "best":
                setting = "threshold='best'" if self.subject_to is None else "subject_to"
                raise InvalidValueError(f"{setting} needs a metric of decisions, such as 'f1', not {self.metric!r}")
            return
        try:
            metric = get_measure(self.metric)
        except ValueError as error:
            names = ", ".join(("loss", *rankings()))
            raise InvalidValueError(f"{error}. A monitor can also be one of {names}") from None
        object.__setattr__(self, "_metric", metric)
        assert isinstance(metric, Metric)
        self.averaging.check(metric)
        requirements = self.subject_to
        if requirements is None:
            requirements = ()
        elif isinstance(requirements, (str, Requirement)):
            requirements = (requirements,)
        object.__setattr__(self, "requirements", tuple(map(parse_requirement, requirements)))
        for watched in (metric, *(requirement.metric for requirement in self.requirements)):
            check_of_counts(watched)
            if isinstance(watched, GroupGap):
                raise InvalidValueError(
                    f"a monitor measures all rows together, not {watched.name}; make the gap a constraint of the "
                    "AugmentedLagrangian: epochs that meet its requirements are better than those that do not"
                )

    @property
    def averaging(self) -> Averaging:
        """How values of classes and of images become one number."""
        return Averaging(self.average, self.classes, self.zero_division, self.per_image)

    @property
    def is_loss(self) -> bool:
        """Whether the monitor is the validation loss."""
        return self.metric == "loss"

    @property
    def is_ranking(self) -> bool:
        """Whether the monitored value is a measure of scores, such as "auroc", which needs no threshold."""
        return self._ranking is not None

    @property
    def in_pairs(self) -> bool:
        """Whether the monitored value compares pairs of classes."""
        return self._ranking is not None and self._ranking.in_pairs

    @property
    def needs(self) -> frozenset[str]:
        """Which of "positives" and "negatives" the monitored value is measured on."""
        measured = self._metric if self._ranking is None else self._ranking
        return frozenset() if measured is None else frozenset(measured.needs)

    @property
    def name(self) -> str:
        """The name in the history."""
        if self._metric is None:
            return str(self.metric)
        best = "best " if self.threshold == "best" else ""
        return f"{best}{self._metric.name}{self.averaging.text}" + "".join(
            f", {requirement}" for requirement in self.requirements
        )

    @property
    def minimize(self) -> bool:
        """Whether lower is better."""
        return self.is_loss or (self._metric is not None and self._metric.minimize)

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

    def measure(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Measured:
        """Measure logits against labels.

        Args:
            logits: The logits of all samples.
            target: Their labels.
            weight: Their weights, if there are any.

        Returns:
            The value, the threshold that it was measured at, and whether the requirements hold there.

        Raises:
            ValueError: The monitor is the loss, or logits and labels do not go with the metric.

        Example:
            >>> Monitor("accuracy").measure(torch.tensor([2.0, -1.0]), torch.tensor([1, 1])).value
            0.5
        """
        logits, target = logits.detach(), target.detach()
        check_nan_logits(logits)
        if self.is_loss:
            raise InvalidValueError("the objective measures the loss, not the monitor")
        if not self.needs_scores:
            counts, exclusive = self.count(logits, target, weight)
            return self.measure_counts(counts, exclusive=exclusive, shares=self.averaging.weigh(counts, weight))
        samples = self._settle(logits, target, weight)
        if self._ranking is not None:
            return Measured(self._ranking.measure_samples(samples, self.average), math.nan)
        assert self._metric is not None
        return measure_at_best(samples, self._metric, self.requirements, self.average, self.name)

    def _settle(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> SettledBatch:
        return canonical(
            self.as_logits(logits, target),
            target,
            task=self.task,
            weight=weight,
            ignore_index=self.ignore_index,
            per_image=self.per_image,
            judge=TargetJudge(),
        )

    def as_logits(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the logits of a model's outputs, which are probabilities with ``from_probabilities``.

        Args:
            outputs: The outputs of the model.
            target: The labels.

        Returns:
            The outputs themselves, or the logits of probabilities, in float64.

        Raises:
            ValueError: The outputs should be probabilities and are not.
        """
        if not self.from_probabilities:
            return outputs
        return logits_of(outputs, target, self.task, self.ignore_index, exact=True)

    @property
    def needs_scores(self) -> bool:
        """Whether the value needs the scores of all samples at once, as a ranking and the best threshold do."""
        return self.is_ranking or self.threshold == "best"

    def count(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> tuple[Counts, bool]:
        """Count the decisions on some of the samples; ``averaging.join`` adds the counts of several parts.

        Args:
            logits: The logits of the samples.
            target: Their labels.
            weight: Their weights, if there are any.

        Returns:
            The counts, and whether the classes exclude each other, so that the largest logit decides.

        Example:
            >>> Monitor("accuracy").count(torch.tensor([2.0, -1.0]), torch.tensor([1, 1]))[0].tp
            tensor([1.], dtype=torch.float64)
        """
        assert self._metric is not None
        logits = logits.detach()
        check_nan_logits(logits)
        samples = self._settle(logits, target, weight)
        matrix = any(m.needs_matrix for m in (self._metric, *(each.metric for each in self.requirements)))
        assert not isinstance(self.threshold, str)
        threshold = read_thresholds(self.threshold, samples, soft=False)
        assert isinstance(threshold, (float, Tensor))
        return count_batch(samples, threshold, matrix=matrix), isinstance(samples, Classes)

    def measure_counts(self, counts: Counts, *, exclusive: bool, shares: Tensor | None = None) -> Measured:
        """Measure the counts of all samples.

        Args:
            counts: What ``count`` returned, of several parts joined by ``averaging.join``.
            exclusive: Whether the classes exclude each other.
            shares: With ``per_image``, how much each image counts in the mean; what ``averaging.weigh`` returned.

        Returns:
            The value, the threshold that it was measured at, and whether the requirements hold there.

        Example:
            >>> from metricfit import Counts
            >>> Monitor("accuracy").measure_counts(Counts(tp=3, fp=1, fn=0, tn=4), exclusive=False).value
            0.875
        """
        assert self._metric is not None
        value, counts = self.averaging.value(self._metric, counts, shares), self.averaging.of_all_pixels(counts)
        feasible = all(bool(requirement.holds(counts).all()) for requirement in self.requirements)
        violations = [float(requirement.violation(counts).clamp(min=0).sum()) for requirement in self.requirements]
        threshold: float | tuple[float, ...] = math.nan
        if not exclusive:
            labels = isinstance(self.threshold, PerLabel)
            threshold = tuple(self.threshold.tolist()) if labels else float(self.threshold)  # type: ignore
        return Measured(value, threshold, feasible, 0.0 if feasible else sum(violations))


def as_monitor(monitor: str | Metric | Monitor | Formula) -> Monitor:
    """Return a Monitor; ``"best f1"`` is f1 at its best threshold."""
    if isinstance(monitor, Monitor):
        return monitor
    if isinstance(monitor, str) and monitor.startswith("best "):
        return Monitor(monitor.removeprefix("best ").strip(), threshold="best")
    return Monitor(monitor)
