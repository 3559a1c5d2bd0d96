"""Accumulator: a metric of the decisions on a stream of batches, from counts that add up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.confusion import unstack
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_hard
from metricfit.core.distributed import fill_missing, sum_over_ranks
from metricfit.core.numerics import ratio
from metricfit.core.probabilities import logits_of
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import check_task
from metricfit.core.thresholds import PerLabel, read_decision
from metricfit.core.types import Average, Task, Thresholds, ZeroDivision
from metricfit.errors import InvalidStateError, InvalidValueError
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.class_subset import check_classes
from metricfit.metrics.empty_classes import check_zero_division
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.image_average import has_pixels, sum_images, weigh_images
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts

#: What to do if a batch does not go with the earlier ones.
NEW_STREAM = "call reset() before another stream"


class Accumulator(LateBuffers):
    """The metric of all batches of a stream, in memory of the size of the counts.

    Counts of hard decisions are summed, so that the value is that of all rows together, which the mean of the values
    of the batches is not. The sum is a buffer: ``.to()`` and ``state_dict`` include it.

    Args:
        metric: A Metric, its name or a function of Counts.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two of them.
        threshold: The threshold of binary and multilabel decisions; by default 0.5. ``metrics.PerLabel([...])`` has one
            per label, kept in a buffer; with ``metrics.ThresholdGrid([...])`` there is one value per threshold.
        average: The average over several classes; None for one value per class.
        classes: The classes of the average, such as ``[1, 2, 3]`` without background; by default all. See ``averaged``.
        zero_division: What a class counts for where its metric is 0/0: 0, 1, or "skip", which leaves out classes, and
            with ``per_image`` images, without true samples. See ``averaged``.
        ignore_index: Samples with this label are not counted.
        per_image: Take the mean of the metrics of the images instead of the metric of all pixels. Weights of images
            weigh them in the mean, weights of pixels count within their image, and images without counted pixels are
            left out.
        from_probabilities: Take probabilities instead of logits: of a sigmoid, or of a softmax over axis 1.

    Raises:
        InvalidValueError: There is no such metric, task or average, or the settings do not go together.

    Example:
        >>> quality = Accumulator("f1")
        >>> quality.update(torch.tensor([2.0, -1.0]), torch.tensor([1, 1]))
        >>> quality.update(torch.tensor([3.0, -2.0]), torch.tensor([1, 0]))
        >>> quality.compute()
        tensor(0.8000, dtype=torch.float64)
    """

    late: ClassVar[tuple[str, ...]] = ("total",)
    remedy: ClassVar[str] = NEW_STREAM
    total: Tensor | None
    threshold: Thresholds

    def __init__(
        self,
        metric: str | Metric | Formula,
        *,
        task: Task | None = None,
        threshold: Thresholds = None,
        average: Average = "macro",
        classes: Sequence[int] | None = None,
        zero_division: ZeroDivision = None,
        ignore_index: int | None = None,
        per_image: bool = False,
        from_probabilities: bool = False,
    ) -> None:
        super().__init__()
        self.metric = check_of_counts(get_metric(metric))
        check_average(self.metric, average)
        check_task(task)
        if per_image and isinstance(self.metric, GroupGap):
            raise InvalidValueError(f"{self.metric.name} compares groups of rows, not images; leave per_image out")
        self.task, self.average, self.ignore_index = task, average, ignore_index
        self.classes = check_classes(self.metric, classes)
        self.zero_division = check_zero_division(self.metric, zero_division)
        self.per_image, self.from_probabilities = per_image, from_probabilities
        threshold = read_decision(threshold)
        self.per_label = isinstance(threshold, PerLabel)
        if isinstance(threshold, PerLabel):
            self.register_buffer("threshold", torch.as_tensor(threshold.numbers).detach().clone())
        else:
            self.threshold = threshold
        self._exclusive: bool | None = None

    @torch.no_grad()
    def update(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> None:
        """Count the decisions of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample, or per image.
            group: One group number per sample, for a gap between groups such as ``"recall.gap(2)"``.

        Raises:
            InvalidValueError: The shapes do not fit each other or the earlier batches, or ``group`` is missing for a
                gap or was passed for another metric.
        """
        counts = self.count(logits, target, weight, group=group)
        sums, is_first = self.sums(counts, weight), self.total is None
        total = self.made("total", sums)
        if not is_first:
            refuse_another_kind(self._exclusive, counts.exclusive)
        total.add_(sums)
        self._exclusive = counts.exclusive

    def count(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> Counts:
        """Return the counts of a batch without adding them.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.
            group: One group number per sample, for a gap between groups.

        Returns:
            The counts of hard decisions, with ``per_image`` those of each image.

        Raises:
            InvalidValueError: The shapes do not fit each other, or ``group`` is missing for a gap or was passed for
                another metric.
        """
        groups = self.metric.groups if isinstance(self.metric, GroupGap) else None
        if (groups is None) != (group is None):
            remedy = "pass group=, one number per row" if group is None else "leave group out, it has no groups"
            raise InvalidValueError(f"Accumulator({self.metric.name!r}): {remedy}")
        threshold = self.threshold
        if self.from_probabilities:
            logits = logits_of(logits, target, self.task, self.ignore_index, exact=True)
        return count_hard(
            logits,
            target,
            CountSettings(
                task=self.task,
                threshold=threshold.unsqueeze(-1) if isinstance(threshold, Tensor) and self.per_label else threshold,
                ignore_index=self.ignore_index,
                per_image=self.per_image,
                groups=groups,
            ),
            weight=weight,
            group=group,
            matrix=self.metric.needs_matrix,
        )

    def sums(self, counts: Counts, weight: Tensor | None = None) -> Tensor:
        """Return what adds up over batches.

        Args:
            counts: What ``count`` returned.
            weight: The weights that were passed to ``count``; with ``per_image``, those of images weigh the images.

        Returns:
            The counts, stacked; with ``per_image`` the weighted sum of the values of the images, and of the weights.
        """
        if not self.per_image:
            return torch.stack(counts.tensors)
        values = self._average(counts).movedim(counts.tp.dim() - 2, 0)  # an axis of thresholds may be first
        return sum_images(values, weigh_images(has_pixels(counts), weight, values.dtype))

    def value(self, total: Tensor, *, exclusive: bool | None) -> Tensor:
        """Compute the metric from sums over batches.

        Args:
            total: The total of what ``sums`` returned.
            exclusive: Whether the classes exclude each other; None if the numbers decide.

        Returns:
            The value, a scalar; with ``average=None`` one value per class. NaN if all images were left out.
        """
        if self.per_image:
            return torch.where(total[1] > 0, ratio(total[0], total[1]), math.nan)
        return self._average(unstack(total, exclusive=exclusive))

    def _average(self, counts: Counts) -> Tensor:
        return averaged(self.metric, counts, self.average, self.classes, self.zero_division)

    def forward(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, *, group: Tensor | None = None
    ) -> None:
        """Count the decisions of a batch, as ``update`` does.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.
            group: One group number per sample, for a gap between groups.
        """
        self.update(logits, target, weight, group=group)

    @property
    def counts(self) -> Counts:
        """The counts of all batches so far."""
        if self.per_image:
            raise InvalidStateError("an Accumulator with per_image=True adds up the values of images, not their counts")
        return unstack(self._get_total(), exclusive=self._exclusive)

    def _get_total(self) -> Tensor:
        if self.total is None:
            raise InvalidStateError("the Accumulator has seen no batch: call update(logits, target) first")
        return self.total

    def compute(self) -> Tensor:
        """Compute the metric of all batches so far.

        Returns:
            The value, a scalar; with ``average=None`` one value per class.

        Raises:
            InvalidStateError: There was no batch.
        """
        return self.value(self._get_total(), exclusive=self._exclusive)

    def sync(self) -> None:
        """Add the counts of all processes of a distributed run. Every process calls it once, at the end of the stream.

        A process that has seen no batch takes part with zeros.

        Raises:
            InvalidStateError: No process has seen a batch.
            InvalidValueError: The processes have counted different classes.
        """
        self.total = fill_missing(self.total)
        self.total = sum_over_ranks(self._get_total())

    def extra_repr(self) -> str:
        """Return the name of the metric and the settings that differ from the defaults."""
        threshold = self.threshold
        settings: dict[str, object] = {
            "task": self.task,
            "threshold": PerLabel(threshold) if self.per_label else threshold,
            "classes": None if self.classes is None else list(self.classes),
            "zero_division": self.zero_division,
            "ignore_index": self.ignore_index,
            "per_image": self.per_image or None,
            "from_probabilities": self.from_probabilities or None,
        }
        given = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
        average = [] if self.average == "macro" else [f"average={self.average!r}"]
        return ", ".join([repr(self.metric.name), *given, *average])


def refuse_another_kind(earlier: bool | None, now: bool) -> None:
    """Refuse to add counts of exclusive classes to those of several labels, and the reverse.

    Args:
        earlier: Whether the classes of the earlier batches exclude each other; None if that is not known.
        now: Whether those of this batch do.

    Raises:
        InvalidValueError: They are of the other kind.
    """
    if earlier is not None and earlier != now:
        kinds = ("several labels, (n, c)", "one output or exclusive classes, (n,)")
        raise InvalidValueError(
            f"this batch has targets of {kinds[now]}, and the earlier ones of {kinds[earlier]}; {NEW_STREAM}"
        )
