"""Offsets of several classes: one number per class, added to the logits before the argmax, chosen for a metric.

The offsets are found by coordinate ascent. With the other offsets fixed, sample i is assigned to class k as soon as
the offset of k exceeds d_i = max_{j != k}(z_ij + o_j) - z_ik. Sorting the d_i and summing in that order gives the
counts for every choice of the offset, so each coordinate step is exact. It takes O(n log n + n c).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING, exact_dtype
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Formula, Metric, get_metric

#: Maximum number of counts that are held in memory at a time: candidates times classes.
CANDIDATES_TIMES_CLASSES = 2**22


class BestOffsets(NamedTuple):
    """The result of ``best_offsets``.

    Attributes:
        offsets: What to add to the logits before the argmax, ``(c,)``.
        value: The value of the metric with these offsets.
    """

    offsets: Tensor
    value: float


def best_offsets(
    logits: Tensor,
    target: Tensor,
    metric: str | Metric | Formula,
    *,
    average: ScalarAverage = "macro",
    weight: Tensor | None = None,
    rounds: int = 10,
) -> BestOffsets:
    """Find offsets that improve a metric of the multiclass decisions ``argmax(logits + offsets)``.

    The search starts from offsets of 0 and changes one class at a time until a round brings no improvement. The value
    is never worse than that of the plain argmax, and no change of a single offset improves it further. Use data that
    the model was not trained on.

    Args:
        logits: Logits ``(n, c)`` of at least two classes.
        target: Class numbers ``(n,)``.
        metric: A metric, its name or a function of Counts.
        average: "macro", "micro" or "weighted".
        weight: One weight per sample.
        rounds: Maximum number of rounds through the classes.

    Returns:
        The offsets and the value of the metric with them.

    Raises:
        ValueError: If the average is not one of these, the shapes do not match, or the logits are not finite.

    Example:
        >>> logits = torch.tensor([[2.0, 1.0], [2.0, 1.5], [2.0, 0.0], [2.0, 0.5]])
        >>> best_offsets(logits, torch.tensor([1, 1, 0, 0]), "f1").value
        1.0
    """
    chosen = get_metric(metric)
    z, y, w = _check_inputs(logits, target, weight, average)
    offsets = torch.zeros(z.shape[1], dtype=torch.promote_types(z.dtype, torch.float32), device=z.device)
    sign = -1.0 if chosen.minimize else 1.0
    best = _value(z.argmax(1), y, w, z.shape[1], chosen, average)
    for _ in range(rounds):
        before = best
        for k in range(z.shape[1]):
            tried = offsets.clone()
            tried[k] += _best_offset((z + offsets).to(exact_dtype(z.device)), k, y, w, chosen, average)
            value = _value((z + tried).argmax(1), y, w, z.shape[1], chosen, average)
            if sign * (value - best) > ROUNDING:
                offsets, best = tried, value
        if best == before:
            break
    return BestOffsets(offsets, best)


def _best_offset(z: Tensor, k: int, y: Tensor, w: Tensor, metric: Metric, average: ScalarAverage) -> float:
    """Return the best change of the offset of class k."""
    others = z.clone()
    others[:, k] = -torch.inf
    highest_other, other_class = others.max(1)
    d, order = torch.sort(highest_other - z[:, k])
    other_class, true, weights = other_class[order], y[order], w[order]
    last_of_ties = torch.cat([d[1:] != d[:-1], torch.ones_like(d[:1], dtype=torch.bool)])
    best_position = -1
    start = Counts.from_labels(other_class, true, num_classes=z.shape[1], weight=weights)
    tp, predicted = start.tp, start.predicted
    rows = max(1, CANDIDATES_TIMES_CLASSES // z.shape[1])
    sign = -1.0 if metric.minimize else 1.0
    best = sign * float(averaged(metric, start, average))
    for first in range(0, len(d), rows):
        chunk = slice(first, first + rows)
        moved = torch.zeros(len(d[chunk]), z.shape[1], dtype=tp.dtype, device=z.device)
        gained = moved.clone()
        position = torch.arange(len(moved), device=z.device)
        moved[position, other_class[chunk]] -= weights[chunk]
        moved[:, k] += weights[chunk]
        gained[position, true[chunk]] -= weights[chunk] * (other_class[chunk] == true[chunk])
        gained[:, k] += weights[chunk] * (true[chunk] == k)
        all_predicted, all_tp = predicted + moved.cumsum(0), tp + gained.cumsum(0)
        predicted, tp = all_predicted[-1], all_tp[-1]
        values = sign * averaged(metric, _counts(all_tp, all_predicted, start), average)
        values = torch.where(last_of_ties[chunk], values, -torch.inf)
        highest = int(values.argmax())
        if float(values[highest]) > best:
            best, best_position = float(values[highest]), first + highest
    if best_position < 0:
        return float(d[0]) - 1.0
    if best_position + 1 == len(d):
        return float(d[-1]) + 1.0
    return float(d[best_position] + d[best_position + 1]) / 2


def _counts(tp: Tensor, predicted: Tensor, like: Counts) -> Counts:
    """Return counts from sums; differences that are only rounding errors become 0."""
    positives, n = like.positives, like.n
    cells = (tp, predicted - tp, positives - tp, n - predicted - positives + tp)
    return Counts(*(torch.where(cell > ROUNDING * n, cell, 0.0) for cell in cells), exclusive=True)


def _value(decided: Tensor, y: Tensor, w: Tensor, classes: int, metric: Metric, average: ScalarAverage) -> float:
    return float(averaged(metric, Counts.from_labels(decided, y, num_classes=classes, weight=w), average))


def _check_inputs(
    logits: Tensor, target: Tensor, weight: Tensor | None, average: ScalarAverage
) -> tuple[Tensor, Tensor, Tensor]:
    if average not in ("macro", "micro", "weighted"):
        raise InvalidValueError(
            f"best_offsets maximises one number: average must be 'macro', 'micro' or 'weighted', got {quote(average)}"
        )
    z, y = (torch.as_tensor(values).detach() for values in (logits, target))
    if z.dim() != 2 or z.shape[1] < 2 or y.shape != z.shape[:1] or len(y) == 0:
        raise InvalidValueError(
            f"best_offsets needs logits (n, c) and labels (n,), got {tuple(z.shape)} and {tuple(y.shape)}"
        )
    if not bool(z.isfinite().all()):
        raise InvalidValueError(f"{int((~z.isfinite()).sum())} of {z.numel()} logits are NaN or infinite")
    if y.is_floating_point() and bool((y != y.round()).any()):
        raise InvalidValueError("the target must contain class numbers, got fractions")
    exact = exact_dtype(z.device)
    w = torch.ones_like(y, dtype=exact) if weight is None else torch.as_tensor(weight).to(exact)
    return z, y.long(), w
