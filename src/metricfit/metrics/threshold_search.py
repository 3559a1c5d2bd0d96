"""The best threshold of each column of scores: one sort per column, and one wait for the device in all."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import LARGEST, ROUNDING
from metricfit.core.tensor_numerics import exact_dtype, smallest_rounded_to
from metricfit.errors import MetricfitError
from metricfit.metrics.metric import Metric
from metricfit.metrics.sweep import Array, choose_among_ties, column, one_class

#: How many thresholds a metric is evaluated at together on a CPU: the counts that its cache holds.
CPU_BLOCK = 2**15
#: How many scores of several columns are searched together on a CPU, and how many on another device.
CPU_COLUMNS, DEVICE_COLUMNS = 2**17, 2**24
#: How many columns are copied together.
COPIED = 64


class ColumnThresholds(NamedTuple):
    """The best threshold of each column and the value there, and whether the column was valid, all ``(c,)``."""

    thresholds: Tensor
    values: Tensor
    valid: Tensor


def search_column(scores: Array, target: Array, metric: Metric) -> tuple[float, float] | None:
    """Find the best threshold of one column, with one wait for the device.

    Returns:
        The threshold and the value, or None if the input needs a closer look: it has a wrong shape or wrong values, or
        the metric is not one of the counts of one class.
    """
    s, y = column(scores, "scores").detach(), column(target, "target").detach()
    if s.shape != y.shape or not s.numel() or not s.is_floating_point() or y.is_complex():
        return None
    try:
        with torch.no_grad():
            best = search_columns(s.unsqueeze(0), y.to(s.device).unsqueeze(0), metric)
    except MetricfitError:  # the metric is not one of the counts at each threshold
        return None
    threshold, value, valid = torch.cat([best.thresholds, best.values, best.valid.to(best.values.dtype)]).tolist()
    return (threshold, value) if valid else None


def smallest_of_score(threshold: float, dtype: torch.dtype | None) -> float:
    """Return the smallest number that is rounded to a score of half precision; other scores as they are."""
    return smallest_rounded_to(threshold, dtype) if dtype in (torch.bfloat16, torch.float16) else threshold


def search_columns(scores: Tensor, target: Tensor, metric: Metric) -> ColumnThresholds:
    """Find the best threshold of each column, as ``choose_among_ties`` chooses. Nothing waits for the device.

    Args:
        scores: Scores ``(c, n)`` of a floating type.
        target: Labels 0 and 1 ``(c, n)`` of any type.
        metric: A metric of the counts of one class.

    Returns:
        Thresholds and values. They mean nothing where ``valid`` says that a score is not finite or a label not 0 or 1.
    """
    columns, n = scores.shape
    together = max(1, (CPU_COLUMNS if scores.is_cpu else DEVICE_COLUMNS) // n)
    copied = max(together, COPIED // together * together)
    parts = []
    for first in range(0, columns, copied):  # columns of a table are copied in blocks, because they are far apart
        x, y = scores[first : first + copied].contiguous(), target[first : first + copied].contiguous()
        for start in range(0, len(x), together):
            parts.append(_search(x[start : start + together], y[start : start + together], metric))
    return parts[0] if len(parts) == 1 else ColumnThresholds(*map(torch.cat, zip(*parts, strict=True)))


def _search(scores: Tensor, target: Tensor, metric: Metric) -> ColumnThresholds:
    falling, order = torch.sort(scores, dim=-1, descending=True)
    curve = _Curve(falling, _as_bytes(target).gather(-1, order), metric)
    is_long = scores.is_cpu and len(scores) == 1 and scores.shape[1] >= CPU_BLOCK
    first, tp, fp, better = curve.best_part() if is_long else (0, *curve.part(0, scores.shape[1] + 1, 0.0))
    place = choose_among_ties(better >= _least(better.amax(-1, keepdim=True)), tp, fp)
    score = falling.gather(-1, (place + first - 1).clamp(min=0)).to(tp.dtype)
    threshold = score.masked_fill(place + first == 0, math.inf).squeeze(-1)
    value = better.gather(-1, place).squeeze(-1)
    ends = falling[:, :: max(1, falling.shape[1] - 1)]  # NaN is sorted before infinity
    valid = ends.isfinite().all(-1) & _are_labels(target)
    return ColumnThresholds(threshold, -value if metric.minimize else value, valid)


def _least(highest: Tensor) -> Tensor:
    """Return the lowest value that is as good as the highest: equal values that were rounded differently are ties."""
    return (highest - ROUNDING * highest.abs().clamp(max=LARGEST)).clamp(min=-LARGEST)  # -inf is between equal scores


class _Curve:
    """The values of a metric at every threshold: infinity at place 0, and the score i - 1 at place i."""

    def __init__(self, falling: Tensor, labels: Tensor, metric: Metric) -> None:
        self.falling, self.labels, self.metric = falling, labels, metric
        self.dtype, self.n = exact_dtype(falling.device), falling.shape[1]
        self.positives = labels.sum(-1, keepdim=True, dtype=self.dtype)

    def part(self, start: int, stop: int, before: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return true positives, false positives and values, higher is better, at some places.

        Args:
            start: The first place.
            stop: The place after the last one.
            before: The true positives at the first place.
        """
        tp = torch.zeros(len(self.labels), stop - start, dtype=self.dtype, device=self.labels.device)
        torch.cumsum(self.labels[:, start : stop - 1], -1, dtype=self.dtype, out=tp[:, 1:])
        tp = tp.add_(before) if start else tp
        fp = torch.arange(start, stop, dtype=self.dtype, device=tp.device) - tp
        cells = (tp, fp, self.positives - tp, self.n - self.positives - fp)
        values = one_class(self.metric, Counts(*(cell.unsqueeze(-1) for cell in cells)))
        better = -values if self.metric.minimize else values.clone() if self.metric.user_defined else values
        low, high = max(start, 1), min(stop, self.n)
        ties = self.falling[:, low - 1 : high - 1] == self.falling[:, low:high]
        better[:, low - start : high - start].masked_fill_(ties, -math.inf)
        return tp, fp, better

    def best_part(self) -> tuple[int, Tensor, Tensor, Tensor]:
        """Return the first place of a part that holds the best threshold, and what ``part`` returns for it.

        The values are computed in blocks, whose counts stay in the cache of a CPU.
        """
        starts, before, highest = range(0, self.n + 1, CPU_BLOCK), [0.0], []
        for start in starts:
            stop = min(start + CPU_BLOCK, self.n + 1)
            tp, _, better = self.part(start, stop, before[-1])
            highest.append(float(better.amax()))
            before.append(float(tp[0, -1]) + (float(self.labels[0, stop - 1]) if stop <= self.n else 0.0))
        least = float(_least(torch.tensor(max(highest), dtype=self.dtype)))
        block = next((place for place, value in enumerate(highest) if value >= least), 0)
        start, stop = starts[block], min(starts[block] + CPU_BLOCK, self.n + 1)
        tp, fp, better = self.part(start, stop, before[block])
        first = int((better >= least).view(torch.uint8).argmax())
        if stop <= self.n and fp[0, first] == fp[0, -1]:  # thresholds of the next blocks may dominate it
            negatives = self.labels[0, stop - 1 :] == 0
            stop += int(negatives.view(torch.uint8).argmax()) if bool(negatives.any()) else self.n + 1 - stop
            tp, fp, better = self.part(start, stop, before[block])
        return start, tp, fp, better


def _as_bytes(target: Tensor) -> Tensor:
    return target.view(torch.uint8) if target.dtype == torch.bool else target.to(torch.uint8)


def _are_labels(target: Tensor) -> Tensor:
    """Return whether all labels of a column are 0 or 1, ``(c,)``; a label of NaN is not."""
    if target.dtype == torch.bool:
        return torch.ones(len(target), dtype=torch.bool, device=target.device)
    low, high = torch.aminmax(target, dim=-1)
    valid = (low >= 0) & (high <= 1)
    return valid & (target * target == target).all(-1) if target.is_floating_point() else valid
