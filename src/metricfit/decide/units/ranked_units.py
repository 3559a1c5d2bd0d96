"""The best number of pixels to mark, by a sort and the expected metric of every number."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from metricfit.decide.units.expected_values import RankedMoments, exact_values
from metricfit.metrics.metric import Metric

Method = Literal["approximate", "exact"]

#: About how many sizes are tried before those between the best one and its neighbours.
SPREAD_SIZES = 512


def best_masks(probabilities: Tensor, metric: Metric, method: Method, zero_division: float) -> Tensor:
    """Find the pixels of every unit with the best expected metric.

    Args:
        probabilities: Probabilities ``(units, pixels)``.
        metric: The metric.
        method: "exact" or "approximate".
        zero_division: The value of marking nothing where there are no positives.

    Returns:
        The marked pixels, bool ``(units, pixels)``.
    """
    ranked, order = probabilities.detach().sort(dim=1, descending=True)
    ranked = ranked.double()
    empty = zero_division * (-ranked).log1p().sum(1).exp() if zero_division else None
    sizes = _exact_sizes(ranked, metric, empty) if method == "exact" else _approximate_sizes(ranked, metric, empty)
    places = torch.arange(probabilities.shape[1], device=probabilities.device)
    return torch.empty_like(order, dtype=torch.bool).scatter_(1, order, places < sizes)


def _exact_sizes(ranked: Tensor, metric: Metric, empty: Tensor | None) -> Tensor:
    values = exact_values(ranked, metric)
    if empty is not None:
        values[:, 0] += empty
    return _best(values, metric)


def _approximate_sizes(ranked: Tensor, metric: Metric, empty: Tensor | None) -> Tensor:
    """Find the best sizes ``(units, 1)``: first among a few hundred spread over all, then between the neighbours."""
    moments = RankedMoments(ranked)
    spacing = max(1, ranked.shape[1] // SPREAD_SIZES)
    spread = torch.arange(0, ranked.shape[1] + spacing, spacing, device=ranked.device)
    around = torch.arange(-spacing, spacing + 1, device=ranked.device)
    sizes = spread.expand(len(ranked), -1).clamp(max=ranked.shape[1])
    for following in (around, None) if spacing > 1 else (None,):
        values = moments.expected_values(metric, sizes)
        if empty is not None:
            values += (sizes == 0) * empty.unsqueeze(1)
        best = sizes.gather(1, _best(values, metric))
        if following is not None:
            sizes = (best + following).clamp(0, ranked.shape[1])
    return best


def _best(values: Tensor, metric: Metric) -> Tensor:
    return (values.argmin if metric.minimize else values.argmax)(1, keepdim=True)
