"""Decisions that refer some rows to a person, chosen on held-out rows of two classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.threads import one_thread
from metricfit.decide.decision import Referral, ThresholdDecision
from metricfit.decide.held_out import HeldOut
from metricfit.decide.optimism import (
    FEWEST,
    MOST,
    ROWS_CHOSEN_ON,
    draw_balances,
    draw_multiplicities,
    interval_of_decisions,
)
from metricfit.decide.refer.referral_search import Region, search_region
from metricfit.decide.rules import Rule, choose_threshold
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import one_class

if TYPE_CHECKING:
    from metricfit.decide.refit import Refit


def check_referral(
    metric: Metric, classes: int, max_share: float | None, requirements: Sequence[Requirement], confidence: float | None
) -> None:
    """Refuse what a region cannot be chosen for.

    Args:
        metric: The metric.
        classes: Number of classes; 0 for several labels.
        max_share: The largest share of rows that may be referred, or None.
        requirements: Requirements on the decided rows, without those of the threshold.
        confidence: The confidence of the model's requirements, or None.

    Raises:
        InvalidTypeError: ``max_share`` is no number.
        InvalidValueError: It is not a share, neither it nor requirements are given, or the model is of another kind.
    """
    if classes != 2:
        raise InvalidValueError("rows can be referred by models of two classes")
    if metric.columns:
        raise InvalidValueError(f"rows cannot be referred for {metric.name}: every row has a threshold of its own")
    if confidence is not None:
        raise InvalidValueError(
            "a confidence is for decisions about all rows: rethreshold(confidence=None) first, then refer"
        )
    if max_share is None and not requirements:
        raise InvalidValueError(
            "say how many rows may be referred, max_share=0.05, or what the other decisions must reach, "
            "subject_to='precision >= 0.9'"
        )
    if max_share is not None:
        if isinstance(max_share, bool) or not isinstance(max_share, Real):
            raise InvalidTypeError(f"max_share is a share of the rows such as 0.05, got {quote(max_share)}")
        if not 0 <= max_share < 1:
            hint = f"; did you mean {max_share / 100:g}?" if 1 < max_share < 100 else ""
            raise InvalidValueError(f"max_share is at least 0 and less than 1, got {max_share:g}{hint}")


@one_thread()
def choose_referral(
    held_out: HeldOut,
    metric: Metric,
    decision: ThresholdDecision,
    *,
    max_share: float | None,
    subject_to: Sequence[Requirement] = (),
    of_threshold: Sequence[Requirement] = (),
    rule: Rule,
    refit: Refit,
    seed: int,
) -> ThresholdDecision:
    """Add the best region to refer to a decision.

    Args:
        held_out: Calibrated logits of held-out rows of two classes.
        metric: The metric.
        decision: The decision without a region.
        max_share: The largest share of rows that may be referred; None for the smallest share that meets the
            requirements.
        subject_to: Requirements on the decided rows.
        of_threshold: The requirements that the threshold was chosen under; they must hold on the decided rows too.
        rule: The decision rule.
        refit: Fits what was fitted before the decision again, as in ``choose_decision``.
        seed: The seed of the bootstrap.

    Returns:
        The decision with the region, and with the value, the intervals and the requirements of the decided rows.
    """
    y, w = held_out.y, _weights(held_out)
    requirements = list(dict.fromkeys([*of_threshold, *subject_to]))
    search = partial(search_region, metric=metric, requirements=requirements, max_share=max_share, rule=rule)
    scores = held_out.logits.squeeze(1)
    region = search(scores, y, held_out.weight, threshold=decision.threshold)
    decided = _decide(scores, region)
    number = int(np.clip(ROWS_CHOSEN_ON // len(y), FEWEST, MOST))
    votes = torch.zeros(len(y), 3, dtype=torch.float64)
    chosen_anew, at_region = [], []
    balances = draw_balances(y, w, held_out.groups, seed, known=held_out.balance_known)
    for multiplicity, balance in zip(draw_multiplicities(y, held_out.groups, number, seed), balances, strict=False):
        weight = w * multiplicity
        at_region.append(_value(decided, y, weight * balance, metric))
        if not requirements:
            logits = refit(weight).squeeze(1)
            threshold = choose_threshold(logits, y, weight, metric, rule=rule).threshold
            anew = _decide(logits, search(logits, y, weight, threshold=threshold))
            chosen_anew.append(_value(anew, y, weight * balance, metric))
            votes += anew * (multiplicity == 0)[:, None]
    interval = _interval(np.array(at_region), decided, held_out, metric, seed)
    corrected, corrected_interval = region.value, interval
    if not requirements:  # otherwise resamples without a region that meets them would decide far from here
        times = votes.sum(1, keepdim=True)
        judged = torch.where(times > 0, votes / times.clamp(min=1), decided)
        corrected = _value(judged, y, w, metric)
        moved = np.array(chosen_anew) + corrected - np.mean(chosen_anew)
        corrected_interval = _interval(np.clip(moved, *metric.bounds), judged, held_out, metric, seed)
    referral = Referral(region.low, region.high, region.share) if region.share > 0 else None
    return replace(decision, referral=referral).with_evidence(
        value=region.value,
        value_interval=interval,
        corrected_value=corrected,
        corrected_interval=corrected_interval,
        requirements=region.requirements,
        not_reachable=None if region.feasible else _what_is_reachable(region, max_share),
    )


def _weights(held_out: HeldOut) -> Tensor:
    if held_out.weight is not None:
        return held_out.weight.double()
    return torch.ones(len(held_out.y), dtype=torch.float64)


def _decide(scores: Tensor, region: Region) -> Tensor:
    """Return for each row whether it is negative, positive or referred, ``(n, 3)``."""
    negative, positive = scores < region.low, scores >= region.high
    return torch.stack([negative, positive, ~negative & ~positive], dim=1).double()


def _value(decided: Tensor, y: Tensor, weight: Tensor, metric: Metric) -> float:
    """Return the metric of the decided part of each row."""
    positive = weight * (y == 1)
    negative = weight - positive
    cells = (positive @ decided[:, 1], negative @ decided[:, 1], positive @ decided[:, 0], negative @ decided[:, 0])
    return float(one_class(metric, Counts(*(cell.reshape(1, 1) for cell in cells))))


def _interval(
    values: np.typing.NDArray[np.float64], decided: Tensor, held_out: HeldOut, metric: Metric, seed: int
) -> tuple[float, float]:
    """Return percentiles of values, or if all are equal, an interval from the numbers of rows."""
    low, high = np.quantile(values, 0.025, method="lower"), np.quantile(values, 0.975, method="higher")
    if not np.isclose(low, high, rtol=0.0):
        return float(low), float(high)
    weight = _weights(held_out) * (1 - decided[:, 2])
    kept = weight > 0
    groups = None if held_out.groups is None else held_out.groups[kept.numpy()]
    y, shares = held_out.y[kept], decided[kept, :2] / decided[kept, :2].sum(1, keepdim=True)
    return interval_of_decisions(shares, y, metric, weight=weight[kept], groups=groups, seed=seed)


def _what_is_reachable(region: Region, max_share: float | None) -> str:
    """Say that no region meets the requirements, and how near the chosen one comes."""
    at_most = "" if max_share is None else f" of at most {100 * max_share:g} % of the rows"
    wanted = " and ".join(region.requirements)
    there = ", ".join(f"{text.split(' ')[0]} = {result.value:.6g}" for text, result in region.requirements.items())
    return (
        f"no region{at_most} around the threshold gives {wanted} on the other rows; the nearest refers "
        f"{100 * region.share:.3g} % and has {there}"
    )
