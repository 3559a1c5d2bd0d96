"""What training is watched by: the validation loss, or any metric, at a threshold or at its best one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Batch as SettledBatch
from metricfit.core.canonical_batch import Classes
from metricfit.core.class_shares import settle_task
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.core.tasks import canonical, check_task
from metricfit.core.types import ScalarAverage, Task
from metricfit.core.validation import check_nan_logits
from metricfit.decide.probability_thresholds import probability_sweep
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.curves import InfeasibleError, Sweep, auroc, average_precision, best_of_sweep, one_class
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.requirements import Requirement, parse_requirement

RANKINGS = {"auroc": auroc, "average_precision": average_precision}


@dataclass(frozen=True)
class Monitor:
    """A number that tells how good the model is on the validation set.

    Args:
        metric: "loss", "auroc", "average_precision", a Metric, its name or a function of Counts.
        threshold: where decisions are made, a number, or "best": the exact best threshold on the validation set.
        subject_to: requirements; a model that meets them is better than any that does not, whatever their values.
            Among models that break them, the one with the smallest violation is best.
        average: of several classes, as of MetricLoss.
        ignore_index: samples with this label count for nothing; in ``fit`` by default what the objective ignores.
        task: "binary", "multiclass" or "multilabel", where the shapes do not tell, as for overlapping masks
            ``(n, c, h, w)``; in ``fit`` by default the task of the objective.

    >>> monitor = Monitor("f1", threshold="best")
    >>> monitor.measure(torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1, 1, 0]))
    Measured(value=1.0, threshold=0.5, feasible=True, violation=0.0)
    """

    metric: str | Metric | Formula = "loss"
    threshold: float | str = 0.5
    subject_to: str | Requirement | Sequence[str | Requirement] | None = None
    average: ScalarAverage = "macro"
    ignore_index: int | None = None
    task: Task | None = None
    _metric: Metric | None = field(init=False, repr=False, compare=False, default=None)
    requirements: tuple[Requirement, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        check_task(self.task)
        if self.threshold != "best" and not (
            isinstance(self.threshold, (int, float)) and 0.0 < float(self.threshold) < 1.0
        ):
            raise InvalidValueError(
                f"threshold is a number strictly between 0 and 1, or 'best'; got {quote(self.threshold)}"
            )
        if self.metric == "loss" or (isinstance(self.metric, str) and self.metric in RANKINGS):
            if self.subject_to is not None or self.threshold == "best":
                what = "threshold='best'" if self.subject_to is None else "subject_to"
                raise InvalidValueError(f"{what} needs a metric of decisions, such as 'f1', not {self.metric!r}")
            return
        try:
            found = get_metric(self.metric)
        except ValueError as error:
            also = ", ".join(("loss", *RANKINGS))
            raise InvalidValueError(f"{error}. A monitor, but no metric of decisions, are {also}") from None
        object.__setattr__(self, "_metric", found)
        assert self._metric is not None
        if self.average is None:
            raise InvalidValueError("what is watched is one number; average=None gives one a class")
        check_average(self._metric, self.average)
        given = self.subject_to
        several = () if given is None else (given,) if isinstance(given, (str, Requirement)) else given
        object.__setattr__(self, "requirements", tuple(parse_requirement(each) for each in several))

    @property
    def is_loss(self) -> bool:
        """Whether it is the validation loss that is watched."""
        return self.metric == "loss"

    @property
    def name(self) -> str:
        """What the history calls it."""
        if self._metric is None:
            return str(self.metric)
        best = "best " if self.threshold == "best" else ""
        return f"{best}{self._metric.name}" + "".join(f", {each}" for each in self.requirements)

    @property
    def minimize(self) -> bool:
        """Whether lower is better."""
        return self.is_loss or (self._metric is not None and self._metric.minimize)

    def better(self, measured: Measured | float, than: Measured | float) -> bool:
        """Whether a measurement improves on another.

        Meeting the requirements comes first, then the smaller violation, then the value. A number improves on NaN, and
        NaN improves on nothing.

        Args:
            measured: The new measurement; a plain number is a value without requirements.
            than: The measurement to compare it with.
        """
        new, old = (each if isinstance(each, Measured) else Measured(each, math.nan) for each in (measured, than))
        if math.isnan(new.value) or math.isnan(old.value):
            return not math.isnan(new.value)
        if new.feasible != old.feasible:
            return new.feasible
        if new.violation != old.violation:
            return new.violation < old.violation
        return new.value < old.value if self.minimize else new.value > old.value

    def measure(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Measured:
        """The value on these logits, the threshold it was taken at, and whether the requirements hold there."""
        logits, target = logits.detach(), target.detach()
        check_nan_logits(logits)
        if self.is_loss:
            raise InvalidValueError("the loss is measured by the objective, not by a monitor")
        task = settle_task(logits, target, self.task, ignore_index=self.ignore_index)
        samples = canonical(logits, target, task=task, weight=weight, ignore_index=self.ignore_index)
        if self._metric is None:
            return Measured(float(RANKINGS[str(self.metric)](*self._one_output(samples))), math.nan)
        if self.threshold == "best":
            return self._at_best(*self._one_output(samples))
        exclusive = isinstance(samples, Classes)  # the largest logit decides, at no threshold
        counts = Counts(*samples.hard(float(self.threshold)), exclusive=samples.exclusive)
        value = averaged(self._metric, counts, self.average).item()
        feasible = all(bool(each.holds(counts).all()) for each in self.requirements)
        violation = sum(float(each.violation(counts).clamp(min=0).sum()) for each in self.requirements)
        at = math.nan if exclusive else float(self.threshold)
        return Measured(value, at, feasible, 0.0 if feasible else violation)

    def _one_output(self, samples: SettledBatch) -> tuple[Tensor, Tensor, Tensor | None]:
        """The logits, labels and weights of a model with one output, which rankings and "best" are measured on.

        Raises:
            InvalidValueError: There are several classes or labels.
        """
        if isinstance(samples, Classes) or samples.logits.shape[0] > 1:
            raise InvalidValueError(
                f"{self.name} is measured on one output; for several classes or labels watch the metric at a number, "
                "such as 'f1' at 0.5"
            )
        return samples.logits[0], samples.target[0], None if samples.weight is None else samples.weight[0]

    def _at_best(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Measured:
        assert self._metric is not None
        candidates = probability_sweep(logits, target, weight)
        requirements = list(self.requirements)
        try:
            best = best_of_sweep(candidates, self._metric, requirements)
        except InfeasibleError:  # of the thresholds with the smallest violation, the one with the best value
            violations = torch.stack([one_class(each, candidates.counts).clamp(min=0) for each in requirements]).sum(0)
            smallest = float(violations.min())
            nearest = violations <= smallest + ROUNDING
            counts = candidates.counts.map(lambda count: count[nearest])
            best = best_of_sweep(Sweep(candidates.thresholds[nearest], counts), self._metric, [])
            return Measured(best.value, best.threshold, False, smallest)
        return Measured(best.value, best.threshold)


@dataclass(frozen=True)
class Measured:
    """What a monitor found on a set of samples.

    Attributes:
        value: The monitored value.
        threshold: The threshold it was taken at; NaN where there is none.
        feasible: Whether all requirements hold.
        violation: The sum of what the requirements are missed by; 0 where they hold.
    """

    value: float
    threshold: float
    feasible: bool = True
    violation: float = 0.0


def as_monitor(given: str | Metric | Monitor | Formula) -> Monitor:
    """A Monitor of what was given; ``"best f1"`` is f1 at its best threshold."""
    if isinstance(given, Monitor):
        return given
    if isinstance(given, str) and given.startswith("best "):
        return Monitor(given.removeprefix("best ").strip(), threshold="best")
    return Monitor(given)
