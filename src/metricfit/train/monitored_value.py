"""What a monitor measures: a value with its threshold, and the value at the best threshold or thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.counting import count_batch
from metricfit.core.numerics import ROUNDING
from metricfit.core.threshold_reading import refuse_classes
from metricfit.core.threshold_vectors import PerLabel, ThresholdGrid, read_decision
from metricfit.core.types import ScalarAverage
from metricfit.decide.labels.label_thresholds import best_label_thresholds
from metricfit.decide.probability_thresholds import probability_sweep
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.average import averaged
from metricfit.metrics.curves import InfeasibleError, best_of_sweep
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import Sweep, one_class


@dataclass(frozen=True)
class Measured:
    """A measurement of a monitor.

    Attributes:
        value: The monitored value.
        threshold: The threshold that it was measured at, or one per label; NaN if there is none.
        feasible: Whether all requirements hold.
        violation: The sum of the amounts by which requirements are violated; 0 if they hold.

    Example:
        >>> Measured(0.9, threshold=0.5).feasible
        True
    """

    value: float
    threshold: float | tuple[float, ...]
    feasible: bool = True
    violation: float = 0.0


def read_monitor_threshold(threshold: Any) -> float | str | PerLabel:
    """Return the threshold of a monitor: a number, "best", or one number per label.

    Raises:
        InvalidValueError: It is something else.
    """
    threshold = read_decision(threshold)
    if threshold == "best" if isinstance(threshold, str) else isinstance(threshold, PerLabel):
        return threshold  # type: ignore[no-any-return]
    expected = "threshold is a number strictly between 0 and 1, one per label, or 'best'"
    if isinstance(threshold, (str, bool, ThresholdGrid)) or threshold is None:
        raise InvalidValueError(f"{expected}; got {quote(threshold)}")
    try:
        numbers = torch.as_tensor(threshold, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidValueError(f"{expected}; got {quote(threshold)}") from None
    if numbers.dim() > 1 or not numbers.numel() or not bool(((numbers > 0) & (numbers < 1)).all()):
        raise InvalidValueError(f"{expected}; got {quote(threshold)}")
    return PerLabel(numbers.cpu()) if numbers.dim() else float(numbers)


def measure_at_best(
    samples: Columns | Classes, metric: Metric, requirements: Sequence[Requirement], average: ScalarAverage, name: str
) -> Measured:
    """Measure a metric at its best threshold; several labels at one per label, or at one for all under "micro".

    Args:
        samples: Logits and labels in their final shape.
        metric: The metric.
        requirements: What the threshold must meet; for one output only.
        average: The average over several labels.
        name: The name of the monitor, for messages.

    Raises:
        InvalidValueError: The classes exclude each other, or there are requirements on several labels.
    """
    if isinstance(samples, Classes):
        raise refuse_classes()
    if samples.logits.shape[0] == 1:
        weight = None if samples.weight is None else samples.weight[0]
        return _measure_one(probability_sweep(samples.logits[0], samples.target[0], weight), metric, list(requirements))
    if requirements:
        raise refuse_requirements(name)
    best = best_label_thresholds(samples, metric, average)
    column = best.unsqueeze(-1) if isinstance(best, Tensor) else best
    value = float(averaged(metric, count_batch(samples, column), average))
    return Measured(value, tuple(best.tolist()) if isinstance(best, Tensor) else best)


def refuse_requirements(name: str) -> InvalidValueError:
    """Return the error for requirements on several labels at their best thresholds."""
    return InvalidValueError(
        f"{name}: the best thresholds of several labels are searched without requirements; monitor the metric at fixed "
        "thresholds, such as metrics.PerLabel([...]), or choose the decision afterwards with "
        "decide.best_decision(..., subject_to=...)"
    )


def _measure_one(candidates: Sweep, metric: Metric, requirements: list[Requirement]) -> Measured:
    """Measure one output; if no threshold meets the requirements, at the best of those with the smallest violation."""
    try:
        best = best_of_sweep(candidates, metric, requirements)
    except InfeasibleError:
        violations = torch.stack(
            [one_class(requirement, candidates.counts).clamp(min=0) for requirement in requirements]
        ).sum(0)
        smallest = float(violations.min())
        nearest = violations <= smallest + ROUNDING
        counts = candidates.counts.map(lambda count: count[nearest])
        best = best_of_sweep(Sweep(candidates.thresholds[nearest], counts), metric, [])
        return Measured(best.value, best.threshold, False, smallest)
    return Measured(best.value, best.threshold)
