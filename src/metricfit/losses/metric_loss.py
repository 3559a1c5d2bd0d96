"""MetricLoss: any metric of confusion counts as a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from metricfit.core.batch_counts import STEEPEST, evaluate, value_and_slopes
from metricfit.core.class_shares import TargetJudge
from metricfit.core.counting import count_soft
from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.core.operators import register
from metricfit.core.probabilities import logits_of
from metricfit.core.settings import CountSettings
from metricfit.core.steps import Identity, Step
from metricfit.core.tasks import check_task
from metricfit.core.tensor_numerics import traces_transform
from metricfit.core.thresholds import PerLabel, ThresholdSetting, keep_threshold, kept_threshold
from metricfit.core.types import Average, Task, Thresholds, ZeroDivision
from metricfit.core.validation import is_false, looks_at_values, refuse_tracing
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.base import AdditiveLoss, Statistics
from metricfit.losses.gradient_watch import TrainingWatch
from metricfit.losses.memory import RunningCounts
from metricfit.metrics.average import (
    averaged,
    check_average,
    check_class_weights,
    check_classes,
    check_zero_division,
    has_pixels,
    loss_of_counts,
    sum_images,
    weigh_images,
)
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts

#: The default step of images and volumes.
PIXELS_STEP = Identity()


class MetricLoss(AdditiveLoss):
    r"""One minus a metric of soft confusion counts, or the metric itself if lower is better.

    .. math:: L = 1 - M\Big(\sum_i y_i h_i,\; \sum_i (1-y_i) h_i,\; \sum_i y_i (1-h_i),\; \sum_i (1-y_i)(1-h_i)\Big),
        \qquad h_i = \mathrm{step}(\sigma(x_i), t)

    Tsoi et al. 2022 with the Linear step, Han et al. 2024 (AnyLoss) with Sigmoid, soft Dice with Identity.

    Args:
        metric: A Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts. A gap between groups, such as
            ``"recall.gap(2)"``, needs ``group`` in forward.
        step: The soft decision; by default Linear(0.1), for multiclass Linear(0.2). Images and volumes without a
            ``threshold`` have Identity by default: it is as good there, and takes a fifth of the time on a CPU.
        threshold: Where decisions will be made; by default 0.5, for multiclass "dynamic", the mean of the two largest
            probabilities of a sample. ``metrics.PerLabel([...])`` is one per label; at several thresholds for all
            labels, ``metrics.ThresholdGrid([...])``, the loss is the mean over them. A list is such a grid; one with as
            many numbers as there are labels is refused.
        task: "binary", "multiclass" or "multilabel", if the shapes do not determine it.
        average: "macro", "micro", "weighted" or None (one loss per class). It has no effect on a binary metric and on
            metrics of the whole confusion matrix: accuracy, mcc, kappa, balanced_accuracy.
        classes: The classes of the average, such as ``[1, 2, 3]`` without background; by default all. See ``averaged``.
        class_weights: How much each class counts in the average, one number per class; by default all count alike.
        zero_division: What a class counts for where its metric is 0/0: 0, 1, or "skip", which leaves out classes, and
            with ``per_image`` images, without true samples. See ``averaged``.
        ignore_index: Samples with this target are ignored.
        per_image: Take the mean of the metrics of the images, instead of the metric of the batch. Weights of images
            weigh them in the mean, weights of pixels count within their image, and images without counted pixels are
            left out.
        from_probabilities: Take probabilities instead of logits: of a sigmoid, or of a softmax over axis 1.
        memory: RunningCounts, for batches too small to measure the metric on.
        sync: In a distributed run, sum the counts over the ranks, so that the gradient refers to the whole batch.
        validate: Check labels and logits for NaN and values out of range; by default in eager mode on the CPU.

    Raises:
        TypeError: If ``step`` or ``memory`` has the wrong type.
        ValueError: If an argument has a value that cannot be used, or ``per_image`` is combined with a memory.

    Note:
        For a binary batch without positives, metrics that need positives have the value 0 and a finite gradient. Of
        several classes, those without a true sample are left out of the macro average; ``left_out()`` lists them.

    Example:
        >>> loss = MetricLoss("f1")
        >>> logits = torch.tensor([2.0, 0.5, -1.0, -3.0], requires_grad=True)
        >>> loss(logits, torch.tensor([1, 0, 1, 0]))
        tensor(0.4298, grad_fn=<_ValueOfBatchBackward>)
    """

    threshold: ThresholdSetting
    per_label: bool
    remedies: ClassVar[Mapping[str, str]] = {
        **AdditiveLoss.remedies,
        "weight": "pass one weight per sample when you call the loss, loss(logits, target, weight), or one per class "
        "here, class_weights=[...]",
        "class_weights": "use class_weights=[...], one number per class",
        "pos_weight": "a metric has its balance in itself: choose one, such as 'fbeta(beta=2)', which favours recall",
        "label_smoothing": "pass soft labels as the target, with task='multiclass' for class shares, or mix the loss "
        "with cross-entropy, Mix((nn.CrossEntropyLoss(label_smoothing=0.1), 1.0), (loss, 0.5))",
        "reduction": "a metric is one number per batch, not a mean over samples; average=None gives one loss per "
        "class, per_image=True the mean over images",
        "beta": "a parameter belongs to the metric, MetricLoss('fbeta(beta=2)')",
    }

    def __init__(
        self,
        metric: str | Metric | Formula,
        *,
        step: Step | None = None,
        threshold: Thresholds = None,
        task: Task | None = None,
        average: Average = "macro",
        classes: Sequence[int] | None = None,
        class_weights: Sequence[float] | None = None,
        zero_division: ZeroDivision = None,
        ignore_index: int | None = None,
        per_image: bool = False,
        from_probabilities: bool = False,
        memory: RunningCounts | None = None,
        sync: bool = True,
        validate: bool | None = None,
    ) -> None:
        super().__init__(sync=sync)
        self.metric = check_of_counts(get_metric(metric))
        if step is not None and not isinstance(step, Step):
            raise InvalidTypeError(f"step must be one of metricfit.steps, such as Linear(0.1), got {quote(step)}")
        if memory is not None and not isinstance(memory, RunningCounts):
            raise InvalidTypeError(f"memory must be RunningCounts(decay=...), got {quote(memory)}")
        check_average(self.metric, average)
        check_task(task)
        if per_image and memory is not None:
            raise InvalidValueError(
                "memory adds counts over batches, but with per_image=True every image is measured separately"
            )
        self.uses_groups = isinstance(self.metric, GroupGap)
        metric = self.metric  # an operator gets it by its name
        has_name = not (metric.user_defined or self.uses_groups or metric.needs_matrix or metric.of_one_class)
        self._named = metric, metric.name if has_name else ""
        if per_image and self.uses_groups:
            raise InvalidValueError(f"{self.metric.name} compares groups of rows, not images; leave per_image out")
        self.step = step
        self.memory = memory
        self.task = task
        self.average = average
        self.classes = check_classes(self.metric, classes)
        self.class_weights = check_class_weights(self.metric, average, class_weights)
        self.zero_division = check_zero_division(self.metric, zero_division)
        self.from_probabilities = from_probabilities
        self.ignore_index = ignore_index
        self.per_image = per_image
        self.validate = validate
        keep_threshold(self, threshold)
        self._watch = TrainingWatch()
        self._judge = TargetJudge()

    def forward(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample, or per image.
            group: One group number per sample, for a gap between groups.

        Returns:
            The loss: a scalar, or with ``average=None`` one loss per class ``(c,)``.

        Raises:
            ValueError: If the shapes do not match, the task is ambiguous, or a checked value is out of range.
        """
        refuse_tracing()
        groups = {} if group is None else {"group": group}  # subclasses may define statistics without groups
        loss = self.value(self.over_ranks(self.statistics(logits, target, weight, **groups)))
        if self.training:
            self._watch.look(self, loss, logits)
        return loss

    def _settings(self, logits: Tensor) -> CountSettings:
        groups = self.metric.groups if isinstance(self.metric, GroupGap) else None
        threshold, step = kept_threshold(self), self.step
        if step is None and threshold is None and getattr(logits, "ndim", 0) > 2:
            step = PIXELS_STEP
        return CountSettings(self.task, step, threshold, self.ignore_index, self.per_image, groups, self.validate)

    def statistics(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> Statistics:
        """Compute the soft Counts of a batch.

        Statistics of several batches add, and ``value`` of the sum is the loss of all of them together:
        ``loss.value(sum(loss.statistics(x, y) for x, y in batches))``.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.
            group: One group number per sample, for a gap between groups.

        Returns:
            Counts, or with ``per_image=True`` a tensor: the weighted sum of the values of the images, and the sum of
            their weights.

        Raises:
            ValueError: If ``group`` is missing for a gap between groups, or was passed for another metric.
        """
        if (group is not None) != self.uses_groups:
            remedy = (
                "pass group=, one number per row"
                if group is None
                else f"{self.metric.name} has no groups, its gap {self.metric.name}.gap(k) has: leave group out"
            )
            raise InvalidValueError(f"MetricLoss({self.metric.name!r}): {remedy}")
        if self.from_probabilities:
            logits = logits_of(logits, target, self.task, self.ignore_index, self.validate)
        counts = count_soft(
            logits,
            target,
            self._settings(logits),
            weight=weight,
            group=group,
            judge=self._judge,
            matrix=self.metric.needs_matrix,
            lazily=True,
        )
        if not self.per_image:
            return counts
        value = self._average(counts)
        self._inspect(counts, value)
        images = value if counts.tp.dim() == 2 else value.mean(0)  # over several thresholds
        shares = weigh_images(has_pixels(counts), weight, images.dtype)
        return sum_images(images, shares, skips=self.zero_division == "skip")

    def value(self, statistics: Statistics) -> Tensor:
        """Compute the loss from statistics; a memory adds its counts.

        Args:
            statistics: What ``statistics`` returned, or a sum of several of them.

        Returns:
            The loss.

        Raises:
            TypeError: If the statistics belong to another kind of loss.
        """
        expected = Tensor if self.per_image else Counts
        if not isinstance(statistics, expected):
            raise InvalidTypeError(
                f"value takes what statistics() of this loss returns, {expected.__name__}, "
                f"got {type(statistics).__name__}; add the statistics of several batches with sum()"
            )
        if isinstance(statistics, Counts):
            counts = statistics if self.memory is None else self.memory(statistics)
            if torch.compiler.is_compiling() and (name := self._name_for_operator(counts)):
                loss = torch.ops.metricfit.loss_of_counts(
                    torch.stack(counts.tensors), name, self.average, counts.exclusive
                )[0]
            else:
                loss = self._loss_of(counts) if self.average is None else evaluate(self._loss_of, counts)
            self._inspect(counts, loss)
            return loss
        value = ratio(statistics[0], statistics[1])
        return value if self.metric.minimize else 1 - value

    def _name_for_operator(self, counts: Counts) -> str:
        """Return the metric's name if a compiler calls the operator for these counts, and otherwise an empty text."""
        metric, name = self._named
        alike = self.classes is None and self.class_weights is None and self.zero_division is None
        plain = counts.tp.is_cpu and counts.tp.dim() == 1 and not (metric.whole_matrix and not counts.exclusive)
        return name if metric is self.metric and self.average and alike and plain and not traces_transform() else ""

    def _loss_of(self, counts: Counts) -> Tensor:
        return loss_of_counts(self.metric, counts, self.average, self.classes, self.zero_division, self.class_weights)

    def _average(self, counts: Counts) -> Tensor:
        options = self.classes, self.zero_division
        return averaged(self.metric, counts, self.average, *options, class_weights=self.class_weights, training=True)

    def _inspect(self, counts: Counts, value: Tensor) -> None:
        """Remember the counts for ``left_out`` and the warnings, and refuse a value that is not finite."""
        self._watch.remember(counts)
        if not self.metric.user_defined:
            return
        if looks_at_values(value, self.validate) and is_false(value.detach().isfinite().all()):
            raise InvalidValueError(
                f"{self.metric.name} is not finite at {counts}; divide with "
                "metricfit.metrics.ratio, which is 0 if the denominator is 0, and take roots with "
                "metricfit.metrics.root"
            )

    def left_out(self) -> list[int]:
        """List the classes without a true sample in the last batch, which its macro average left out.

        Returns:
            Class numbers. The list is empty for a binary loss, for other averages and for metrics that need no
            positives. It is not updated under torch.compile.
        """
        whole = self.metric.whole_matrix or self.metric.of_one_class
        if self.average != "macro" or whole or "positives" not in self.metric.needs or self.zero_division in (0, 1):
            return []
        counts = self._watch.last_counts()
        if counts is None or counts.classes == 1:
            return []
        positives = counts.positives
        empty = (positives.reshape(-1, counts.classes).sum(0) == 0).nonzero().flatten().tolist()
        return empty if self.classes is None else [number for number in empty if number in self.classes]

    def extra_repr(self) -> str:
        """Return the settings that differ from the defaults."""
        settings = [repr(self.metric.name)]
        if self.threshold is not None:
            settings.append(f"threshold={PerLabel(self.threshold) if self.per_label else self.threshold!r}")
        defaults = dict.fromkeys(("task", "average", "classes", "class_weights", "zero_division", "ignore_index"))
        defaults |= {"average": "macro", "per_image": False, "from_probabilities": False}
        changed = [name for name, default in defaults.items() if getattr(self, name) is not default]
        return ", ".join(settings + [f"{name}={getattr(self, name)!r}" for name in changed])


def _loss_of_counts(stacked: Tensor, metric: str, average: Any, exclusive: bool) -> tuple[Tensor, Tensor]:
    """Return the loss of counts ``(4, c)`` and its gradient, by dual numbers."""
    counts = stacked.double()
    numbers = counts[:, 0].tolist() if counts.shape[1] == 1 else counts.numpy()
    loss = value_and_slopes(lambda c: loss_of_counts(get_metric(metric), c, average), numbers, exclusive)
    if loss is None:
        raise InvalidTypeError(f"the formula of {metric} does not take dual numbers")
    slopes = np.reshape(loss.slopes, tuple(stacked.shape))
    slopes = np.where(abs(slopes) < STEEPEST, slopes, 0.0 * slopes)  # there denominators count as 0 in float32
    return stacked.new_tensor(loss.value), torch.from_numpy(slopes).to(stacked.dtype)


register("loss_of_counts", "Tensor counts, str metric, str average, bool exclusive", _loss_of_counts, kept_axes=2)
