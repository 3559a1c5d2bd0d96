"""Counts and scores of a stream of batches: a metric of the decisions, curves and the best threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.confusion import unstack
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_hard
from metricfit.core.distributed import fill_missing, sum_over_ranks
from metricfit.core.numerics import ratio
from metricfit.core.probabilities import logits_of
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical, check_task
from metricfit.core.thresholds import PerLabel, read_decision
from metricfit.core.types import Average, Task, Thresholds, ZeroDivision
from metricfit.core.validation import check_finite
from metricfit.errors import InvalidStateError, InvalidValueError
from metricfit.metrics.areas import Questions, ask, class_log_odds
from metricfit.metrics.average import (
    averaged,
    check_average,
    check_classes,
    check_zero_division,
    has_pixels,
    sum_images,
    weigh_images,
)
from metricfit.metrics.curves import BestThreshold, InfeasibleError, Requirements, as_requirements, best_of_sweep
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts
from metricfit.metrics.sweep import Sweep, area_under_precision_recall, area_under_roc

#: What to do if a batch does not go with the earlier ones.
NEW_STREAM = "call reset() before another stream"


class _Stream(LateBuffers):
    """Sums over the batches of a stream. A subclass adds the sums of each batch in ``update``."""

    late: ClassVar[tuple[str, ...]] = ("total",)
    remedy: ClassVar[str] = NEW_STREAM
    #: The sums; None before the first batch.
    total: Tensor | None
    #: Whether the classes are exclusive; None before the first batch.
    _exclusive: bool | None = None
    update: Callable[..., None]

    def _add(self, sums: Tensor, exclusive: bool) -> None:
        is_first = self.total is None
        total = self.made("total", sums)
        if not is_first:  # one output has another shape, so these are several labels or classes
            refuse_another_kind(self._exclusive, exclusive)
        total.add_(sums)
        self._exclusive = exclusive

    def _get_total(self) -> Tensor:
        if self.total is None:
            raise InvalidStateError(f"{type(self).__name__} has seen no batch: call update(logits, target) first")
        return self.total

    def forward(self, *batch: Any, **options: Any) -> None:
        """Add the sums of a batch, as ``update`` does.

        Args:
            *batch: The arguments of ``update``.
            **options: The arguments of ``update``.
        """
        self.update(*batch, **options)

    def sync(self) -> None:
        """Add the sums of all processes of a distributed run. Every process calls it once, at the end of the stream.

        A process that has seen no batch takes part with zeros.

        Raises:
            InvalidStateError: No process has seen a batch.
            InvalidValueError: The processes have counted different classes.
        """
        self.total = fill_missing(self.total)
        self.total = sum_over_ranks(self._get_total())


class Accumulator(_Stream):
    """The metric of all batches of a stream, in memory of the size of the counts.

    Counts of hard decisions are summed, so the metric is computed on all rows together. The mean of the batches' values
    would differ. The sum is a buffer: ``.to()`` and ``state_dict`` include it.

    It is the right one in a loop of your own, batch by batch, at a threshold that is known before.

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
        self._add(self.sums(counts, weight), counts.exclusive)

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
            The counts of hard decisions; with ``per_image``, the counts of each image.

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
            weight: The weights that were passed to ``count``; with ``per_image``, weights of images weigh the images.

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

    @property
    def counts(self) -> Counts:
        """The counts of all batches so far."""
        if self.per_image:
            raise InvalidStateError("an Accumulator with per_image=True adds up the values of images, not their counts")
        return unstack(self._get_total(), exclusive=self._exclusive)

    def compute(self) -> Tensor:
        """Compute the metric of all batches so far.

        Returns:
            The value, a scalar; with ``average=None`` one value per class.

        Raises:
            InvalidStateError: There was no batch.
        """
        return self.value(self._get_total(), exclusive=self._exclusive)

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
    """Refuse to add counts of exclusive classes to counts of several labels, and the reverse.

    Args:
        earlier: Whether the classes of the earlier batches exclude each other; None if that is not known.
        now: Whether the classes of this batch do.

    Raises:
        InvalidValueError: They are of the other kind.
    """
    if earlier is not None and earlier != now:
        kinds = ("several labels, (n, c)", "one output or exclusive classes, (n,)")
        raise InvalidValueError(
            f"this batch has targets of {kinds[now]}, and the earlier ones of {kinds[earlier]}; {NEW_STREAM}"
        )


