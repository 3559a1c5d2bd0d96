"""Counts at every threshold from one sort of the scores."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from metricfit.core.arrays import (
    Array,
    arange,
    argmax,
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
from metricfit.core.numerics import LARGEST, ROUNDING, minimum, sigmoid, where
from metricfit.errors import InvalidTypeError, InvalidValueError
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
    if not (positives_for or both_classes_for):
        return swept
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
    counts vary less from sample to sample than in ``sweep``.

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
    # On a GPU, looking for ties would be one more wait.
    if _is_on_gpu(scores) or not bool(last_of_ties.all()):
        kept = _places(pad_last(last_of_ties, after=True))
        falling, tp, fp = falling[kept], tp[kept], fp[kept]
    tp, fp = (pad_last(sums, before=0.0)[..., None] for sums in (tp, fp))
    thresholds = pad_last(exact(falling), before=math.inf)
    return Sweep(thresholds, Counts(tp, fp, tp[-1] - tp, fp[-1] - fp))


def _is_on_gpu(values: Array) -> bool:
    return is_tensor(values) and not values.is_cpu


def _places(mask: Array) -> Array:
    """Return where a mask ``(n,)`` is true."""
    found = namespace(mask).nonzero(mask)
    return found[0] if isinstance(found, tuple) else found[:, 0]


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


def best_places(value: Array, allowed: Array, counts: Counts, *, minimize: bool) -> Array:
    """Return the place of the best of the allowed thresholds, as ``choose_among_ties`` chooses.

    Args:
        value: The metric at each threshold, ``(..., thresholds)``, by falling threshold.
        allowed: Which thresholds may be chosen.
        counts: The counts at each threshold, ``(..., thresholds, 1)``.
        minimize: Whether lower is better.

    Returns:
        The place, ``(..., 1)``.
    """
    better = where(allowed, -value if minimize else value, -math.inf)
    highest = namespace(better).amax(better, -1)[..., None]
    # Equal values that were rounded differently are ties.
    tied = allowed & (better >= highest - ROUNDING * minimum(abs(highest), LARGEST))
    return choose_among_ties(tied, counts.tp[..., 0], counts.fp[..., 0])


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
    s = s if is_floating(s) else exact(s)
    fine = ((y == 0) | (y == 1)) & namespace(s).isfinite(s)  # looked at once: on a GPU every look is a wait
    if 0 in s.shape or not bool(fine.all()):
        check_scores(s)
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


def smallest_of_score(threshold: float, scores: Array) -> float:
    """Return the smallest number that is rounded to a score of half precision; other scores as they are."""
    if not is_tensor(scores) or str(scores.dtype) not in ("torch.bfloat16", "torch.float16"):
        return threshold
    from metricfit.core.tensor_numerics import smallest_rounded_to

    return smallest_rounded_to(threshold, scores.dtype)


#: How many thresholds of a long column are searched at a time on a CPU: the counts that its cache holds.
BLOCK = 2**15


def search_long_column(scores: Array, target: Array, metric: Metric) -> tuple[float, float] | None:
    """Find the best threshold of a long column on a CPU and the value there, in blocks that stay in the cache.

    It is what a search of the ``sweep`` finds. None for a short column, and on another device.
    """
    if _is_on_gpu(scores):
        return None
    s, y, _ = checked(scores, target, None)
    n = len(s)
    if n < BLOCK:
        return None
    falling, labels = sort_with_flags(s, y == 1)
    positives, dtype = float(labels.sum()), exact_type(s)

    def part(start: int, before: float) -> tuple[Array, Array, Array]:
        """Return true and false positives and values, higher is better; place 0 is infinity, place i score i - 1."""
        stop = min(start + BLOCK, n + 1)
        tp = pad_last(labels[start : stop - 1].cumsum(0, dtype=dtype), before=0.0) + before
        fp = arange(tp, start, stop, dtype) - tp
        counts = Counts(*(cell[..., None] for cell in (tp, fp, positives - tp, n - positives - fp)))
        value = one_class(metric, counts)
        low, high = max(start, 1), min(stop, n)
        tied = falling[low - 1 : high - 1] == falling[low:high]
        tied = tied if start else pad_last(tied, before=False)
        tied = tied if stop <= n else pad_last(tied, after=False)
        return tp, fp, where(tied, -math.inf, -value if metric.minimize else value)

    starts, before, highest = range(0, n + 1, BLOCK), [0.0], []
    for start in starts:
        tp, _, better = part(start, before[-1])
        highest.append(float(better.max()))
        before.append(float(tp[-1]) + float(labels[start + len(tp) - 1 : start + len(tp)].sum()))
    least = max(highest) - ROUNDING * min(abs(max(highest)), LARGEST)  # values that were rounded differently are ties
    found = []
    for start, before_it, value in zip(starts, before, highest, strict=False):
        if value >= least:
            tp, fp, better = part(start, before_it)
            places = _places(better >= least)
            found.append((places + start, tp[places], fp[places], better[places]))
    places, tp, fp, better = (namespace(*column).concatenate(column) for column in zip(*found, strict=True))
    chosen = int(choose_among_ties(better == better, tp, fp)[0])
    place, value = int(places[chosen]), float(better[chosen])
    return float(falling[place - 1]) if place else math.inf, -value if metric.minimize else value
