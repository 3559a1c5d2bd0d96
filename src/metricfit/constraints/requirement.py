"""RequirementConstraint: a bound on a metric. Soft counts give the gradient, hard counts update the multiplier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from metricfit.constraints.constraint import MeasuredConstraint, Rows
from metricfit.core.batch_counts import BatchCounts, evaluate
from metricfit.core.class_shares import TargetJudge, settle_task
from metricfit.core.confusion import unstack
from metricfit.core.counting import count_soft
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_hard
from metricfit.core.numerics import Dual
from metricfit.core.settings import CountSettings
from metricfit.core.steps import Step
from metricfit.core.tasks import check_task
from metricfit.core.tensor_numerics import counting_dtype
from metricfit.core.thresholds import PerLabel, ThresholdSetting, keep_threshold, kept_threshold
from metricfit.core.types import Average, Task
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.memory import RunningCounts
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.group_gap import GroupGap, has_samples, is_measured
from metricfit.metrics.requirements import Requirement, parse_requirement
from metricfit.metrics.row_cost import check_of_counts


class RequirementConstraint(MeasuredConstraint):
    r"""A requirement such as ``recall >= 0.9`` as a constraint; AugmentedLagrangian turns a Requirement into it.

    .. math:: \frac{\max(0, \lambda + \mu g)^2 - \lambda^2}{2\mu}, \qquad
        \lambda \leftarrow \max(0, \lambda + \mu g)

    The violation g is bound - value for ``>=`` and value - bound for ``<=``. For ``==`` the term is
    :math:`\lambda g + \mu g^2 / 2` with g = value - bound, and the multiplier may be negative. The term uses soft
    counts, the update hard counts. Each class, and with ``groups`` each group, has its own multiplier; ``average``
    first combines the classes into one value. A class or group without the samples that the metric needs, such as
    positives for recall, adds nothing to the term. Its multiplier changes only if the metric is not 0/0: without
    positives, precision is 0 if there are alarms. With several classes, a user-defined metric
    is assumed to need positives unless ``@metric(needs=...)`` says otherwise.

    Args:
        requirement: A Requirement, or text such as ``"recall >= 0.9"``, ``"recall[2] >= 0.9"``, ``"recall == 0.9"`` or
            ``"recall.gap(2) <= 0.05"``, the largest difference between two groups.
        step: The soft decision, as for MetricLoss.
        threshold: Where decisions will be made: one number, or one per label, ``metrics.PerLabel([...])``.
        task: "binary", "multiclass" or "multilabel", if the shapes do not determine it.
        average: None for a requirement on every class, or "macro", "micro", "weighted".
        ignore_index: Samples with this target are ignored.
        groups: Number of groups, or their names. Every group must meet the requirement; ``group`` of forward numbers
            them from 0. A requirement on a gap between groups has its groups already.
        memory: RunningCounts for the soft counts, if batches are too small to measure the metric on.
        sync: In a distributed run, sum the counts over the ranks.
        validate: Check labels and logits for NaN and values out of range; by default in eager mode on the CPU.

    Raises:
        TypeError: If ``step`` or ``threshold`` has the wrong type.
        ValueError: If the requirement cannot be read, or another argument is out of range.

    Example:
        >>> from metricfit import AugmentedLagrangian, losses
        >>> recall = RequirementConstraint("recall >= 0.9", threshold=0.3)
        >>> loss = AugmentedLagrangian(losses.WeightedBCELoss(), [recall])
        >>> loss(torch.tensor([0.2, -2.0]), torch.tensor([1, 1]))
        tensor(1.3867)
    """

    late: ClassVar[tuple[str, ...]] = ("multiplier", "seen")
    records: ClassVar[tuple[str, ...]] = ("seen",)
    seen: Tensor | None
    threshold: ThresholdSetting
    per_label: bool
    #: Whether the classes of ``seen`` are exclusive; None after loading, until the first batch.
    _exclusive: Any = None

    def __init__(
        self,
        requirement: str | Requirement,
        *,
        step: Step | None = None,
        threshold: float | PerLabel | None = None,
        task: Task | None = None,
        average: Average = None,
        ignore_index: int | None = None,
        groups: int | Sequence[str | int] | None = None,
        memory: RunningCounts | None = None,
        sync: bool = True,
        validate: bool | None = None,
    ) -> None:
        super().__init__(sync=sync)
        self.requirement = parse_requirement(requirement)
        if step is not None and not isinstance(step, Step):
            raise InvalidTypeError(f"step must be one of metricfit.steps, such as Linear(0.1), got {quote(step)}")
        number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
        if not (threshold is None or number or isinstance(threshold, PerLabel)):
            raise InvalidTypeError(
                f"a requirement is kept at one threshold, a number, or one per label, metrics.PerLabel; got "
                f"{quote(threshold)}"
            )
        keep_threshold(self, threshold)
        self.group_names: tuple[object, ...] | None = None
        metric = check_of_counts(self.requirement.metric)
        if isinstance(metric, GroupGap):
            if groups not in (None, metric.groups):
                raise InvalidValueError(
                    f"{self.requirement} is a difference between its {metric.groups} groups; leave groups={groups} out"
                )
            groups, self.group_names = metric.groups, metric.group_names
        elif isinstance(groups, (list, tuple)) and groups and len(set(groups)) == len(groups):
            self.group_names, groups = tuple(groups), len(groups)
        if groups is not None and (isinstance(groups, bool) or not isinstance(groups, int) or groups < 1):
            raise InvalidValueError(
                f"groups is the number of groups, at least 1, or a list of their names, each once; got {quote(groups)}"
            )
        check_average(self.requirement.metric, average)
        check_task(task)
        self.step, self.task, self.average = step, task, average
        self.ignore_index, self.groups, self.memory, self.validate = ignore_index, groups, memory, validate
        self._judge = TargetJudge()

    def term(self, rows: Rows, penalty: Tensor) -> Tensor:
        """Compute the augmented term of the soft violation, summed over classes and groups.

        Args:
            rows: The rows.
            penalty: The penalty factor mu.

        Returns:
            What the constraint adds to the objective, a scalar.
        """
        counts = self._all_ranks(self._count(count_soft, rows, lazily=True))
        if self._exclusive is not counts.exclusive:  # setting an attribute of a module takes microseconds
            self._exclusive = counts.exclusive
        if self.memory is not None:
            counts = self.memory(counts)
        term = self._evaluate(counts, penalty)
        if self.learns and (self.seen is None or not self.held_out):
            self._record(self._hard_counts(counts, rows))
        return term

    def _evaluate(self, counts: Counts, penalty: Tensor) -> Tensor:
        """Return the term of counts, by dual numbers where the multipliers are known and have no gradient."""

        def term(c: Counts) -> Any:
            value, measured = self._values(c)
            violation = self.requirement.deviation(value)
            if known is None or type(violation) is not Dual:
                made = self.made("multiplier", violation)  # which checks the shape
            return self.sum_of_terms(violation, measured, made if known is None else known, penalty)

        known = None
        if not isinstance(counts, BatchCounts):
            return term(counts)
        multiplier = self._first_multiplier(counts) if self.multiplier is None else self.multiplier
        if multiplier.requires_grad or multiplier.device != counts.batch.logits.device:
            return term(counts)
        known = multiplier.clone()  # a second derivative, taken after an update, is at this one
        return evaluate(term, counts)

    def _first_multiplier(self, counts: BatchCounts) -> Tensor:
        """Return the multiplier, made before the first batch is counted, which a checkpoint may count again."""
        logits = counts.batch.logits
        zeros = logits.new_zeros(counts.classes, dtype=counting_dtype(logits.dtype))
        value, _ = self._values(Counts(zeros, zeros, zeros, zeros, exclusive=counts.exclusive))
        return self.made("multiplier", value)

    def _hard_counts(self, counts: Counts, rows: Rows) -> Tensor:
        if isinstance(counts, BatchCounts):
            return counts.batch.hard_counts()
        return torch.stack(self._all_ranks(self._count(count_hard, rows)).tensors)

    def _record(self, hard: Tensor) -> None:
        """Add hard counts to those since the last update, if training batches move the multipliers."""
        seen = self.made("seen", hard)
        if not self.held_out and self.is_new_pass(hard):
            seen.add_(hard)

    @property
    def is_equality(self) -> bool:
        """Whether the metric should equal the bound."""
        return self.requirement.is_equality

    def record_held_out(self, rows: Rows, sync: bool) -> None:
        """Count hard decisions on held-out rows.

        Args:
            rows: The rows.
            sync: Whether each rank of a distributed run passes its share of the rows.
        """
        counts = self._count(count_hard, rows)
        self._exclusive = counts.exclusive
        hard = torch.stack((counts.sum_over_ranks() if sync else counts).tensors)
        self.made("seen", hard).add_(hard)

    def recorded(self) -> tuple[Tensor, Tensor] | None:
        """Return the violations of the hard counts since the last update.

        Returns:
            The violations, and for each whether it was measured; None before the first batch.
        """
        if self.seen is None:
            return None
        value, measured = self._values(unstack(self.seen, exclusive=self._exclusive), hard=True)
        return self.requirement.deviation(value), measured

    @torch.no_grad()
    def measure(
        self, logits: Tensor, target: Tensor, *, weight: Tensor | None = None, group: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Measure the metric of the hard decisions, and by how much each value violates the requirement.

        Args:
            logits: The outputs of the model for a whole set of samples.
            target: The labels.
            weight: One weight per sample.
            group: The group numbers of the samples, for a requirement per group.

        Returns:
            One value per class and group that has samples to measure the metric on, and the violations of the same
            shape ``(k,)``. A violation is 0 where the requirement holds.
        """
        counts = self._count(count_hard, Rows(logits, target, weight, group=group))
        value, measured = self._values(counts, hard=True)
        violation = self.requirement.excess(value)
        violation = torch.where(self.requirement.forgives(violation), 0.0, violation)
        return value[measured], violation[measured]

    def _settings(self, rows: Rows) -> CountSettings:
        """Return how to count, softly and hard."""
        if self.groups is not None and rows.group is None:
            raise InvalidValueError(
                f"{self.requirement} must hold in each of {self.groups} groups: pass group=, one number per row; in "
                'fit, data with group numbers, {"x": X, "y": y, "group": numbers}'
            )
        ignored, validate, judge = self.ignore_index, self.validate, self._judge
        task = settle_task(rows.logits, rows.target, self.task, ignore_index=ignored, validate=validate, judge=judge)
        threshold = kept_threshold(self)
        return CountSettings(task, self.step, threshold, ignored, groups=self.groups, validate=validate)

    def _count(self, count: Callable[..., Counts], rows: Rows, **further: Any) -> Counts:
        """Count rows, softly or hard."""
        group = None if self.groups is None else rows.group
        further["matrix"] = self.requirement.metric.needs_matrix
        return count(rows.logits, rows.target, self._settings(rows), weight=rows.weight, group=group, **further)

    def _all_ranks(self, counts: Counts) -> Counts:
        return counts.sum_over_ranks() if self.over_ranks else counts

    def _values(self, counts: Counts, *, hard: bool = False) -> tuple[Tensor, Tensor]:
        """Return the values of the metric, and whether there were samples to measure each one.

        Hard counts without positives measure precision and F1 if there are alarms: all of these are wrong. Soft counts
        do not, because the gradient is 0 there.
        """
        metric = self.requirement.metric
        if not isinstance(metric, GroupGap):
            value = averaged(metric, counts, self.average, training=True)
            return value, (is_measured if hard else has_samples)(metric, counts, value)
        by_group = averaged(metric.metric, counts, self.average, training=True)
        return metric.difference(by_group, counts), metric.has_two_groups(by_group, counts)

    def extra_repr(self) -> str:
        """Return the requirement as text."""
        return str(self.requirement)
