"""Multiclass decisions tuned for a metric: one offset a class, added to the logits before the argmax.

Coordinate ascent. With the other offsets fixed, sample i goes to class k once its offset exceeds d_i = max_{j !=
k}(z_ij + o_j) - z_ik, so sorting the d_i and summing along the order gives the counts at every choice of the offset,
and the best of all is taken: each coordinate is exact, in O(n log n + n c).
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

POSITIONS_TIMES_CLASSES = 2**22


class BestOffsets(NamedTuple):
    """What to add to the logits before the argmax, and the metric's value then."""

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
    """Offsets for multiclass logits ``(n, c)`` that better a metric of the decisions ``argmax(logits + offsets)``.

    Starts from no offsets and goes through the classes until a round brings nothing: the value is never below that of
    the plain argmax, and no single offset can better it further. Tune on data that was not trained on.

    >>> logits = torch.tensor([[2.0, 1.0], [2.0, 1.5], [2.0, 0.0], [2.0, 0.5]])
    >>> best_offsets(logits, torch.tensor([1, 1, 0, 0]), "f1").value
    1.0
    """
    chosen = get_metric(metric)
    z, y, w = _checked(logits, target, weight, average)
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
    """The best change of class k's offset."""
    others = z.clone()
    others[:, k] = -torch.inf
    rival, chosen = others.max(1)
    d, order = torch.sort(rival - z[:, k])
    chosen, true, weights = chosen[order], y[order], w[order]
    last_of_ties = torch.cat([d[1:] != d[:-1], torch.ones_like(d[:1], dtype=torch.bool)])
    at = -1
    start = Counts.from_labels(chosen, true, num_classes=z.shape[1], weight=weights)
    tp, predicted = start.tp, start.predicted
    rows = max(1, POSITIONS_TIMES_CLASSES // z.shape[1])
    sign = -1.0 if metric.minimize else 1.0
    best = sign * float(averaged(metric, start, average))
    for first in range(0, len(d), rows):
        here = slice(first, first + rows)
        moved = torch.zeros(len(d[here]), z.shape[1], dtype=tp.dtype, device=z.device)
        gained = moved.clone()
        position = torch.arange(len(moved), device=z.device)
        moved[position, chosen[here]] -= weights[here]
        moved[:, k] += weights[here]
        gained[position, true[here]] -= weights[here] * (chosen[here] == true[here])
        gained[:, k] += weights[here] * (true[here] == k)
        all_predicted, all_tp = predicted + moved.cumsum(0), tp + gained.cumsum(0)
        predicted, tp = all_predicted[-1], all_tp[-1]
        values = sign * averaged(metric, _counts(all_tp, all_predicted, start), average)
        values = torch.where(last_of_ties[here], values, -torch.inf)
        highest = int(values.argmax())
        if float(values[highest]) > best:
            best, at = float(values[highest]), first + highest
    if at < 0:
        return float(d[0]) - 1.0
    return float(d[at] + d[at + 1]) / 2 if at + 1 < len(d) else float(d[-1]) + 1.0


def _counts(tp: Tensor, predicted: Tensor, like: Counts) -> Counts:
    """Counts from sums, with 0 where a difference of sums is no more than they round to."""
    positives, n = like.positives, like.n
    parts = (tp, predicted - tp, positives - tp, n - predicted - positives + tp)
    return Counts(*(torch.where(given > ROUNDING * n, given, 0.0) for given in parts), exclusive=True)


def _value(decided: Tensor, y: Tensor, w: Tensor, classes: int, metric: Metric, average: ScalarAverage) -> float:
    return float(averaged(metric, Counts.from_labels(decided, y, num_classes=classes, weight=w), average))


def _checked(
    logits: Tensor, target: Tensor, weight: Tensor | None, average: ScalarAverage
) -> tuple[Tensor, Tensor, Tensor]:
    if average not in ("macro", "micro", "weighted"):
        raise InvalidValueError(
            f"best_offsets needs one number to better: average 'macro', 'micro' or 'weighted', got {quote(average)}"
        )
    z, y = (torch.as_tensor(given).detach() for given in (logits, target))
    if z.dim() != 2 or z.shape[1] < 2 or y.shape != z.shape[:1] or len(y) == 0:
        raise InvalidValueError(
            f"best_offsets needs logits (n, c) and labels (n,), got {tuple(z.shape)} and {tuple(y.shape)}"
        )
    if not bool(z.isfinite().all()):
        raise InvalidValueError(f"{int((~z.isfinite()).sum())} of {z.numel()} logits are NaN or infinite")
    if y.is_floating_point() and bool((y != y.round()).any()):
        raise InvalidValueError("the target must hold class numbers, got fractions")
    exact = exact_dtype(z.device)
    w = torch.ones_like(y, dtype=exact) if weight is None else torch.as_tensor(weight).to(exact)
    return z, y.long(), w
