"""Counts at every threshold, from one sort of the scores."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.tensor_numerics import exact_dtype
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement

#: Numbers as torch, NumPy or lists hold them.
Array = Any


class Sweep(NamedTuple):
    """Thresholds, falling from infinity on, and the counts at each."""

    thresholds: Tensor
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
    swept = sum_by_threshold(s, y.to(exact_dtype(s.device)), w)
    positives, negatives = float(swept.counts.tp[-1]), float(swept.counts.fp[-1])
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
        >>> expected_sweep([0.0, 0.0], None).counts.fn.squeeze(-1)
        tensor([1., 0.], dtype=torch.float64)
    """
    scores = column(logits, "logits")
    z, _, w = checked(scores, torch.zeros(len(scores)), weight)
    return sum_by_threshold(z, torch.sigmoid(z.to(exact_dtype(z.device))), w)


def sum_by_threshold(scores: Tensor, share: Tensor, weight: Tensor | None) -> Sweep:
    """Sum the positive share of each row, and the rest of the row, above each threshold.

    Args:
        scores: One score per sample.
        share: The share of each sample that is positive: its label, or its probability.
        weight: One weight per sample, or None. The scores of samples of weight 0 are thresholds too.

    Returns:
        Infinity and the distinct scores, falling, and the counts ``(m + 1, 1)`` at each.
    """
    exact = share.dtype
    falling, order = torch.sort(scores, descending=True)
    y, w = share[order], None if weight is None else weight[order]
    tp = y.cumsum(0) if w is None else (w * y).cumsum(0)
    fp = torch.arange(1, len(y) + 1, dtype=exact, device=y.device) - tp if w is None else (w * (1 - y)).cumsum(0)
    last_of_ties = falling[1:] != falling[:-1]
    if not bool(last_of_ties.all()):
        kept = torch.cat([last_of_ties, last_of_ties.new_ones(1)])
        falling, tp, fp = falling[kept], tp[kept], fp[kept]
    tp, fp = (torch.cat([sums.new_zeros(1), sums]).unsqueeze(-1) for sums in (tp, fp))
    thresholds = torch.cat([falling.new_full((1,), math.inf, dtype=exact), falling.to(exact)])
    return Sweep(thresholds, Counts(tp, fp, tp[-1] - tp, fp[-1] - fp))


def choose_among_ties(tied: Tensor, tp: Tensor, fp: Tensor) -> Tensor:
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
    first = tied.view(torch.uint8).argmax(-1, keepdim=True)
    alike = tied & (fp == fp.gather(-1, first))
    most = torch.where(alike, tp, -1.0).amax(-1, keepdim=True)
    return (alike & (tp == most)).view(torch.uint8).argmax(-1, keepdim=True)


def area_under_roc(tp: Tensor, fp: Tensor) -> Tensor:
    """Compute the area under ROC curves from counts at falling thresholds, ``(..., thresholds)``."""
    return torch.trapezoid(tp, fp) / (tp[..., -1] * fp[..., -1])


def area_under_precision_recall(tp: Tensor, fp: Tensor) -> Tensor:
    """Compute average precisions from counts at falling thresholds, ``(..., thresholds)``, the first of them inf."""
    tp_below_inf, predicted = tp[..., 1:], (tp + fp)[..., 1:]
    precision = tp_below_inf / predicted.masked_fill(predicted == 0, 1.0)
    return (tp.diff() * precision).sum(-1) / tp[..., -1]


def checked(scores: Array, target: Array, weight: Array | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return scores, targets and weights as tensors, without the samples of weight 0.

    Raises:
        InvalidValueError: The arrays differ in length, are empty, or hold values that are not allowed.
    """
    s = column(scores, "scores").detach()
    y = column(target, "target").detach().to(s.device)
    w = None if weight is None else column(weight, "weight").detach().to(s.device).to(exact_dtype(s.device))
    for name, values in (("target", y), ("weight", w)):
        if values is not None and values.shape != s.shape:
            raise InvalidValueError(f"{s.numel()} scores, but {values.numel()} values of {name}")
    if s.numel() == 0:
        raise InvalidValueError("there are no scores")
    if not s.is_floating_point():
        s = s.to(exact_dtype(s.device))
    if not bool(s.isfinite().all()):
        what, bad = ("NaN", s.isnan()) if bool(s.isnan().any()) else ("infinite", s.isinf())
        raise InvalidValueError(f"{int(bad.sum())} of {s.numel()} scores are {what}")
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


def column(values: Array, name: str) -> Tensor:
    """Return one number per sample, as a tensor ``(n,)``."""
    tensor = as_tensor(values, name)
    if tensor.dim() == 2 and tensor.shape[1] == 1:
        tensor = tensor.squeeze(1)
    if tensor.dim() != 1:
        hint = "; pass the positive class's column" if name == "scores" and tensor.dim() == 2 else ""
        raise InvalidValueError(f"{name} must have shape (n,) or (n, 1), got {tuple(tensor.shape)}{hint}")
    return tensor


def matrix(values: Array, name: str) -> Tensor:
    """Return one number per sample and label, as a tensor ``(n, c)``."""
    tensor = as_tensor(values, name)
    if tensor.dim() != 2:
        raise InvalidValueError(f"{name} must have shape (n, c), got {tuple(tensor.shape)}")
    return tensor


def as_tensor(values: Array, name: str) -> Tensor:
    """Return numbers as torch, NumPy or lists hold them as a tensor."""
    try:
        if not isinstance(values, Tensor) and hasattr(values, "__array__"):
            values = values.__array__().copy()  # torch takes neither read-only nor reversed arrays
        return torch.as_tensor(values, dtype=torch.float64 if isinstance(values, (list, tuple)) else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidTypeError(f"{name} must be an array of numbers, got {type(values).__name__}: {error}") from None


def one_class(formula: Metric | Requirement, counts: Counts) -> Tensor:
    """Return the metric's values, or the requirement's violations, at every threshold of a binary sweep."""
    if isinstance(formula, GroupGap):
        raise InvalidValueError(f"{formula.name} is between groups, and has no value at one threshold for all rows")
    value = formula(counts) if isinstance(formula, Metric) else formula.violation(counts)
    if value.shape != counts.tp.shape:
        raise InvalidValueError(
            f"{formula} must give one value per threshold, shape {tuple(counts.tp.shape)}; got {tuple(value.shape)}"
        )
    return value.squeeze(-1)
