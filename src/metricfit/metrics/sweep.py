"""Counts at every threshold from one sort of the scores, and the best threshold of one or many columns."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from metricfit.core.arrays import (
    Array,
    arange,
    argmax,
    cast,
    contiguous,
    exact,
    exact_type,
    full,
    in_kind_of,
    is_floating,
    is_tensor,
    namespace,
    pad_last,
    sort_falling,
    sort_with_flags,
    take_along,
    without_gradient,
)
from metricfit.core.counts import Counts
from metricfit.core.numerics import LARGEST, ROUNDING, sigmoid, where
from metricfit.errors import InvalidTypeError, InvalidValueError, MetricfitError
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement


class Sweep(NamedTuple):
    """Thresholds, falling from infinity on, and the counts at each."""

    thresholds: Array
    counts: Counts


def sweep(
    scores: Array,
    target: Array,
    weight: Array | None,
    *,
    positives_for: str | None = None,
    both_classes_for: str | None = None,
) -> Sweep:
    """Return the counts ``(m + 1, 1)`` at infinity and at each of the m distinct scores, falling."""
    s, y, w = checked(scores, target, weight)
    swept = sum_by_threshold(s, exact(y), w)
    positives, negatives = float(swept.counts.tp[-1, 0]), float(swept.counts.fp[-1, 0])
    if both_classes_for and (positives == 0 or negatives == 0):
        only = "positives" if negatives == 0 else "negatives"
        raise InvalidValueError(f"{both_classes_for} needs positives and negatives, but target holds only {only}")
    if positives_for and positives == 0:
        raise InvalidValueError(f"{positives_for} needs positives, but target holds none")
    return swept


def expected_sweep(logits: Array, weight: Array | None) -> Sweep:
    """Return the expected counts at infinity and at each distinct logit, falling, if the logits are calibrated.

    A row with the probability p counts as p of a positive and 1 - p of a negative. The labels do not matter, so the
    counts vary less from sample to sample than those of ``sweep``.

    Args:
        logits: One calibrated logit per sample.
        weight: One weight per sample, or None.

    Returns:
        Decreasing thresholds of the logits and the counts ``(m + 1, 1)`` at each.

    Example:
        >>> expected_sweep([0.0, 0.0], None).counts.fn[..., 0]
        array([1., 0.])
    """
    scores = column(logits, "logits")
    z, _, w = checked(scores, full(scores, (len(scores),), 0.0), weight)
    return sum_by_threshold(z, sigmoid(exact(z)), w)


def sum_by_threshold(scores: Array, share: Array, weight: Array | None) -> Sweep:
    """Sum the positive share of each row, and the rest of the row, above each threshold.

    Args:
        scores: One score per sample.
        share: The share of each sample that is positive: its label, or its probability.
        weight: One weight per sample, or None. The scores of samples of weight 0 are thresholds too.

    Returns:
        Infinity and the distinct scores, falling, and the counts ``(m + 1, 1)`` at each.
    """
    falling, order = sort_falling(scores)
    y, w = share[order], None if weight is None else weight[order]
    tp = y.cumsum(0) if w is None else (w * y).cumsum(0)
    fp = arange(y, 1, len(y) + 1, y.dtype) - tp if w is None else (w * (1 - y)).cumsum(0)
    last_of_ties = falling[1:] != falling[:-1]
    if not bool(last_of_ties.all()):
        kept = pad_last(last_of_ties, after=True)
        falling, tp, fp = falling[kept], tp[kept], fp[kept]
    tp, fp = (pad_last(sums, before=0.0)[..., None] for sums in (tp, fp))
    thresholds = pad_last(exact(falling), before=math.inf)
    return Sweep(thresholds, Counts(tp, fp, tp[-1] - tp, fp[-1] - fp))


def choose_among_ties(tied: Array, tp: Array, fp: Array) -> Array:
    """Choose one of equally good thresholds: the largest, unless another one dominates its decisions.

    A decision dominates another with the same false positives if it has more true positives. The largest threshold has
    the fewest false positives, so nothing else can dominate it.

    Args:
        tied: Which thresholds are equally good, ``(..., thresholds)``, by falling threshold.
        tp: The true positives at each threshold.
        fp: The false positives at each threshold.

    Returns:
        The place of the threshold, ``(..., 1)``.
    """
    first = argmax(tied)[..., None]
    alike = tied & (fp == take_along(fp, first))
    return where(alike, tp, -1.0).argmax(-1)[..., None]  # the first of equal ones


def area_under_roc(tp: Array, fp: Array) -> Array:
    """Compute the area under ROC curves from counts at falling thresholds, ``(..., thresholds)``."""
    doubled = ((tp[..., 1:] + tp[..., :-1]) * namespace(fp).diff(fp)).sum(-1)
    with np.errstate(invalid="ignore"):
        return doubled / 2 / (tp[..., -1] * fp[..., -1])


def area_under_precision_recall(tp: Array, fp: Array) -> Array:
    """Compute average precisions from counts at falling thresholds, ``(..., thresholds)``, the first of them inf."""
    tp_below_inf, predicted = tp[..., 1:], (tp + fp)[..., 1:]
    precision = tp_below_inf / where(predicted == 0, 1.0, predicted)
    with np.errstate(invalid="ignore"):
        return (namespace(tp).diff(tp) * precision).sum(-1) / tp[..., -1]


def checked(scores: Array, target: Array, weight: Array | None) -> tuple[Array, Array, Array | None]:
    """Return scores, targets and weights as tensors, without the samples of weight 0.

    Raises:
        InvalidValueError: The arrays differ in length, are empty, or hold values that are not allowed.
    """
    s = column(scores, "scores")
    y = in_kind_of(column(target, "target"), s)
    w = None if weight is None else exact(in_kind_of(column(weight, "weight"), s))
    for name, values in (("target", y), ("weight", w)):
        if values is not None and values.shape != s.shape:
            raise InvalidValueError(f"{len(s)} scores, but {len(values)} values of {name}")
    s = check_scores(s)
    if not bool(((y == 0) | (y == 1)).all()):
        raise InvalidValueError(
            f"target must hold 0 and 1 only, got values from {float(y.min()):g} to {float(y.max()):g}"
        )
    if w is not None and not bool(((w >= 0) & (w < math.inf)).all()):
        raise InvalidValueError("weights must be finite and at least 0")
    if w is not None and not bool((w > 0).all()):
        s, y, w = s[w > 0], y[w > 0], w[w > 0]  # they would add points to the curves
        if len(s) == 0:
            raise InvalidValueError("all weights are 0")
    return s, y, w


def check_scores(scores: Array) -> Array:
    """Return finite scores of a floating type."""
    if 0 in scores.shape:
        raise InvalidValueError("there are no scores")
    scores = scores if is_floating(scores) else exact(scores)
    xp = namespace(scores)
    if not bool(xp.isfinite(scores).all()):
        nan, infinite = int(xp.isnan(scores).sum()), int(xp.isinf(scores).sum())
        what = f"{nan or infinite} of {math.prod(scores.shape)} scores are {'NaN' if nan else 'infinite'}"
        raise InvalidValueError(what)
    return scores


def column(values: Array, name: str) -> Array:
    """Return one number per sample, ``(n,)``."""
    array = as_array(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        hint = "; pass the positive class's column" if name == "scores" and array.ndim == 2 else ""
        raise InvalidValueError(f"{name} must have shape (n,) or (n, 1), got {tuple(array.shape)}{hint}")
    return array


def matrix(values: Array, name: str) -> Array:
    """Return one number per sample and label, ``(n, c)``."""
    array = as_array(values, name)
    if array.ndim != 2:
        raise InvalidValueError(f"{name} must have shape (n, c), got {tuple(array.shape)}")
    return array


def as_array(values: Any, name: str) -> Array:
    """Return numbers as a tensor without its gradient, or as an array."""
    if is_tensor(values):
        return values.detach()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"{name} must be an array of numbers, got {type(values).__name__}: {error}") from None
    if array.dtype.kind not in "fiub":
        raise InvalidTypeError(f"{name} must be an array of numbers, got {type(values).__name__} of {array.dtype}")
    return array.astype(np.float64) if isinstance(values, (list, tuple)) else array


def one_class(formula: Metric | Requirement, counts: Counts) -> Array:
    """Return the metric's values, or the requirement's violations, at every threshold of a binary sweep."""
    if isinstance(formula, GroupGap):
        raise InvalidValueError(f"{formula.name} is between groups, and has no value at one threshold for all rows")
    with without_gradient(counts.tp):
        value = formula(counts) if isinstance(formula, Metric) else formula.violation(counts)
    if value.shape != counts.tp.shape:
        raise InvalidValueError(
            f"{formula} must give one value per threshold, shape {tuple(counts.tp.shape)}; got {tuple(value.shape)}"
        )
    return value[..., 0]


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
    is_positive = target == 1
    falling, labels = sort_with_flags(scores, is_positive)
    curve = _Curve(falling, labels, metric)
    is_long = _on_cpu(scores) and len(scores) == 1 and scores.shape[1] >= CPU_BLOCK
    first, tp, fp, better = curve.best_part() if is_long else (0, *curve.part(0, scores.shape[1] + 1, 0.0))
    xp = namespace(scores)
    place = choose_among_ties(better >= _least(xp.amax(better, -1))[..., None], tp, fp)
    row = place + (first - 1)
    score = cast(take_along(falling, xp.clip(row, 0, None)), tp.dtype)
    threshold = where(row < 0, math.inf, score)[..., 0]
    value = take_along(better, place)[..., 0]
    ends = falling[:, :: max(1, falling.shape[1] - 1)]  # NaN is sorted before infinity
    with np.errstate(invalid="ignore"):
        valid = (ends - ends == 0).all(-1) & (is_positive | (target == 0)).all(-1)
    return ColumnThresholds(threshold, -value if metric.minimize else value, valid)


def _on_cpu(values: Array) -> bool:
    return not is_tensor(values) or bool(values.is_cpu)


def _least(highest: Array) -> Array:
    """Return the lowest value that is as good as the highest: equal values that were rounded differently are ties."""
    with np.errstate(invalid="ignore"):
        least = highest - ROUNDING * abs(highest)
    # An infinite value gives NaN, and no finite value ties with it; -inf is between equal scores.
    return namespace(least).nan_to_num(least, nan=math.inf, posinf=math.inf, neginf=-LARGEST)


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
