"""Requirements on the test rows of all folds together: values, intervals, and whether they clearly fail.

The number of folds on which a requirement held is chance where the value is near the bound: a recall of exactly 0.9
meets a bound of 0.9 on about half of the folds. All folds together have several times the rows of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from metricfit.core.counting import count_labels
from metricfit.core.counts import Counts
from metricfit.metrics.requirements import Requirement
from metricfit.stats.multinomial import percentile_interval, resampled_counts
from metricfit.tabular.families.family import Integers


@dataclass(frozen=True)
class PooledRequirement:
    """A requirement on the decisions about the test rows of all folds.

    Attributes:
        text: The requirement.
        value: The value of its metric; of several classes, that of the class which violates it most.
        interval: 95 % bootstrap interval of the value.
        held: Whether the value meets the bound.
        clearly_fails: Whether the whole interval is beyond the bound.
        violation: How far the value is beyond the bound; at most 0 if it is met.

    Example:
        >>> decided, labels = np.array([1, 1, 0, 0] * 50), np.array([1, 1, 1, 0] * 50)
        >>> from metricfit import parse_requirement
        >>> (found,) = judge_pooled(decided, labels, 2, [parse_requirement("recall >= 0.9")])
        >>> round(found.value, 3), found.held, found.clearly_fails
        (0.667, False, True)
    """

    text: str
    value: float
    interval: tuple[float, float]
    held: bool
    clearly_fails: bool
    violation: float

    def to_dict(self) -> dict[str, Any]:
        """Return the requirement as plain values, in the form that ``metricfit compare --json`` prints."""
        return {
            "requirement": self.text,
            "value": self.value,
            "interval": list(self.interval),
            "held": self.held,
            "clearly_fails": self.clearly_fails,
        }

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.text}: {self.value:.3f}, 95 % interval {low:.3f} to {high:.3f}"


def judge_pooled(
    decided: Integers, labels: Integers, classes: int, requirements: Sequence[Requirement]
) -> tuple[PooledRequirement, ...]:
    """Judge decisions about the test rows of all folds.

    Args:
        decided: The class number that was decided for each row.
        labels: The true class numbers; of two classes, 1 is the positive one.
        classes: The number of classes.
        requirements: The requirements, by class numbers.

    Returns:
        One result per requirement.
    """
    if not requirements:
        return ()
    matrix = any(requirement.metric.needs_matrix for requirement in requirements)
    counts = count_labels(
        torch.from_numpy(decided),
        torch.from_numpy(labels),
        num_classes=None if classes == 2 else classes,
        matrix=matrix and classes > 2,
    )
    drawn = resampled_counts(decided, labels, classes, matrix=matrix and classes > 2)
    if classes == 2:
        drawn = Counts(*(cell[:, 1:] for cell in drawn))
    return tuple(_judge(requirement, counts, drawn) for requirement in requirements)


def _judge(requirement: Requirement, counts: Counts, drawn: Counts) -> PooledRequirement:
    values = requirement.metric(counts).reshape(-1)
    violations = requirement.excess(values)
    worst = int(violations.argmax())
    resampled = requirement.metric(drawn).reshape(-1, len(values))[:, worst]
    low, high = percentile_interval(resampled)
    beyond = np.quantile(requirement.excess(resampled).numpy(), 0.025)
    return PooledRequirement(
        str(requirement),
        float(values[worst]),
        (low, high),
        bool(requirement.forgives(violations).all()),
        bool(beyond > 0),
        float(violations[worst]),
    )
