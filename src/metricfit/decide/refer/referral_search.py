"""The best region of scores to refer to a person: an interval around the threshold of two classes.

Rows whose scores are in the region are not decided. Those above it are positive and those below it negative, as they
were without the region, because it contains the threshold. The metric is that of the decided rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.decide.rules import Rule, check_rule, middle_of
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import Sweep, expected_sweep, one_class, sweep

#: The most cut-offs on each side of the threshold that are tried at a time.
CUTOFFS = 300


class Region(NamedTuple):
    """A region of scores that is referred, and what the decisions about the other rows are worth.

    Attributes:
        low: Rows below are negative.
        high: Rows from here on are positive; those from ``low`` on and below it are referred.
        share: The share of the rows that is referred.
        value: The metric of the other rows, on the labels.
        feasible: Whether these meet the requirements, on the labels.
        requirements: The result of each requirement, by its text.
    """

    low: float
    high: float
    share: float
    value: float
    feasible: bool
    requirements: dict[str, RequirementValue]


class _Pairs(NamedTuple):
    """Pairs of cut-offs, as places in a sweep: rows from ``high`` up are positive, those below ``low`` negative."""

    high: Tensor
    low: Tensor

    def counts(self, swept: Sweep) -> Counts:
        c = swept.counts
        return Counts(c.tp[self.high], c.fp[self.high], c.fn[self.low], c.tn[self.low])


def search_region(
    logits: Tensor,
    y: Tensor,
    weight: Tensor | None,
    metric: Metric,
    threshold: float,
    requirements: Sequence[Requirement] = (),
    *,
    max_share: float | None,
    rule: Rule,
) -> Region:
    """Find the region around a threshold that is best to refer.

    With ``max_share`` it is the region with the best metric among those that refer no more than that and meet the
    requirements; of equally good ones, the smallest. Without it, the smallest region that meets the requirements. The
    plug-in rule takes the metric from the expected counts, and requirements must hold on these too where they can.

    All pairs of cut-offs are tried if there are at most 300 on each side of the threshold. Otherwise every k-th is, and
    then those around the best pair: O(n log n).

    Args:
        logits: Calibrated logits ``(n,)``.
        y: Labels 0 and 1.
        weight: One weight per row, or None.
        metric: A metric of counts.
        threshold: The threshold without a region.
        requirements: Requirements on the decided rows.
        max_share: The largest share of rows that may be referred, or None.
        rule: The decision rule.

    Returns:
        The region. If none meets the requirements, the one with the smallest violation.

    Example:
        >>> from metricfit.metrics import accuracy
        >>> z, y = torch.tensor([3.0, 2.0, 1.0, -1.0, -2.0]), torch.tensor([1, 1, 0, 0, 0])
        >>> region = search_region(z, y, None, accuracy, 0.0, max_share=0.2, rule="empirical")
        >>> region.low, region.high, region.share, region.value
        (0.0, 1.5, 0.2, 1.0)
    """
    observed = sweep(logits, y, weight)
    judged = expected_sweep(logits, weight) if check_rule(rule) == "plugin" else observed
    called = observed.counts.predicted.squeeze(-1)
    total = float(observed.counts.n[0, 0])
    largest = (1.0 if max_share is None else max_share) + ROUNDING
    center = int((observed.thresholds >= threshold).sum()) - 1
    first = int((called < called[center] - largest * total).sum())
    last = int((called <= called[center] + largest * total).sum()) - 1

    def best_of(pairs: _Pairs) -> int:
        share = (called[pairs.low] - called[pairs.high]) / total
        possible = (share <= largest) & (share < 1.0)
        met, violation = _judge(requirements, pairs, observed, judged, possible)
        value = one_class(metric, pairs.counts(judged))
        quality = -value if metric.minimize else value
        if not bool(met.any()):
            return _first_of(possible, -violation, quality, -share)
        return _first_of(met, quality, -share) if max_share is not None else _first_of(met, -share, quality)

    high, low = _search(best_of, (first, center), (center, last))
    pairs = _Pairs(torch.tensor([high]), torch.tensor([low]))
    counts = pairs.counts(observed)
    results = {}
    for requirement in requirements:
        reached = float(one_class(requirement.metric, counts))
        results[str(requirement)] = RequirementValue(reached, bool(requirement.holds(counts).all()), reached)
    scores = logits if weight is None else logits[weight > 0]
    return Region(
        threshold if low == center else middle_of(scores, float(observed.thresholds[low])),
        threshold if high == center else middle_of(scores, float(observed.thresholds[high])),
        float((called[low] - called[high]) / total),
        float(one_class(metric, counts)),
        all(result.met for result in results.values()),
        results,
    )


def _search(best_of: Callable[[_Pairs], int], highs: tuple[int, int], lows: tuple[int, int]) -> tuple[int, int]:
    """Return the best pair of places within two ranges: first among every k-th, then among those around the best."""
    tried = [highs, lows]
    while True:
        steps = [max(1, -(-(end - start) // (CUTOFFS - 1))) for start, end in tried]
        high, low = (
            torch.unique(torch.cat([torch.arange(start, end + 1, step), torch.tensor([start, end])]))
            for (start, end), step in zip(tried, steps, strict=True)
        )
        pairs = _Pairs(high.repeat_interleave(len(low)), low.repeat(len(high)))
        best = best_of(pairs)
        found = int(pairs.high[best]), int(pairs.low[best])
        if max(steps) == 1:
            return found
        margins = [max(step, CUTOFFS // 4) for step in steps]
        tried = [
            (max(start, place - margin), min(end, place + margin))
            for place, margin, (start, end) in zip(found, margins, (highs, lows), strict=True)
        ]


def _judge(
    requirements: Sequence[Requirement], pairs: _Pairs, observed: Sweep, judged: Sweep, possible: Tensor
) -> tuple[Tensor, Tensor]:
    """Return which pairs meet the requirements, on the expected counts too if some do, and the largest violations."""
    met, on_both = possible, possible
    largest = torch.full_like(possible, -torch.inf, dtype=torch.float64)
    for requirement in requirements:
        violation, expected = (one_class(requirement, pairs.counts(swept)) for swept in (observed, judged))
        met = met & requirement.forgives(violation)
        on_both = on_both & requirement.forgives(violation) & requirement.forgives(expected)
        largest = torch.maximum(largest, violation)
    return (on_both if bool(on_both.any()) else met), largest


def _first_of(allowed: Tensor, *keys: Tensor) -> int:
    """Return the place of the allowed entry with the largest keys, of which the first counts most."""
    for key in keys:
        highest = key[allowed].max()
        allowed = allowed & (key >= highest - ROUNDING * highest.abs())
    return int(allowed.int().argmax())
