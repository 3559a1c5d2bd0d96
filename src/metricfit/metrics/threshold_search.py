"""The best threshold of each column of scores: one sort per column, and one wait for the device in all."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from metricfit.core.arrays import (
    Array,
    arange,
    argmax,
    cast,
    contiguous,
    exact_type,
    full,
    in_kind_of,
    is_boolean,
    is_floating,
    is_tensor,
    namespace,
    sort_with_flags,
    take_along,
)
from metricfit.core.counts import Counts
from metricfit.core.numerics import LARGEST, ROUNDING, clip, where
from metricfit.errors import MetricfitError
from metricfit.metrics.metric import Metric
from metricfit.metrics.sweep import choose_among_ties, column, one_class

#: How many thresholds a metric is evaluated at together on a CPU: the counts that its cache holds.
CPU_BLOCK = 2**15
#: How many scores of several columns are searched together on a CPU, and how many on another device.
CPU_COLUMNS, DEVICE_COLUMNS = 2**17, 2**24
#: How many columns are copied together.
COPIED = 64


class ColumnThresholds(NamedTuple):
    """The best threshold of each column and the value there, and whether the column was valid, all ``(c,)``."""

    thresholds: Array
    values: Array
    valid: Array


def search_column(scores: Array, target: Array, metric: Metric) -> tuple[float, float] | None:
    """Find the best threshold of one column, with one wait for the device.

    Returns:
        The threshold and the value, or None if the input needs a closer look: it has a wrong shape or wrong values, or
        the metric is not one of the counts of one class.
    """
    s, y = column(scores, "scores"), column(target, "target")
    if s.shape != y.shape or not len(s) or not is_floating(s) or str(y.dtype).startswith("torch.complex"):
        return None
    try:
        best = search_columns(s[None], in_kind_of(y, s)[None], metric)
    except MetricfitError:  # the metric is not one of the counts at each threshold
        return None
    values = best.values
    threshold, value, valid = (
        namespace(values).concatenate([best.thresholds, values, cast(best.valid, values.dtype)]).tolist()
    )
    return (threshold, value) if valid else None


def smallest_of_score(threshold: float, scores: Array) -> float:
    """Return the smallest number that is rounded to a score of half precision; other scores as they are."""
    if not is_tensor(scores) or str(scores.dtype) not in ("torch.bfloat16", "torch.float16"):
        return threshold
    from metricfit.core.tensor_numerics import smallest_rounded_to

    return smallest_rounded_to(threshold, scores.dtype)


def search_columns(scores: Array, target: Array, metric: Metric) -> ColumnThresholds:
    """Find the best threshold of each column, as ``choose_among_ties`` chooses. Nothing waits for the device.

    Args:
        scores: Scores ``(c, n)`` of a floating type.
        target: Labels 0 and 1 ``(c, n)`` of any type.
        metric: A metric of the counts of one class.

    Returns:
        Thresholds and values. They mean nothing where ``valid`` says that a score is not finite or a label not 0 or 1.
    """
    columns, n = scores.shape
    together = max(1, (CPU_COLUMNS if _on_cpu(scores) else DEVICE_COLUMNS) // n)
    copied = max(together, COPIED // together * together)
    parts = []
    for first in range(0, columns, copied):  # columns of a table are copied in blocks, because they are far apart
        x, y = (contiguous(part[first : first + copied]) for part in (scores, target))
        for start in range(0, len(x), together):
            parts.append(_search(x[start : start + together], y[start : start + together], metric))
    return (
        parts[0] if len(parts) == 1 else ColumnThresholds(*map(namespace(scores).concatenate, zip(*parts, strict=True)))
    )


def _search(scores: Array, target: Array, metric: Metric) -> ColumnThresholds:
    falling, labels = sort_with_flags(scores, target == 1)
    curve = _Curve(falling, labels, metric)
    is_long = _on_cpu(scores) and len(scores) == 1 and scores.shape[1] >= CPU_BLOCK
    first, tp, fp, better = curve.best_part() if is_long else (0, *curve.part(0, scores.shape[1] + 1, 0.0))
    xp = namespace(scores)
    place = choose_among_ties(better >= _least(xp.amax(better, -1))[..., None], tp, fp)
    score = cast(take_along(falling, xp.clip(place + first - 1, 0, None)), tp.dtype)
    threshold = where(place + first == 0, math.inf, score)[..., 0]
    value = take_along(better, place)[..., 0]
    ends = falling[:, :: max(1, falling.shape[1] - 1)]  # NaN is sorted before infinity
    valid = xp.isfinite(ends).all(-1) & _are_labels(target)
    return ColumnThresholds(threshold, -value if metric.minimize else value, valid)


def _on_cpu(values: Array) -> bool:
    return not is_tensor(values) or bool(values.is_cpu)


def _least(highest: Array) -> Array:
    """Return the lowest value that is as good as the highest: equal values that were rounded differently are ties."""
    with np.errstate(over="ignore"):
        least = highest - ROUNDING * clip(abs(highest), 0.0, LARGEST)
    return clip(least, -LARGEST, math.inf)  # -inf is between equal scores


class _Curve:
    """The values of a metric at every threshold: infinity at place 0, and the score i - 1 at place i."""

    def __init__(self, falling: Array, labels: Array, metric: Metric) -> None:
        self.falling, self.labels, self.metric = falling, labels, metric
        self.dtype, self.n = exact_type(falling), falling.shape[1]
        self.positives = labels.sum(-1, dtype=self.dtype)[..., None]

    def part(self, start: int, stop: int, before: float) -> tuple[Array, Array, Array]:
        """Return true positives, false positives and values, higher is better, at some places.

        Args:
            start: The first place.
            stop: The place after the last one.
            before: The true positives at the first place.
        """
        xp = namespace(self.labels)
        tp = full(self.labels, (len(self.labels), stop - start), 0.0, self.dtype)
        xp.cumsum(self.labels[:, start : stop - 1], -1, dtype=self.dtype, out=tp[:, 1:])
        if start:
            tp += before
        fp = arange(tp, start, stop, self.dtype) - tp
        cells = (tp, fp, self.positives - tp, self.n - self.positives - fp)
        values = one_class(self.metric, Counts(*(cell[..., None] for cell in cells)))
        better = -values if self.metric.minimize else values + 0.0 if self.metric.user_defined else values
        low, high = max(start, 1), min(stop, self.n)
        ties = self.falling[:, low - 1 : high - 1] == self.falling[:, low:high]
        better[:, low - start : high - start][ties] = -math.inf
        return tp, fp, better

    def best_part(self) -> tuple[int, Array, Array, Array]:
        """Return the first place of a part that holds the best threshold, and what ``part`` returns for it.

        The values are computed in blocks, whose counts stay in the cache of a CPU.
        """
        starts, before, highest = range(0, self.n + 1, CPU_BLOCK), [0.0], []
        for start in starts:
            stop = min(start + CPU_BLOCK, self.n + 1)
            tp, _, better = self.part(start, stop, before[-1])
            highest.append(float(better.max()))
            before.append(float(tp[0, -1]) + (float(self.labels[0, stop - 1]) if stop <= self.n else 0.0))
        least = float(_least(max(highest)))
        block = next((place for place, value in enumerate(highest) if value >= least), 0)
        start, stop = starts[block], min(starts[block] + CPU_BLOCK, self.n + 1)
        tp, fp, better = self.part(start, stop, before[block])
        first = int(argmax(better >= least)[0])
        if stop <= self.n and fp[0, first] == fp[0, -1]:  # thresholds of the next blocks may dominate it
            negatives = self.labels[0, stop - 1 :] == 0
            stop += int(argmax(negatives)) if bool(negatives.any()) else self.n + 1 - stop
            tp, fp, better = self.part(start, stop, before[block])
        return start, tp, fp, better


def _are_labels(target: Array) -> Array:
    """Return whether all labels of a column are 0 or 1, ``(c,)``; a label of NaN is not."""
    xp = namespace(target)
    if is_boolean(target):
        return xp.isfinite(target[:, 0])
    low, high = (target.amin(-1), target.amax(-1)) if is_tensor(target) else (target.min(-1), target.max(-1))
    valid = (low >= 0) & (high <= 1)
    return valid & (target * target == target).all(-1) if is_floating(target) else valid
