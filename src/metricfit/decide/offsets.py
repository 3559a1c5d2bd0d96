"""Offsets of several classes: one number per class, added to the logits before the argmax, chosen for a metric."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from metricfit.core.tensor_numerics import exact_dtype
from metricfit.core.types import ScalarAverage
from metricfit.decide.offset_search import STARTS, OffsetProblem, search_offsets
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.metric import Formula, Metric, get_metric

#: What the sum of the class shares of a row can differ from 1 by because of rounding.
SHARES_ROUNDING = 1e-4


class BestOffsets(NamedTuple):
    """The result of ``best_offsets``.

    Attributes:
        offsets: What to add to the logits before the argmax, ``(c,)``.
        value: The value of the metric with these offsets.

    Example:
        >>> logits, target = torch.tensor([[2.0, 1.0, 0.0], [2.0, 0.0, 1.0], [3.0, 0.0, 0.0]]), torch.tensor([1, 2, 0])
        >>> best = best_offsets(logits, target, "f1")
        >>> best.value, (logits + best.offsets).argmax(1)
        (1.0, tensor([1, 2, 0]))
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
    starts: int = STARTS,
) -> BestOffsets:
    """Find offsets that improve a metric of the multiclass decisions ``argmax(logits + offsets)``.

    The search starts from several offsets and changes one class at a time until a round brings no improvement. The
    value is never worse than that of the plain argmax, and no change of a single offset improves it further. Use data
    that the model was not trained on.

    Args:
        logits: Logits ``(n, c)`` of at least two classes.
        target: Class numbers ``(n,)``; or class shares ``(n, c)`` that sum to 1. With the probabilities of a calibrated
            model as shares, the value is that of the expected counts (the plug-in rule).
        metric: A metric, its name or a function of Counts.
        average: "macro", "micro" or "weighted".
        weight: One weight per sample.
        rounds: Maximum number of rounds through the classes.
        starts: Number of starts. The search from 1 start, the plain argmax, is several times as fast as the default.

    Returns:
        The offsets and the value of the metric with them.

    Raises:
        ValueError: If the average is not one of these, the shapes do not match, or the logits are not finite.

    Example:
        >>> logits = torch.tensor([[2.0, 1.0], [2.0, 1.5], [2.0, 0.0], [2.0, 0.5]])
        >>> best_offsets(logits, torch.tensor([1, 1, 0, 0]), "f1").value
        1.0
    """
    if starts < 1:
        raise InvalidValueError(f"the search needs at least 1 start, got starts={starts}")
    z, shares, w = _check_inputs(logits, target, weight, average)
    found = search_offsets(OffsetProblem(z, shares, w, get_metric(metric), average), rounds, starts)
    return BestOffsets(*found)


def _check_inputs(
    logits: Tensor, target: Tensor, weight: Tensor | None, average: ScalarAverage
) -> tuple[Tensor, Tensor, Tensor]:
    if average not in ("macro", "micro", "weighted"):
        raise InvalidValueError(
            f"best_offsets maximises one number: average must be 'macro', 'micro' or 'weighted', got {quote(average)}"
        )
    z, y = (torch.as_tensor(values).detach() for values in (logits, target))
    if z.dim() != 2 or z.shape[1] < 2 or y.shape not in (z.shape[:1], z.shape) or len(y) == 0:
        raise InvalidValueError(
            "best_offsets needs logits (n, c) and labels (n,) or class shares (n, c), got "
            f"{tuple(z.shape)} and {tuple(y.shape)}"
        )
    if not bool(z.isfinite().all()):
        raise InvalidValueError(f"{int((~z.isfinite()).sum())} of {z.numel()} logits are NaN or infinite")
    exact = exact_dtype(z.device)
    w = torch.ones(len(z), dtype=exact, device=z.device) if weight is None else torch.as_tensor(weight).to(z.device)
    if w.shape != z.shape[:1] or not bool(((w >= 0) & (w < math.inf)).all()) or not bool((w > 0).any()):
        raise InvalidValueError("weights must be one finite number of at least 0 per row, and not all 0")
    return z, _as_shares(y.to(z.device), z.shape[1]).to(exact), w.to(exact)


def _as_shares(target: Tensor, classes: int) -> Tensor:
    """Return the share of each class in each row, 1 and 0 for class numbers."""
    if target.dim() == 2:
        if bool((target < 0).any()) or bool(((target.sum(1) - 1).abs() > SHARES_ROUNDING).any()):
            raise InvalidValueError("class shares (n, c) must be at least 0 and sum to 1 in each row")
        return target
    if target.is_floating_point() and bool((target != target.round()).any()):
        raise InvalidValueError("the target must contain class numbers, got fractions")
    if not bool(((target >= 0) & (target < classes)).all()):
        raise InvalidValueError(
            f"target labels must lie in 0..{classes - 1}, got {int(target.min())} to {int(target.max())}"
        )
    return one_hot(target.long(), classes)
