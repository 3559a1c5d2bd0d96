"""The best threshold of each column of scores: one sort per column, and one wait for the device in all.

The formula of the metric is evaluated on blocks of thresholds, whose counts stay in the cache of a CPU. Input is judged
by what the search computes anyway: sorted scores show at their ends whether all are finite. What is wrong with an input
is left to ``metricfit.metrics.sweep.checked``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import LARGEST, ROUNDING, exact_dtype, smallest_rounded_to
from metricfit.errors import MetricfitError
from metricfit.metrics.metric import Metric
from metricfit.metrics.sweep import Array, column, one_class
from metricfit.metrics.threshold_programs import find_program, search_by_program

#: How many thresholds of one long column are evaluated at once on a CPU: the counts that its cache holds.
CPU_BLOCK = 2**15
#: How many thresholds of several columns are evaluated at once on a CPU, and how many on another device.
CPU_COLUMNS, DEVICE_BLOCK = 2**17, 2**24

#: How many columns are copied at once.
COPIED = 64


class ColumnThresholds(NamedTuple):
    """The best threshold of each column and the value there, both ``(c,)``, and whether the input was valid, a flag."""

    thresholds: Tensor
    values: Tensor
    valid: Tensor


def search_column(scores: Array, target: Array, metric: Metric) -> tuple[float, float] | None:
    """Find the best threshold of one column, with one wait for the device.

    Args:
        scores: One score per sample.
        target: One label per sample.
        metric: The metric.

    Returns:
        The threshold and the value, or None if the input needs a closer look.
    """
    s, y = column(scores, "scores").detach(), column(target, "target").detach()
    if s.shape != y.shape or not s.numel() or not s.is_floating_point() or y.is_complex():
        return None
    try:
        with torch.no_grad():
            if (program := find_program(s, metric)) is not None:
                return search_by_program(s, y.to(s.device), metric, program)
            if not s.is_cpu and s.numel() <= DEVICE_BLOCK:
                return _search_on_device(s, y.to(s.device), metric)
            found = search_columns(s.unsqueeze(0), y.unsqueeze(0), metric)
    except MetricfitError:  # the metric is not one of the counts at each threshold
        return None
    numbers = torch.cat([found.thresholds, found.values, found.valid.to(found.values.dtype).unsqueeze(0)])
    threshold, value, valid = numbers.tolist()
    return (threshold, value) if valid else None


def _search_on_device(scores: Tensor, target: Tensor, metric: Metric) -> tuple[float, float] | None:
    """Find the best threshold of one column with few operations: on a GPU their number decides, up to a million scores.

    The threshold infinity is at place 0 of the counts, and the score at place i - 1 at place i.
    """
    n, exact = scores.numel(), exact_dtype(scores.device)
    falling, order = torch.sort(scores, descending=True)
    tp = torch.zeros(n + 1, dtype=exact, device=scores.device)
    torch.cumsum(target[order], 0, dtype=exact, out=tp[1:])
    fp = torch.arange(n + 1, dtype=exact, device=scores.device).sub_(tp)
    cells = (tp, fp, tp[-1] - tp, fp[-1] - fp)
    value = one_class(metric, Counts(*(cell.unsqueeze(-1) for cell in cells)))
    better = -value if metric.minimize else value.clone() if metric.user_defined else value
    better[1:-1].masked_fill_(falling[1:] == falling[:-1], -math.inf)
    numbers = torch.cat([falling[:1], falling[-1:], better.max().view(1), *_limits_of_labels(target)])
    first, last, highest, *limits = numbers.tolist()
    if not (math.isfinite(first) and math.isfinite(last)) or (limits and not (limits[0] >= 0 and limits[1] <= 1)):
        return None
    least = highest - ROUNDING * min(abs(highest), LARGEST)
    place = int((better >= least).view(torch.uint8).argmax())
    threshold, best = torch.cat([falling[max(place - 1, 0)].view(1), better[place].view(1)]).tolist()
    return threshold if place else math.inf, -best if metric.minimize else best


def smallest_of_score(threshold: float, dtype: torch.dtype | None) -> float:
    """Return the smallest number that is rounded to a score of half precision; other scores as they are."""
    return smallest_rounded_to(threshold, dtype) if dtype in (torch.bfloat16, torch.float16) else threshold


def search_columns(scores: Tensor, target: Tensor, metric: Metric) -> ColumnThresholds:
    """Find the best threshold of each column; of equally good ones the largest. Nothing waits for the device.

    Args:
        scores: Scores ``(c, n)`` of a floating type.
        target: Labels 0 and 1 ``(c, n)`` of any type.
        metric: A metric of the counts of one class.

    Returns:
        Thresholds and values. They mean nothing where the flag says that a score is not finite or a label not 0 or 1.
    """
    columns, n = scores.shape
    together = max(1, (CPU_COLUMNS if scores.is_cpu else DEVICE_BLOCK) // n)
    copied = max(together, COPIED // together * together)
    parts = []
    for first in range(0, columns, copied):  # columns of a table are copied in blocks, because they are far apart
        x, y = scores[first : first + copied].contiguous(), target[first : first + copied].contiguous()
        for start in range(0, len(x), together):
            parts.append(_search(x[start : start + together], y[start : start + together], metric))
    if len(parts) == 1:
        return parts[0]
    return ColumnThresholds(
        torch.cat([part.thresholds for part in parts]),
        torch.cat([part.values for part in parts]),
        torch.stack([part.valid for part in parts]).all(),
    )


def _search(scores: Tensor, target: Tensor, metric: Metric) -> ColumnThresholds:
    falling, order = torch.sort(scores, dim=-1, descending=True)
    labels = _as_bytes(target).gather(-1, order)
    del order
    ends = falling[:, :: max(1, falling.shape[1] - 1)]  # NaN is sorted before infinity
    valid = ends.isfinite().all() & _are_labels(target)
    curve = _Curve(falling, labels, metric)
    nothing = curve.value_of_nothing()
    highest = torch.maximum(curve.highest(), nothing)
    # Equal values that were rounded differently are ties, and thresholds fall: the first is the largest.
    least = highest - ROUNDING * highest.abs().clamp(max=LARGEST)
    threshold, value = curve.first_of_at_least(least)
    best_is_nothing = nothing >= least
    sign = -1.0 if metric.minimize else 1.0
    return ColumnThresholds(
        threshold.masked_fill(best_is_nothing, math.inf), sign * torch.where(best_is_nothing, nothing, value), valid
    )


class _Curve:
    """The values of a metric at every threshold of each column, higher is better, computed block by block."""

    def __init__(self, falling: Tensor, labels: Tensor, metric: Metric) -> None:
        self.falling, self.labels, self.metric = falling, labels, metric
        self.dtype = exact_dtype(falling.device)
        columns, n = falling.shape  # several columns are one block
        self.size = n if columns > 1 else CPU_BLOCK if falling.is_cpu else DEVICE_BLOCK
        self.positives = labels.sum(-1, keepdim=True, dtype=self.dtype)
        self.negatives = falling.shape[1] - self.positives
        self.places = torch.arange(1, min(self.size, falling.shape[1]) + 1, dtype=self.dtype, device=falling.device)
        self._blocks: list[tuple[Tensor, Tensor]] = []  # true positives before each block, and its highest value
        self._only: Tensor | None = None

    def value_of_nothing(self) -> Tensor:
        """Return the values of the threshold infinity, ``(c,)``."""
        none = torch.zeros_like(self.positives)
        return self._better(none, none).squeeze(-1)

    def highest(self) -> Tensor:
        """Return the highest values, ``(c,)``, and remember where they were found."""
        before = torch.zeros_like(self.positives)
        for start in range(0, self.falling.shape[1], self.size):
            values, after = self._block(start, before)
            self._blocks.append((before, values.amax(-1)))
            self._only = values
            before = after
        return torch.stack([highest for _, highest in self._blocks]).amax(0)

    def first_of_at_least(self, least: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first thresholds with a value of at least this, and their values, ``(c,)``."""
        start, values = 0, self._only
        if len(self._blocks) > 1:  # a single column, because several are searched together only if they are short
            reached = torch.stack([highest >= least for _, highest in self._blocks]).squeeze(-1)
            place = int(reached.int().argmax())
            start = place * self.size
            values, _ = self._block(start, self._blocks[place][0])
        assert values is not None
        index = (values >= least.unsqueeze(-1)).int().argmax(-1, keepdim=True)
        threshold = self.falling[:, start : start + self.size].gather(-1, index)
        return threshold.squeeze(-1).to(self.dtype), values.gather(-1, index).squeeze(-1)

    def _block(self, start: int, before: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values at the thresholds of a block, -inf between ties, and the true positives after it."""
        n = self.falling.shape[1]
        end = min(start + self.size, n)
        tp = self.labels[:, start:end].cumsum(-1, dtype=self.dtype)
        if start:
            tp += before
        after = tp[:, -1:].clone() if end < n else before
        fp = (self.places[: end - start] - tp).add_(start)
        values = self._better(tp, fp)
        last = min(end, n - 1)
        ties = self.falling[:, start:last] == self.falling[:, start + 1 : last + 1]
        if last < end:
            ties = torch.nn.functional.pad(ties, (0, 1))
        return values.masked_fill(ties, -math.inf), after

    def _better(self, tp: Tensor, fp: Tensor) -> Tensor:
        cells = (tp, fp, self.positives - tp, self.negatives - fp)
        values = one_class(self.metric, Counts(*(cell.unsqueeze(-1) for cell in cells)))
        return -values if self.metric.minimize else values


def _as_bytes(target: Tensor) -> Tensor:
    return target.view(torch.uint8) if target.dtype == torch.bool else target.to(torch.uint8)


def _limits_of_labels(target: Tensor) -> tuple[Tensor, ...]:
    """Return two numbers ``(1,)``, at least 0 and at most 1 if all labels are 0 or 1; none for booleans."""
    if target.dtype == torch.bool:
        return ()
    low, high = torch.aminmax(target)
    if target.is_floating_point():
        low = (target * target - target).abs().amax().neg()
    return low.view(1), high.view(1)


def _are_labels(target: Tensor) -> Tensor:
    """Return whether all labels are 0 or 1, as a tensor; a label of NaN is not."""
    if target.dtype == torch.bool:
        return torch.ones((), dtype=torch.bool, device=target.device)
    if target.is_floating_point():
        return (target * target == target).all() & (target.amax() <= 1)
    low, high = torch.aminmax(target)
    return (low >= 0) & (high <= 1)
