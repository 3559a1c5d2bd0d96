"""The best number of pixels to mark, by a sort and the expected metric of every number."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from metricfit.decide.units.expected_values import RankedMoments, exact_values
from metricfit.decide.units.unit_checks import at_least_single
from metricfit.metrics.metric import Metric

Method = Literal["approximate", "exact"]

#: About how many sizes are tried before those between the best one and its neighbours.
SPREAD_SIZES = 512


@torch.no_grad()
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
    ranked = ranked.double() if method == "exact" else at_least_single(ranked)
    empty = zero_division * (-ranked).log1p().sum(1, dtype=torch.float64).exp() if zero_division else None
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
    spacing = max(1, ranked.shape[1] // SPREAD_SIZES)
    moments = RankedMoments(ranked, spacing)
    sizes = moments.known_sizes()
    best = sizes.gather(1, _best(_reward(moments.expected_values(metric, sizes), sizes, empty), metric))
    if spacing == 1:
        return best
    sizes, values = moments.expected_values_around(metric, best)
    return sizes.gather(1, _best(_reward(values, sizes, empty), metric))


def _reward(values: Tensor, sizes: Tensor, empty: Tensor | None) -> Tensor:
    """Add what marking nothing is worth because a unit may have no positives."""
    return values if empty is None else values + (sizes == 0) * empty.unsqueeze(1)


def _best(values: Tensor, metric: Metric) -> Tensor:
    return (values.argmin if metric.minimize else values.argmax)(1, keepdim=True)
