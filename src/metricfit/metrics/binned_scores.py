"""BinnedScores: curves and the best threshold of a stream of scores, in memory that does not grow with the rows."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.counts import Counts
from metricfit.core.distributed import fill_missing, sum_over_ranks
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical, check_task
from metricfit.core.types import Task
from metricfit.core.validation import check_finite
from metricfit.errors import InvalidStateError, InvalidValueError
from metricfit.metrics.accumulator import NEW_STREAM, refuse_another_kind
from metricfit.metrics.curves import BestThreshold, InfeasibleError, Requirements, as_requirements, best_of_sweep
from metricfit.metrics.label_rankings import Questions, ask, class_log_odds
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts
from metricfit.metrics.sweep import Sweep, area_under_precision_recall, area_under_roc


class BinnedScores(LateBuffers):
    """How many positives and negatives have a score in each of many narrow bins of log-odds.

    Counts at every edge of a bin follow from these numbers, and so do curves and the best threshold for any metric.
    Memory is that of the bins. A threshold is found to within the width of a bin: 0.03 in log-odds by default, which
    is at most 0.008 in probability. Log-odds beyond the limit are in the outermost bins.

    For several labels every label has bins of its own; for exclusive classes every class against the rest. A label
    between 0 and 1, or the share of a class, counts as this share of a positive and the rest of a negative, as in
    ``Counts``.

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

    late: ClassVar[tuple[str, ...]] = ("sums",)
    remedy: ClassVar[str] = NEW_STREAM
    #: The weight of positives and of negatives in each bin, ``(2, c, bins)``; None before the first batch.
    sums: Tensor | None

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
        self._exclusive: bool | None = None

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
        weights = None if weight is None else weight.expand_as(places).double()
        if target.is_floating_point():  # the labels may be between 0 and 1
            parts = [positive, 1 - positive]
            parts = parts if weights is None else [part * weights for part in parts]
            cells = columns * self.bins
            sums = torch.stack([torch.bincount(places.flatten(), part.flatten(), minlength=cells) for part in parts])
        else:
            places += self.bins * columns * (positive == 0)
            flat = None if weights is None else weights.flatten()
            sums = torch.bincount(places.flatten(), flat, minlength=2 * columns * self.bins).double()
        sums = sums.reshape(2, columns, self.bins)
        is_first = self.sums is None
        total = self.made("sums", sums)
        if not is_first:  # one output has another shape, so these are several labels or classes
            refuse_another_kind(self._exclusive, exclusive)
        total.add_(sums)
        self._exclusive = exclusive

    def _ask(self, batch: Columns | Classes) -> Questions:
        """Return the questions of a batch; shares of classes are labels between 0 and 1."""
        if not (isinstance(batch, Classes) and batch.target.is_floating_point()):
            return ask(batch)
        log_odds, axis = class_log_odds(batch), batch.layout.class_axis
        weight = None if batch.weight is None else batch.weight.reshape(1, -1)
        return Questions(log_odds, batch.target.movedim(axis, 0).flatten(1).to(log_odds.dtype), weight)

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Count the scores of a batch, as ``update`` does.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.
        """
        self.update(logits, target, weight)

    def sync(self) -> None:
        """Add the numbers of all processes of a distributed run. Every process calls it once, at the end.

        A process that has seen no batch takes part with zeros.

        Raises:
            InvalidStateError: No process has seen a batch.
            InvalidValueError: The processes have other numbers of bins or classes.
        """
        self.sums = fill_missing(self.sums)
        self.sums = sum_over_ranks(self._sums())

    @property
    def thresholds(self) -> Tensor:
        """The edges of the bins as falling probabilities, from infinity (nothing is positive) to 0 (everything is)."""
        edges = torch.linspace(-self.limit, self.limit, self.bins + 1, dtype=torch.float64)[1:-1].sigmoid().flip(0)
        return torch.cat([edges.new_tensor([math.inf]), edges, edges.new_zeros(1)])

    @property
    def counts(self) -> Counts:
        """The counts at every one of the thresholds, ``(bins + 1, c)``."""
        sums = torch.nn.functional.pad(self._sums().flip(2).cumsum(2), (1, 0)).movedim(2, 0)
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

    def _sums(self) -> Tensor:
        if self.sums is None:
            raise InvalidStateError("BinnedScores has seen no batch: call update(logits, target) first")
        return self.sums

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