class BinnedScores(_Stream):
    """How many positives and negatives have a score in each of many narrow bins of log-odds.

    Counts at every edge of a bin follow from these numbers, and so do curves and the best threshold for any metric.
    Memory depends on the number of bins alone. A threshold is found to within the width of a bin: 0.03 in log-odds by
    default, which is at most 0.008 in probability. Log-odds beyond the limit are in the outermost bins.

    For several labels every label has bins of its own; for exclusive classes every class against the rest. A label
    between 0 and 1, or the share of a class, counts as this share of a positive; the rest is a negative, as in
    ``Counts``.

    It is the right one in a loop of your own for areas, curves and the best threshold, which an ``Accumulator`` cannot
    give.

    Args:
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two of them.
        bins: How many bins there are.
        limit: Log-odds above this number, or below its negative, are in the outermost bins.
        ignore_index: Samples with this label are not counted.

    Raises:
        InvalidValueError: There is no such task, or ``bins`` or ``limit`` is not positive.

    Example:
        >>> scores = BinnedScores()
        >>> scores.update(torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1, 0, 0]))
        >>> scores.update(torch.tensor([1.0, -2.0, -3.0]), torch.tensor([1, 1, 0]))
        >>> scores.auroc()
        tensor([0.7778], dtype=torch.float64)
        >>> best = scores.best_threshold("f1")[0]
        >>> round(best.threshold, 2), round(best.value, 2)
        (0.73, 0.8)
    """

    def __init__(
        self, *, task: Task | None = None, bins: int = 1024, limit: float = 16.0, ignore_index: int | None = None
    ) -> None:
        super().__init__()
        check_task(task)
        if not (isinstance(bins, int) and bins >= 2):
            raise InvalidValueError(f"bins is a number of at least 2, got {bins!r}")
        if not isinstance(limit, (int, float)) or not 0 < limit < math.inf:
            raise InvalidValueError(f"limit is the largest log-odds, a positive number, got {limit!r}")
        self.task, self.bins, self.limit, self.ignore_index = task, bins, float(limit), ignore_index

    @torch.no_grad()
    def update(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Count the scores of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.

        Raises:
            InvalidValueError: The shapes do not fit each other or the earlier batches.
        """
        batch = canonical(logits, target, CountSettings(task=self.task, ignore_index=self.ignore_index), weight=weight)
        exclusive = isinstance(batch, Classes)
        log_odds, positive, weight, _ = self._ask(batch)
        if bool(log_odds.isnan().any()):
            check_finite(log_odds.sum(), logits)
        width = 2 * self.limit / self.bins
        places = ((log_odds + self.limit) / width).floor_().clamp_(0, self.bins - 1).long()
        columns = len(places)
        places += self.bins * torch.arange(columns, device=places.device).unsqueeze(1)
        parts = [part.double() for part in (positive, 1 - positive)]
        parts = parts if weight is None else [part * weight for part in parts]
        cells = columns * self.bins
        sums = torch.stack([torch.bincount(places.flatten(), part.flatten(), minlength=cells) for part in parts])
        sums = sums.reshape(2, columns, self.bins)
        self._add(sums, exclusive)

    def _ask(self, batch: Columns | Classes) -> Questions:
        """Return the questions of a batch; shares of classes are labels between 0 and 1."""
        if not (isinstance(batch, Classes) and batch.target.is_floating_point()):
            return ask(batch)
        log_odds, axis = class_log_odds(batch), batch.layout.class_axis
        weight = None if batch.weight is None else batch.weight.reshape(1, -1)
        return Questions(log_odds, batch.target.movedim(axis, 0).flatten(1).to(log_odds.dtype), weight)

    @property
    def thresholds(self) -> Tensor:
        """The edges of the bins as falling probabilities, from infinity (nothing is positive) to 0 (everything is)."""
        edges = torch.linspace(-self.limit, self.limit, self.bins + 1, dtype=torch.float64)[1:-1].sigmoid().flip(0)
        return torch.cat([edges.new_tensor([math.inf]), edges, edges.new_zeros(1)])

    @property
    def counts(self) -> Counts:
        """The counts at every one of the thresholds, ``(bins + 1, c)``."""
        sums = torch.nn.functional.pad(self._get_total().flip(2).cumsum(2), (1, 0)).movedim(2, 0)
        tp, fp = sums[:, 0], sums[:, 1]
        return Counts(tp, fp, tp[-1] - tp, fp[-1] - fp, exclusive=False)

    def auroc(self) -> Tensor:
        """Compute the area under the ROC curve of each column; scores in one bin count as ties.

        Returns:
            One area per label or class, ``(c,)``; NaN for one without positives or negatives.
        """
        counts = self.counts
        return area_under_roc(counts.tp.T, counts.fp.T)

    def average_precision(self) -> Tensor:
        """Compute the average precision of each column; scores in one bin count as ties.

        Returns:
            One value per label or class, ``(c,)``; 0 for one without positives, as in ``curves``.
        """
        counts = self.counts
        return area_under_precision_recall(counts.tp.T, counts.fp.T).masked_fill(counts.tp[-1] == 0, 0.0)

    def best_threshold(
        self, metric: str | Metric | Formula, subject_to: Requirements | None = None
    ) -> list[BestThreshold]:
        """Find the edge with the best value of a metric, for each column.

        Args:
            metric: A Metric, its name or a function of Counts.
            subject_to: One or several requirements, such as ``"precision >= 0.9"``.

        Returns:
            For each label or class the threshold, a probability, and the value of the metric there.

        Raises:
            InfeasibleError: No threshold of a column meets the requirements; the message names the label or class.
            InvalidStateError: There was no batch.
        """
        found, requirements = check_of_counts(get_metric(metric)), as_requirements(subject_to)
        counts, thresholds = self.counts, self.thresholds
        columns = range(counts.tp.shape[1])
        each = (Counts(*(cell[:, [column]].cpu() for cell in counts.tensors), exclusive=True) for column in columns)
        best = []
        for number, column in enumerate(each):
            try:
                best.append(best_of_sweep(Sweep(thresholds, column), found, requirements))
            except InfeasibleError as error:
                if len(columns) == 1:
                    raise
                kind = "class" if self._exclusive else "label"
                raise InfeasibleError(f"{kind} {number}: {error}", error.nearest, error.requirements) from None
        return best

    def get_extra_state(self) -> Tensor:
        """Return the number of bins and the limit, which the saved sums belong to."""
        return torch.tensor([self.bins, self.limit], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Check that loaded sums are of the same bins.

        Args:
            state: What ``get_extra_state`` returned.

        Raises:
            InvalidValueError: They are of other bins.
        """
        bins, limit = state.tolist()
        if (bins, limit) != (self.bins, self.limit):
            self.reset()
            raise InvalidValueError(
                f"the state is of BinnedScores(bins={bins:.0f}, limit={limit:g}), and this has {self.extra_repr()}; "
                "make it with the bins and limit of the state"
            )

    def extra_repr(self) -> str:
        """Return the number of bins."""
        return f"bins={self.bins}, limit={self.limit:g}"
